"""The `winograd` engine: `engine.cc`, compiled for this processor."""

from __future__ import annotations

from pathlib import Path

from collage.runtime.host_engine import HostEngine

#: For the processor that compiles, like TVM's kernels. Nothing depends on the sign of zero or on traps.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math")

ENGINE = HostEngine("winograd", Path(__file__).with_name("engine.cc"), FLAGS)
