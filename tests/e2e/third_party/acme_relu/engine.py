"""The engine: what deployed processes import."""

from pathlib import Path

from collage.runtime.host_engine import FLAGS, HostEngine

ENGINE = HostEngine("acme-relu", Path(__file__).with_name("engine.cc"), FLAGS)
