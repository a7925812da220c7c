"""Relax modules that ask for devices, and the same without."""

from __future__ import annotations

import tvm
from tvm.script import ir as I
from tvm.script import relax as R


def two_devices() -> tvm.IRModule:
    """relu on the first device, add and relu on the second, exp on the first again."""

    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4, 8), "float32")):  # type: ignore[no-untyped-def]
            with R.dataflow():
                here = R.hint_on_device(x, tvm.cpu(0))
                a = R.nn.relu(here)
                there = R.to_vdevice(a, "llvm:1")
                b = R.add(there, there)
                c = R.nn.relu(b)
                back = R.to_vdevice(c, "llvm:0")
                d = R.exp(back)
                R.output(d)
            return d

    return Module


def plain() -> tvm.IRModule:
    """`two_devices` on one."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):  # type: ignore[no-untyped-def]
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.add(a, a)
                c = R.nn.relu(b)
                d = R.exp(c)
                R.output(d)
            return d

    return Module


def hinted() -> tvm.IRModule:
    """One hint in the middle."""

    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4, 8), "float32")):  # type: ignore[no-untyped-def]
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.hint_on_device(a, tvm.cpu(1))
                c = R.exp(b)
                d = R.add(c, a)
                R.output(d)
            return d

    return Module
