"""What no converter translates, as an opaque node: its function, and the types of its results.

Types come from ONNX's shape inference, then from ONNX Runtime's; where a shape is still open and cannot depend on
data, from runs on samples. What depends on data in its shape, and all that reads it, is collected in one part
(`OpaquePart`) that becomes one node: no engine's boundary then has a shape that is not known. What gives a value of a
type without arrays, such as a float of eight bits, becomes part of each node that reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, numpy_helper
from tvm import relax

from collage.annotations.opaque import NARROW, model_of, names_read, operator_sets, renamed, sub_graphs
from collage.errors import UnsupportedOperatorError, last_line
from collage.frontend.onnx.file import DTYPES, describe_node, read_tensor
from collage.frontend.onnx.inference import Extents, extents, inferred, write_rank
from collage.frontend.onnx.loop_shapes import loop_shapes
from collage.frontend.values import constant, dtype_of, static_shape, value_of

#: Tensors in sub-graphs beyond so many bytes are operands of the node, as weights are, instead of part of its text.
_LARGE = 1024
#: Constants up to so many bytes are known while shapes are inferred.
_KNOWN = 1 << 16


@dataclass(frozen=True)
class Deferred:
    """A value inside the part of the network that is one opaque node, by its name there."""

    name: str


@dataclass(frozen=True, eq=False)
class Producer:
    """A node of the model whose results are taken along by those that read them; fields as of `OpaquePart.add`."""

    node: NodeProto
    lookup: Callable[[str], Any]
    opsets: Mapping[str, int]


@dataclass(frozen=True)
class Narrow:
    """A value of a type in `NARROW`, which Relax does not have: which result of what.

    TVM converts floats of eight bits otherwise than ONNX, and packs integers of four.
    """

    producer: Producer
    position: int


def narrow_constant(tensor: TensorProto, folder: Path, opsets: Mapping[str, int]) -> Narrow:
    """A stored tensor of a narrow type."""
    stored = numpy_helper.from_array(read_tensor(tensor, folder))
    node = onnx.helper.make_node("Constant", [], ["value"], value=stored)

    def reads_nothing(name: str) -> Any:
        raise AssertionError(name)

    return Narrow(Producer(node, reads_nothing, opsets), 0)


class OpaquePart:
    """Nodes of ONNX that become one opaque node.

    Parameters
    ----------
    folder
        Of the model's external data.
    """

    def __init__(self, folder: Path) -> None:
        self.nodes: list[NodeProto] = []
        self._first: NodeProto | None = None
        self._folder = folder
        self._inputs: dict[Any, str] = {}
        self._opsets: dict[str, int] = {}
        self._taken: dict[Producer, list[Deferred | None]] = {}
        self._count = 0

    def copy(self) -> OpaquePart:
        """One that grows apart from this."""
        result = OpaquePart(self._folder)
        result.nodes, result._first, result._count = list(self.nodes), self._first, self._count
        result._inputs, result._opsets, result._taken = dict(self._inputs), dict(self._opsets), dict(self._taken)
        return result

    def add(self, node: NodeProto, lookup: Callable[[str], Any], opsets: Mapping[str, int]) -> list[Deferred | None]:
        """Append a node of the model; its outputs as values of the part.

        Parameters
        ----------
        lookup
            Gives the value that the model calls by a name: a Relax expression, `Deferred` when it is of this part, or
            `Narrow`, whose node is added before.
        opsets
            The model's, by domain.
        """
        self._first = self._first or node
        self._opsets |= {domain: opsets.get(domain, 1) for domain in operator_sets([node])}
        names = {name: self._name(lookup(name)) for name in names_read(node)}
        names |= {name: self._fresh() for name in node.output if name}
        copy = renamed(node, names, lambda _: self._fresh())
        self._take_out_weights(copy)
        self.nodes.append(copy)
        return [Deferred(names[name]) if name else None for name in node.output]

    def function(self, outputs: Sequence[Deferred]) -> FunctionProto:
        """The part as a function that returns some of its values."""
        wanted = [value.name for value in outputs]
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in sorted(self._opsets.items())]
        return onnx.helper.make_function("collage", "part", list(self._inputs.values()), wanted, self.nodes, imports)

    @property
    def first(self) -> NodeProto:
        """The first node, as the model has it."""
        assert self._first is not None
        return self._first

    @property
    def operands(self) -> list[Any]:
        """The Relax expressions that the function takes."""
        return list(self._inputs)

    def _name(self, value: Any) -> str:
        if value is None:  # what a function of the model takes and this call leaves out
            return ""
        if isinstance(value, Deferred):
            return value.name
        if isinstance(value, Narrow):
            given = self._take(value.producer)[value.position]
            assert given is not None
            return given.name
        return self._inputs.setdefault(value, f"i{len(self._inputs)}")

    def _take(self, producer: Producer) -> list[Deferred | None]:
        if producer not in self._taken:
            self._taken[producer] = self.add(producer.node, producer.lookup, producer.opsets)
        return self._taken[producer]

    @property
    def takes_narrow(self) -> bool:
        """Whether it has nodes that were taken along."""
        return bool(self._taken)

    def _fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _take_out_weights(self, node: NodeProto) -> None:
        """Large tensors inside sub-graphs become operands; small ones that are stored elsewhere are read."""
        for graph in sub_graphs(node):
            for tensor in list(graph.initializer):
                array = read_tensor(tensor, self._folder)
                graph.initializer.remove(tensor)
                if array.nbytes > _LARGE:
                    self._inputs[constant(array)] = tensor.name
                else:
                    graph.initializer.append(numpy_helper.from_array(array, tensor.name))
            for inner in list(graph.node):
                if inner.op_type == "Constant" and inner.attribute[0].name == "value":
                    array = read_tensor(inner.attribute[0].t, self._folder)
                    if array.nbytes > _LARGE:
                        graph.node.remove(inner)
                        self._inputs[constant(array)] = inner.output[0]
                self._take_out_weights(inner)


def result_types(
    node: NodeProto, function: FunctionProto, operands: Sequence[Any], declared: Sequence[Extents | None] = ()
) -> list[Any]:
    """The Relax types of a function's results; one whose shape depends on data has no shape, or only a rank. A narrow
    type is None.

    Parameters
    ----------
    node
        Of the model, for messages.
    declared
        What the model says of the shapes of the results: ranks that do not follow are taken from it.

    Raises
    ------
    UnsupportedOperatorError
        ONNX Runtime does not run the function, or a result is no tensor of numbers.
    """
    subject = describe_node(node)
    for operand in operands:
        if dtype_of(operand.ty) not in DTYPES:
            raise UnsupportedOperatorError(f"{subject}: an operand has dtype {dtype_of(operand.ty)}: not supported")
    arrays = [value_of(operand) for operand in operands]
    known = {i: array for i, array in enumerate(arrays) if array is not None and array.nbytes <= _KNOWN}
    model = model_of(function, [(static_shape(o.ty) or (), dtype_of(o.ty)) for o in operands], known)
    typed = inferred(model, subject)
    for value, shape in zip(typed.graph.output, declared, strict=False):
        if shape is not None and value.type.tensor_type.elem_type and extents(value.type.tensor_type) is None:
            write_rank(value.type.tensor_type, len(shape))
    session = _session(subject, typed)
    shapes: list[Extents | None] = []
    dtypes = []
    for value, info in zip(typed.graph.output, session.get_outputs(), strict=True):
        kind = value.type.WhichOneof("value") or "tensor_type"
        if kind != "tensor_type" or not info.type.startswith("tensor("):
            raise UnsupportedOperatorError(f"{subject}: it gives a {info.type}, which is no tensor: not supported")
        dtypes.append(_DTYPE_OF_RUNTIME.get(info.type, info.type))
        if dtypes[-1] not in DTYPES and value.type.tensor_type.elem_type not in NARROW:
            raise UnsupportedOperatorError(f"{subject}: a result has dtype {dtypes[-1]}: not supported")
        shape = [extent if isinstance(extent, int) else None for extent in info.shape]
        written = extents(value.type.tensor_type)
        complete = written is not None and None not in written
        shapes.append(written if complete else shape or written)  # of what it does not know, ONNX Runtime says []
    if function.node[0].op_type == "Loop" and len(function.node) == 1:
        shapes = loop_shapes(function, model, subject) or shapes
    if any(shape is None or None in shape for shape in shapes):
        shapes = _closed(subject, function, session, model, shapes)
    return [_type(shape, dtype) if dtype in DTYPES else None for shape, dtype in zip(shapes, dtypes, strict=True)]


def computed(node: NodeProto, function: FunctionProto, operands: Sequence[Any]) -> list[np.ndarray]:
    """The results of a function whose operands are constants.

    Raises
    ------
    UnsupportedOperatorError
        ONNX Runtime does not run it.
    """
    subject = describe_node(node)
    arrays = {i: array for i, operand in enumerate(operands) if (array := value_of(operand)) is not None}
    model = model_of(function, [(array.shape, str(array.dtype)) for array in arrays.values()], arrays)
    try:
        return [np.asarray(array) for array in _session(subject, inferred(model, subject)).run(None, {})]
    except Exception as error:  # as in `_session`
        raise UnsupportedOperatorError(f"{subject}: ONNX Runtime does not run it: {last_line(error)}") from error


@cache
def runtime_operators() -> frozenset[tuple[str, str]]:
    """(domain, operator) of all that ONNX Runtime has a kernel for, or a definition; nothing where it is missing."""
    if find_spec("onnxruntime") is None:
        return frozenset()
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    defined = (
        schema for schema in onnx.defs.get_all_schemas() if schema.has_function or schema.has_context_dependent_function
    )
    kernels = ((kernel.domain, kernel.op_name) for kernel in state.get_all_opkernel_def())
    return frozenset((*kernels, *((schema.domain, schema.name) for schema in defined)))


def may_be_opaque(node: NodeProto) -> bool:
    """Whether a node can become opaque, as far as its name tells: ONNX Runtime knows the operator, and its operands and
    results may be tensors of numbers.
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    return (domain, node.op_type) in runtime_operators() and is_of_tensors(node)


