"""Relax modules become canonical too: helpers inlined, blocks merged, symbols bound, results flattened."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from frontend_cases import assert_canonical, batch_norm_weights, normal, operators, run
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from collage.errors import FrontendError, UnboundDimensionError
from collage.frontend import input_specs, load, output_specs


@I.ir_module
class Helpers:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tuple(
        R.Tensor((2, 3), "float32"), R.Tuple(R.Tensor((2, 3), "float32"))
    ):
        cls = Helpers
        with R.dataflow():
            a = cls.twice(x)
            R.output(a)
        with R.dataflow():
            b = R.nn.relu6(R.negative(a))
            c = R.squeeze(R.expand_dims(b, axis=0), axis=[0])
            unused = R.exp(a)
            R.output(b, c, unused)
        return (b, (c,))

    @R.function(private=True)
    def twice(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y


@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), z: R.Tensor(("n * 2", 3), "float32")) -> R.Tensor(
        ("n * 2", 3), "float32"
    ):
        with R.dataflow():
            both = R.concat((x, x), axis=0)
            y = R.add(both, z)
            R.output(y)
        return y


@I.ir_module
class Kernel:
    @T.prim_func(private=True, s_tir=True)
    def double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("double"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Kernel
        with R.dataflow():
            a = R.call_tir(cls.double, (R.const([1.0, 2.0, 3.0, 4.0], "float32"),), out_ty=R.Tensor((4,), "float32"))
            b = R.call_tir(cls.double, (x,), out_ty=R.Tensor((4,), "float32"))
            c = R.add(a, b)
            R.output(c)
        return c


@I.ir_module
class Branch:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
        if c:  # noqa: SIM108
            y = R.negative(x)
        else:
            y = R.exp(x)
        return y


@I.ir_module
class Public:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Public
        with R.dataflow():
            y = cls.other(x)
            R.output(y)
        return y

    @R.function
    def other(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return R.negative(x)


def test_helpers_blocks_and_nested_results() -> None:
    mod = load(Helpers)
    assert_canonical(mod)
    assert operators(mod) == {"add": 1, "negative": 1, "clip": 1, "Tuple": 1}
    assert [spec.name for spec in output_specs(mod)] == ["output0", "output1"]
    x = normal(2, 3)
    first, second = run(mod, {"x": x})
    np.testing.assert_allclose(first, np.clip(-2 * x, 0, 6), rtol=1e-6)
    np.testing.assert_array_equal(first, second)


def test_the_module_given_is_left_alone() -> None:
    before = Helpers.script()
    load(Helpers)
    assert Helpers.script() == before


def test_loading_twice_changes_nothing() -> None:
    once = load(Helpers)
    tvm.ir.assert_structural_equal(load(once), once)


def test_symbolic_dimensions_are_bound_through_expressions() -> None:
    mod = load(Symbolic, {"x": (2, 3)})
    assert_canonical(mod)
    assert [spec.shape for spec in (*input_specs(mod), *output_specs(mod))] == [(2, 3), (4, 3), (4, 3)]
    with pytest.raises(UnboundDimensionError, match=r"dimension 0 \('n'\) of input 'x'"):
        load(Symbolic)
    with pytest.raises(FrontendError, match="dimension 0 is 4, not 5"):
        load(Symbolic, {"x": (2, 3), "z": (5, 3)})


def test_kernels_stay_unless_they_are_constant() -> None:
    mod = load(Kernel)
    assert operators(mod) == {"call_tir": 1, "add": 1}
    np.testing.assert_allclose(run(mod, {"x": np.ones(4, "float32")})[0], [4, 6, 8, 10])


def test_weights_in_an_attribute_are_bound() -> None:
    """As TVM's importers leave them with `keep_params_in_input`."""

    @I.ir_module
    class Detached:
        @R.function
        def main(
            x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 5), "float32"), s: R.Tensor((5,), "float32")
        ) -> R.Tensor((2, 5), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.multiply(R.matmul(x, w), s)
                R.output(y)
            return y

    w, s = normal(4, 5), batch_norm_weights(5)["s"]
    mod = tvm.IRModule({"main": Detached["main"].with_attr("params", [tvm.runtime.tensor(w), tvm.runtime.tensor(s)])})
    canonical = load(mod)
    assert_canonical(canonical)
    assert operators(canonical) == {"matmul": 1}
    assert [spec.name for spec in input_specs(canonical)] == ["x"]
    x = normal(2, 4, seed=3)
    np.testing.assert_allclose(run(canonical, {"x": x})[0], x @ w * s, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_partitioned_is_refused() -> None:
    with pytest.raises(FrontendError, match="branch"):
        load(Branch)
    with pytest.raises(FrontendError, match="'main' calls the function 'other'"):
        load(Public)
    with pytest.raises(FrontendError, match="no Relax function 'main'"):
        load(tvm.IRModule({"f": Public["other"]}))


@I.ir_module
class TiedByZero:
    @R.function
    def main(x: R.Tensor((2,), "float32"), rate: R.Tensor((), "int64"), scale: R.Tensor((2,), "float32")) -> R.Tuple(
        R.Tensor((2,), "float32"), R.Tensor((2,), "float32")
    ):
        with R.dataflow():
            nothing = R.astype(R.multiply(rate, R.const(0, "int64")), "float32")
            y = R.add(R.nn.relu(x), nothing)
            z = R.multiply(scale, R.const(0.0, "float32"))
            R.output(y, z)
        return (y, z)


def test_an_integer_times_zero_is_zero_and_a_float_may_be_infinite() -> None:
    module = load(TiedByZero)
    assert operators(module) == {"nn.relu": 1, "multiply": 1, "Tuple": 1}, "what may be infinite times 0 stays"
    values = {"x": np.array([-1, 2], np.float32), "rate": np.array(16000), "scale": np.ones(2, np.float32)}
    np.testing.assert_array_equal(run(module, values), [[0, 2], [0, 0]])
