"""One ONNX node test as Collage places it: the fewest partitions on any of the CPU backends, each of them checked
against reference values as measuring does, compiled to one executable and run.

Candidates are not timed. A candidate that does not compile, or gives wrong numbers, is left out and the search is
repeated, as it would be after a measurement.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx

#: The CPU backends, in the order in which they are preferred.
BACKENDS = ("openvino", "onnxruntime", "onednn", "winograd", "tvm")
_ATTEMPTS = 8


def passes_onnx_runtime(model: onnx.ModelProto, inputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """Why ONNX Runtime does not pass a node test; "" when it does."""
    import onnxruntime

    from benchmarks.onnx_node_tests import compare

    model, feeds, expected = in_types_of_numpy(model, inputs, expected)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        results = session.run(None, feeds)
    except Exception as error:  # whatever it raises: the test is outside of what is asked
        return f"ONNX Runtime does not run it: {str(error).splitlines()[0][:120]}"
    if not all(isinstance(result, np.ndarray | np.generic) for result in results):
        return "its results are no tensors"
    difference = compare([np.asarray(result) for result in results], expected, 1e-3, 1e-5)
    return f"ONNX Runtime: {difference}" if difference else ""


def in_types_of_numpy(
    model: onnx.ModelProto, inputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """The model, its inputs and outputs as ONNX Runtime's Python interface takes them. It knows no arrays of bfloat16,
    of floats of eight bits, of integers of four: such inputs become constants, and such results are cast to float32,
    which holds them exactly.
    """
    result, feeds, wanted = onnx.ModelProto(), {}, []
    result.CopyFrom(model)
    del result.graph.input[:]
    for info, array in zip(model.graph.input, inputs, strict=True):
        if is_of_numpy(array):
            feeds[info.name] = array
            result.graph.input.append(info)
        else:
            result.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
    for info, array in zip(result.graph.output, expected, strict=True):
        wanted.append(array if is_of_numpy(array) else array.astype(np.float32))
        if not is_of_numpy(array):
            wide = f"{info.name}_wide"
            result.graph.node.append(onnx.helper.make_node("Cast", [info.name], [wide], to=onnx.TensorProto.FLOAT))
            info.CopyFrom(onnx.helper.make_tensor_value_info(wide, onnx.TensorProto.FLOAT, array.shape))
    return result, feeds, wanted


def is_of_numpy(array: np.ndarray) -> bool:
    """Whether an array has a type that NumPy itself knows."""
    return array.dtype.isbuiltin == 1


def run_placed(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model as Collage would ship it.

    Raises
    ------
    CollageError
        It cannot be loaded, nothing covers it, or nothing that covers it gives right numbers.
    """
    import collage
    from collage.graph.from_relax import read_graph
    from collage.measure.reference import ReferenceRun
    from collage.rules.base import PartitionSpec
    from collage.rules.gather import gather_candidates

    shapes = {info.name: array.shape for info, array in zip(model.graph.input, inputs, strict=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = collage.load(model, shapes)
    graph = read_graph(module)
    backends = _available()
    given = [array for array in inputs]
    expected = ReferenceRun(module, graph, 1, given).outputs
    if not graph.coverable:
        return expected
    rules = {name: backend.partition_rule for name, backend in backends.items()}
    candidates = gather_candidates(graph, [PartitionSpec(rule, name) for name, rule in rules.items()])
    return _shipped(module, graph, candidates, backends, given, expected)


@cache
def _available() -> dict[str, Any]:
    from collage import plugins

    loaded = {name: plugins.load("backends", name) for name in BACKENDS}
    return {name: backend for name, backend in loaded.items() if backend.availability().available}


def _shipped(
    module: Any,
    graph: Any,
    candidates: Any,
    backends: Mapping[str, Any],
    inputs: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
) -> list[np.ndarray]:
    from collage.compile.build import build
    from collage.compile.rewrite import apply
    from collage.cost.cost import Cost
    from collage.errors import CollageError, last_line
    from collage.graph.candidates import HOST
    from collage.measure.check import wrong_numbers
    from collage.measure.protocol import Protocol
    from collage.search import CostTable, SearchProblem
    from searchers.dijkstra import DijkstraSearcher

    invalid: dict[Any, str] = {}
    reason = ""
    for _ in range(_ATTEMPTS):

        def estimate(asked: Sequence[Any]) -> list[Cost]:
            return [Cost.invalid(invalid[c]) if c in invalid else Cost(1.0) for c in asked]

        priorities = {name: position for position, name in enumerate(BACKENDS)}
        problem = SearchProblem(graph, candidates, CostTable(estimate), {}, priorities)
        chosen = DijkstraSearcher().search(problem).candidates
        used = {name: backends[name] for name in sorted({c.backend for c in chosen} - {HOST})}
        try:
            compiled = build(apply(module, graph, chosen, backends), used.values(), threads=1)
            found = compiled(*inputs)
            results = [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]
            reason = wrong_numbers(results, list(expected), Protocol().tolerance) or ""
            if not reason:
                return results
        except Exception as error:  # whatever an engine raises makes its candidate Invalid
            reason = last_line(error)
        least = min((c.backend for c in chosen if c.backend != HOST), key=BACKENDS.index)
        invalid.update((c, reason) for c in chosen if c.backend == least)
    raise CollageError(f"no placement gives right numbers: {reason}")