def is_of_tensors(node: NodeProto) -> bool:
    """Whether the operands and results of an operator may be tensors of numbers, all of them."""
    try:
        schema = onnx.defs.get_schema(node.op_type, "" if node.domain == "ai.onnx" else node.domain)
    except onnx.defs.SchemaError:
        return True
    return all(any(_is_numeric(ty) for ty in formal.types) for formal in (*schema.inputs, *schema.outputs))


def _is_numeric(ty: str) -> bool:
    return ty.startswith("tensor(") and ty != "tensor(string)"


_DTYPE_OF_RUNTIME: Mapping[str, str] = {
    **{f"tensor({dtype})": dtype for dtype in DTYPES},
    "tensor(float)": "float32",
    "tensor(double)": "float64",
}


def _session(subject: str, model: ModelProto) -> Any:
    if find_spec("onnxruntime") is None:
        raise UnsupportedOperatorError(
            f"{subject} runs on ONNX Runtime, which is not installed: `pip install collage-tvm[onnxruntime]`"
        )
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the bindings raise a dozen unrelated types, all direct children of Exception
        raise UnsupportedOperatorError(f"{subject}: ONNX Runtime does not take it: {last_line(error)}") from error


def _closed(
    subject: str, function: FunctionProto, session: Any, model: ModelProto, shapes: Sequence[Extents | None]
) -> list[Any]:
    """The shapes with what samples tell of them. ONNX's inference knows what its own operators give: what is open there
    depends on data, and only ranks are asked for. Of operators of other domains, runs that agree tell the shape.
    """
    foreign = all(node.domain not in ("", "ai.onnx") for node in function.node)
    if not foreign and None not in shapes:
        return list(shapes)
    samples = [run for seed in range(3) if (run := _sampled(subject, session, model, seed)) is not None]
    ranks: list[Any] = [None] * len(shapes)
    if samples:
        ranks = [[None] * len(shape) for shape in samples[0]]
    if foreign and len(samples) > 1 and all(run == samples[0] for run in samples):
        return list(samples[0])
    return [rank if shape is None else shape for shape, rank in zip(shapes, ranks, strict=True)]


