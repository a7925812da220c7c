"""Lowering of partitions: one kernel each, host views kept as views, and a clear word where TVM cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm_partitions import f, partition, random_arrays, run

from collage.backends.tvm.backend import TVMBackend
from collage.backends.tvm.lower import baseline_module, cpu_target, lower, one_kernel_per_partition
from collage.errors import CodegenError

R = relax.op
TARGET = cpu_target(2)


def kernels(module: Any) -> list[str]:
    return [gv.name_hint for gv, func in module.functions_items() if isinstance(func, tvm.tirx.PrimFunc)]


def conv_chain() -> Any:
    return partition(
        [f(1, 8, 12, 12), f(8, 8, 3, 3), f(1, 8, 1, 1)],
        lambda bb, x, w, b: R.nn.relu(bb.emit(R.add(bb.emit(R.nn.conv2d(x, w, padding=(1, 1))), b))),
    )


def test_a_partition_is_one_kernel() -> None:
    assert kernels(one_kernel_per_partition(conv_chain(), TARGET)) == ["partition"]


def test_operators_outside_a_partition_are_not_fused_into_it() -> None:
    """Invariant 1: the kernel of a partition is the same whatever surrounds it."""
    alone = one_kernel_per_partition(conv_chain(), TARGET)["partition"]
    module = conv_chain()
    symbol = module.get_global_var("partition")
    builder = relax.BlockBuilder(tvm.IRModule({symbol: module[symbol]}))
    params = [relax.Var(f"x{i}", p.ty) for i, p in enumerate(module[symbol].params)]
    with builder.function("main", params):
        with builder.dataflow():
            before = builder.emit(R.nn.relu(params[0]))
            middle = builder.emit(relax.Call(symbol, [before, *params[1:]]))
            out = builder.emit_output(R.exp(middle))
        builder.emit_func_output(out)
    whole = one_kernel_per_partition(builder.get(), TARGET)
    assert len(kernels(whole)) == 3
    tvm.ir.assert_structural_equal(whole["partition"], alone)


def test_a_reshape_on_the_host_runs_no_kernel() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 12, 12), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            flat = builder.emit(R.reshape(x, (8, 144)))
            out = builder.emit_output(R.nn.relu(flat))
        builder.emit_func_output(out)
    module = builder.get()
    lowered = lower(module, TARGET)
    assert "vm.builtin.reshape" in lowered["main"].script()
    array = np.random.default_rng(0).standard_normal((1, 8, 12, 12)).astype("float32")
    np.testing.assert_array_equal(run(module, [array])[0], np.maximum(array, 0).reshape(8, 144))


def test_what_tvm_cannot_fuse_is_named() -> None:
    module = partition([f(8, 20)], lambda bb, x: R.nn.relu(bb.emit(R.sort(x, axis=1))))
    with pytest.raises(CodegenError, match=r"one kernel of sort, nn\.relu"):
        lower(module, TARGET)


def test_what_has_no_kernel_is_named() -> None:
    module = partition([((8,), "int64")], lambda bb, x: R.nonzero(x))
    with pytest.raises(CodegenError, match="nonzero"):
        lower(module, TARGET)


def test_the_target_has_the_threads_of_the_deployment() -> None:
    assert int(cpu_target(3).attrs["num-cores"]) == 3


@pytest.mark.parametrize("scheduled", [False, True])
def test_baseline_fuses_and_gives_the_same(scheduled: bool) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 12, 12), "float32"))
    w = relax.Var("w", relax.TensorType((8, 8, 3, 3), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            conv = builder.emit(R.nn.conv2d(x, w, padding=(1, 1)))
            out = builder.emit_output(R.nn.relu(conv))
        builder.emit_func_output(out)
    module = builder.get()
    lowered = baseline_module(module, TARGET, scheduled=scheduled)
    assert len(kernels(lowered)) == 1
    arrays = random_arrays([f(1, 8, 12, 12), f(8, 8, 3, 3)])
    executable = tvm.compile(lowered, target=TARGET, relax_pipeline=tvm.transform.Sequential([]))
    got = relax.VirtualMachine(executable, tvm.cpu())["main"](*[tvm.runtime.tensor(a) for a in arrays]).numpy()
    np.testing.assert_allclose(got, run(module, arrays)[0], rtol=1e-4, atol=1e-4)


def test_backend_describes_itself() -> None:
    backend = TVMBackend()
    assert backend.availability().available
    assert backend.version().startswith(tvm.__version__)
    assert backend.configuration()["tuning"] == "none"
    assert (backend.name, backend.style) == ("tvm", "native")
