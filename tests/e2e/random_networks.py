"""Random Relax networks with tuples, several results, shared and nested values, of rows that are fixed late.

Every operator is one that TVM has, and carries its meaning in numpy, so that nothing of what is tested says what is
right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

#: What an expression is in numpy, given the inputs.
Meaning = Callable[[], Any]

UNARY: dict[str, tuple[Any, Any]] = {
    "relu": (op.nn.relu, lambda a: np.maximum(a, 0)),
    "abs": (op.abs, np.abs),
    "negative": (op.negative, np.negative),
    "sigmoid": (op.sigmoid, lambda a: 1 / (1 + np.exp(-a))),
    "tanh": (op.tanh, np.tanh),
}
BINARY: dict[str, tuple[Any, Any]] = {
    "add": (op.add, np.add),
    "subtract": (op.subtract, np.subtract),
    "maximum": (op.maximum, np.maximum),
}
#: Wider tensors are not joined further.
WIDEST = 48


@dataclass(frozen=True)
class Value:
    """A tensor of `rows` times n by `columns`, or a tuple of values."""

    expr: Any
    array: Any
    rows: int = 0
    columns: int = 0


@dataclass(frozen=True)
class Network:
    """A module whose rows are symbolic, what its inputs are to be, and what it returns, flat."""

    module: Any
    shapes: dict[str, tuple[int, ...]]
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


def random_network(seed: int, operators: int = 14) -> Network:
    """The network of a seed, of about so many operators."""
    return _Growing(random.Random(seed), operators).network()


class _Growing:
    def __init__(self, rng: random.Random, operators: int) -> None:
        self.rng = rng
        self.operators = operators
        self.builder = relax.BlockBuilder()
        self.n = rng.choice((1, 2, 4))
        numbers = np.random.default_rng(rng.randrange(1 << 30))
        self.draw = lambda *shape: numbers.standard_normal(shape).astype("float32")
        self.tensors: list[Value] = []
        self.tuples: list[Value] = []

    def network(self) -> Network:
        rng, rows = self.rng, tirx.Var("n", "int64")
        params, shapes, inputs = [], {}, []
        for name in ("x", "y")[: rng.randint(1, 2)]:
            columns = rng.choice((4, 6, 8))
            params.append(relax.Var(name, relax.TensorType((rows, columns), "float32")))
            shapes[name] = (self.n, columns)
            inputs.append(self.draw(self.n, columns))
            self.tensors.append(Value(params[-1], inputs[-1], 1, columns))
        steps = (self.unary, self.binary, self.constant, self.matmul, self.bind, self.nest, self.project, self.split)
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for _ in range(rng.randint(2, self.operators)):
                    rng.choice((*steps, self.concat, self.concat, self.bind))()
                result = self.result()
                output = self.builder.emit_output(result.expr)
            self.builder.emit_func_output(output)
        return Network(self.builder.get(), shapes, inputs, list(_flat(result.array)))

    def tensor(self) -> Value:
        """One of those there are, later ones more often."""
        return self.tensors[max(self.rng.randrange(len(self.tensors)), self.rng.randrange(len(self.tensors)))]

    def emit(self, expr: Any, array: Any, rows: int, columns: int) -> None:
        self.tensors.append(Value(self.builder.emit(expr), array, rows, columns))

    def unary(self) -> None:
        relax_op, numpy_op = UNARY[self.rng.choice(list(UNARY))]
        a = self.tensor()
        self.emit(relax_op(a.expr), numpy_op(a.array), a.rows, a.columns)

    def binary(self) -> None:
        relax_op, numpy_op = BINARY[self.rng.choice(list(BINARY))]
        a = self.tensor()
        b = self.rng.choice([t for t in self.tensors if (t.rows, t.columns) == (a.rows, a.columns)])
        self.emit(relax_op(a.expr, b.expr), numpy_op(a.array, b.array), a.rows, a.columns)

    def constant(self) -> None:
        relax_op, numpy_op = BINARY[self.rng.choice(list(BINARY))]
        a = self.tensor()
        other = self.draw() if self.rng.random() < 0.5 else self.draw(a.columns)
        self.emit(relax_op(a.expr, relax.const(other)), numpy_op(a.array, other), a.rows, a.columns)

    def matmul(self) -> None:
        a, columns = self.tensor(), self.rng.choice((4, 6, 8))
        weight = self.draw(a.columns, columns) / np.float32(np.sqrt(a.columns))
        self.emit(op.matmul(a.expr, relax.const(weight)), a.array @ weight, a.rows, columns)

    def fields(self) -> list[Value]:
        """One to three tensors that can be joined along some axis, with repetitions."""
        a = self.tensor()
        alike = [t for t in self.tensors if t.rows == a.rows]
        return [a, *(self.rng.choice(alike) for _ in range(self.rng.randint(0, 2)))]

    def bind(self) -> None:
        self.tuple_of(self.fields())

    def nest(self) -> None:
        self.tuple_of([*self.rng.sample(self.tuples, min(len(self.tuples), 2)), self.tensor()])

    def tuple_of(self, fields: list[Value]) -> None:
        value = relax.Tuple([f.expr for f in fields])
        self.tuples.append(Value(self.builder.emit(value), fields))

    def project(self) -> None:
        if not self.tuples:
            return
        pair = self.rng.choice(self.tuples)
        position = self.rng.randrange(len(pair.array))
        field, var = pair.array[position], self.builder.emit(relax.TupleGetItem(pair.expr, position))
        kept = Value(var, field.array, field.rows, field.columns)
        (self.tensors if field.columns else self.tuples).append(kept)

    def split(self) -> None:
        a = self.rng.choice([t for t in self.tensors if t.columns > 1])
        parts = self.rng.choice([p for p in (2, 3, 4, a.columns) if a.columns % p == 0])
        arrays = np.split(a.array, parts, axis=1)
        whole = self.builder.emit(op.split(a.expr, parts, axis=1))
        columns = a.columns // parts
        self.tuples.append(Value(whole, [Value(None, array, a.rows, columns) for array in arrays]))
        for position, array in enumerate(arrays):
            if self.rng.random() < 0.5:
                self.emit(relax.TupleGetItem(whole, position), array, a.rows, columns)

    def concat(self) -> None:
        """Of an inline tuple, or of one that is bound and that others may read."""
        fit = [t for t in self.tuples if _joinable(t)]
        if fit and self.rng.random() < 0.7:
            pair = self.rng.choice(fit)
            given, fields = pair.expr, pair.array
        else:
            fields = self.fields()
            given = relax.Tuple([f.expr for f in fields])
        wide = sum(f.columns for f in fields)
        tall = sum(f.rows for f in fields)
        arrays = [f.array for f in fields]
        if wide <= WIDEST and (len({f.columns for f in fields}) > 1 or self.rng.random() < 0.6):
            self.emit(op.concat(given, 1), np.concatenate(arrays, 1), fields[0].rows, wide)
        elif len({f.columns for f in fields}) == 1 and tall <= 8:
            self.emit(op.concat(given, 0), np.concatenate(arrays, 0), tall, fields[0].columns)

    def result(self) -> Value:
        """Later values, mostly; sometimes a value twice, an input, or a tuple as it is bound."""
        rng = self.rng
        fields = [self.tensors[-1], *(self.tensor() for _ in range(rng.randint(0, 3)))]
        if self.tuples and rng.random() < 0.5:
            fields.append(rng.choice(self.tuples))
        if len(fields) == 1:
            return fields[0]
        return Value(relax.Tuple([f.expr for f in fields]), fields)


def _joinable(pair: Value) -> bool:
    return all(f.columns for f in pair.array) and len({f.rows for f in pair.array}) == 1


def _flat(array: Any) -> Any:
    if isinstance(array, list):
        for field in array:
            yield from _flat(field.array)
    else:
        yield array
