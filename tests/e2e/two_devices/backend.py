"""The backends of a second device for tests, "cpu:1": an engine, and TVM's own kernels."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from tvm import relax

from collage.backends.base import Availability, Backend, Style
from collage.backends.tvm.backend import TVMBackend
from collage.rules import PartitionRule
from collage.rules.trees import graph_rule
from tests.e2e.two_devices.engine import FUNCTIONS


class SecondNative(TVMBackend):
    """TVM's own kernels on the second device."""

    name: ClassVar[str] = "second-tvm"
    device: ClassVar[str] = "cpu:1"


class SecondDevice(Backend):
    """Elementwise operators on the second device."""

    name: ClassVar[str] = "second"
    style: ClassVar[Style] = "graph"
    device: ClassVar[str] = "cpu:1"
    engine: ClassVar[str] = "tests.e2e.two_devices.engine:create"

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return "1"

    def rule(self) -> PartitionRule:
        return graph_rule(lambda node: node.op.removeprefix("relax.") in FUNCTIONS)

    def engine_blob(self, function: Any) -> bytes:
        known = {param: i for i, param in enumerate(function.params)}
        steps = []
        for block in function.body.blocks:
            for binding in block.bindings:
                if isinstance(binding.value, relax.Call):
                    arguments = [known[argument] for argument in binding.value.args]
                    steps.append((binding.value.op.name.removeprefix("relax."), arguments))
                    known[binding.var] = len(function.params) + len(steps) - 1
                else:
                    known[binding.var] = known[binding.value]
        body = function.body.body
        results = [known[value] for value in (body.fields if isinstance(body, relax.Tuple) else [body])]
        return json.dumps([len(function.params), steps, results]).encode()
