"""The `winograd` engine: `engine.cc`, compiled for this processor. No Python runs when its functions are called."""

from __future__ import annotations

from pathlib import Path

from collage.runtime.host_engine import FLAGS, HostEngine

ENGINE = HostEngine("winograd", Path(__file__).with_name("engine.cc"), FLAGS)