def _sampled(subject: str, session: Any, model: ModelProto, seed: int) -> list[list[int]] | None:
    """The shapes of the results of one run; None where the sample is not legal."""
    rng = np.random.default_rng(seed)
    feeds = {value.name: _sample(value.type.tensor_type, rng, seed) for value in model.graph.input}
    try:
        return [list(array.shape) for array in session.run(None, feeds)]
    except Exception as error:  # the bindings raise a dozen unrelated types, all direct children of Exception
        logging.getLogger(__name__).debug("%s: it does not run on sample %d: %s", subject, seed, last_line(error))
        return None


def _sample(tensor: onnx.TypeProto.Tensor, rng: np.random.Generator, seed: int) -> np.ndarray:
    shape = [int(d.dim_value) for d in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if tensor.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
        return np.asarray(rng.standard_normal(shape), dtype)
    whole = rng.integers(0, 2, shape) if seed > 1 else np.full(shape, seed + 1)  # ones and twos are often legal
    return np.asarray(whole, dtype)


def _type(shape: Sequence[int | None] | None, dtype: str) -> Any:
    if shape is None:
        return relax.TensorType(dtype=dtype)
    if None in shape:
        return relax.TensorType(dtype=dtype, ndim=len(shape))
    return relax.TensorType(list(shape), dtype)
