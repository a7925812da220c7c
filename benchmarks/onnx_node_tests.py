"""The ONNX project's own node tests, run through Collage on one backend at a time.

    python -m benchmarks.onnx_node_tests --backend openvino [--match REGEX] [--part 0/3] [--out FILE]

Each test is a model of one operator with inputs and expected outputs. A test is loaded by `collage.load`. On the `tvm`
backend TVM compiles the module; on a graph backend the exporter and the engine run it, if the backend's predicate takes
every call (otherwise the test is *unsupported*, with the reason). What counts is that no test gives a wrong result
silently.

`--backend collage` places each test on all CPU backends together, by the fewest partitions, and reports of the tests
that ONNX Runtime passes, sequences, optional values and strings aside, how many are right (`GOAL`).

Outcomes: pass; unsupported (refused, with a reason, by the frontend or by the backend); error (accepted, then failed
loudly); wrong (accepted, and the result differs); crash (the process died).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.onnx_outcomes import Outcome, goal_report, summarise
from collage.without_torch import import_tvm_without_torch

BACKENDS = ("tvm", "openvino", "onnxruntime", "collage")
#: Operators whose results are random by definition.
_RANDOM = re.compile("bernoulli|training_dropout|dropout_default_mask|random")
#: The same by operator; dropout in training is one.
_RANDOM_OPERATORS = frozenset(
    ("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
#: Inputs that describe shapes, axes or counts. Networks give them as constants; the tests give them at run time, and a
#: compiler with static shapes can only refuse those. They are bound to the test's values.
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_PARAMETERS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze", "TopK", "Split", "CumSum", "Trilu"), (1,)),
    **dict.fromkeys(("Pad", "Resize", "OneHot", "Slice", "Upsample", "CenterCropPad"), (1, 2, 3, 4)),
    **dict.fromkeys((f"Reduce{kind}" for kind in _REDUCTIONS), (1,)),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Clip": (1, 2),
}


def node_tests() -> list[Any]:
    """All node tests of the installed onnx package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return list(load_model_tests(kind="node"))


def run_test(case: Any, backend: str) -> Outcome:
    """Run one test on one backend. Whatever a library raises is an outcome, not a failure of the runner."""
    import collage
    from benchmarks.onnx_placed import passes_onnx_runtime
    from collage.errors import CodegenError, CollageError, FrontendError

    if _RANDOM.search(case.name) and backend != "collage":
        return Outcome(case.name, "unsupported", "runner: the result is random by definition")
    if backend == "collage":
        return run_placed_test(case)
    for inputs, outputs in case.data_sets:
        if not all(isinstance(value, np.ndarray | np.generic) for value in (*inputs, *outputs)):
            return Outcome(case.name, "unsupported", "runner: sequences, maps and optional values are no tensors")
        model, inputs = bind_parameters(case.model, [np.asarray(value) for value in inputs])
        try:
            module = collage.load(model)
            reason = refusal(module, backend)
            if reason is not None:
                return Outcome(case.name, "unsupported", f"backend: {reason}")
            results = run_module(module, backend, inputs)
        except CollageError as error:
            kind = "unsupported" if isinstance(error, FrontendError | CodegenError) else "error"
            return Outcome(case.name, kind, f"{type(error).__name__}: {error}"[:400])
        except Exception as error:  # a defect below: recorded, counted, and the next test runs
            lines = [line for line in str(error).splitlines() if line.strip()]
            return Outcome(case.name, "error", f"{type(error).__name__}: {lines[-1] if lines else ''}"[:400])
        expected = [np.asarray(value) for value in outputs]
        difference = compare(results, expected, case.rtol, case.atol)
        if difference and backend == "onnxruntime" and (own := passes_onnx_runtime(model, inputs, expected)):
            return Outcome(case.name, "unsupported", f"backend: {own}")
        if difference:
            return Outcome(case.name, "wrong", difference)
    return Outcome(case.name, "pass")


def run_placed_test(case: Any) -> Outcome:
    """Run one test as Collage places it on all CPU backends; "out" is what the goal does not count."""
    from benchmarks.onnx_placed import in_types_of_numpy, is_of_numpy, passes_onnx_runtime, run_placed
    from collage.errors import CollageError, FrontendError, NoCoverError

    outcome = partial(Outcome, case.name)
    if any(node.op_type in _RANDOM_OPERATORS for node in case.model.graph.node):
        return outcome("out", "the result is random by definition")
    for inputs, outputs in case.data_sets:
        if not all(isinstance(value, np.ndarray | np.generic | onnx.TensorProto) for value in (*inputs, *outputs)):
            return outcome("out", "sequences, maps and optional values")
        arrays, expected = ([_array(value) for value in values] for values in (inputs, outputs))
        if any(array.dtype.kind in "OUS" for array in (*arrays, *expected)):
            return outcome("out", "strings")
        if _handles_no_tensors(case.model.graph):
            return outcome("out", "sequences, maps and optional values")
        outcome = partial(Outcome, case.name, narrow=not all(map(is_of_numpy, (*arrays, *expected))))
        if reason := passes_onnx_runtime(case.model, arrays, expected):
            return outcome("out", reason)
        operators = "+".join(dict.fromkeys(node.op_type for node in case.model.graph.node))
        try:
            model, feeds, _ = in_types_of_numpy(case.model, arrays, expected)
            results = run_placed(model, list(feeds.values()))
            results = [
                got.astype(want.dtype) if not is_of_numpy(want) else got
                for got, want in zip(results, expected, strict=True)
            ]
        except (FrontendError, NoCoverError) as error:
            return outcome("unsupported", f"{operators}: {type(error).__name__}: {error}"[:400])
        except CollageError as error:
            return outcome("error", f"{operators}: {error}"[:400])
        except Exception as error:  # a defect: recorded, counted, and the next test runs
            return outcome("error", f"{operators}: {type(error).__name__}: {error}"[:400])
        if difference := compare(results, expected, max(case.rtol, 1e-3), max(case.atol, 1e-5)):
            return outcome("wrong", f"{operators}: {difference}")
    return outcome("pass")


def _array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _handles_no_tensors(graph: onnx.GraphProto) -> bool:
    """Whether sequences, optional values or strings occur inside a graph."""
    for node in graph.node:
        if any(word in node.op_type for word in ("Sequence", "Optional", "String")):
            return True
        if any(attribute.HasField("g") and _handles_no_tensors(attribute.g) for attribute in node.attribute):
            return True
    return False


def bind_parameters(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """The model with the inputs that describe shapes turned into initializers, and the inputs that are left."""
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    parameters = {
        name
        for node in model.graph.node
        for position, name in enumerate(node.input)
        if position in _PARAMETERS.get(node.op_type, ())
    }
    del bound.graph.input[:]
    left = []
    for info, value in zip(model.graph.input, inputs, strict=True):
        if info.name in parameters:
            bound.graph.initializer.append(numpy_helper.from_array(value, info.name))
        else:
            bound.graph.input.append(info)
            left.append(value)
    return bound, left


def refusal(module: Any, backend: str) -> str | None:
    """Why the backend does not take some call of the module; None when it takes all."""
    from tvm import relax

    from collage.backends.onnx.export import unsupported_reason
    from collage.backends.onnx.openvino import unsupported_by_openvino

    if backend == "tvm":
        return None
    check = {"openvino": unsupported_by_openvino, "onnxruntime": unsupported_reason}[backend]
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and (reason := check(binding.value)):
                return str(reason)
    if any(parameter not in relax.analysis.free_vars(module["main"].body) for parameter in module["main"].params):
        return "the result does not depend on every input"
    return None


def run_module(module: Any, backend: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a module whose every call the backend takes."""
    import tvm
    from tvm import relax

    from collage.backends.onnx.export import export_onnx
    from collage.backends.tvm import lower as tvm_lower
    from collage.runtime import engines

    tensors = [tvm.runtime.tensor(value) for value in inputs]
    if backend == "tvm":
        target = tvm_lower.cpu_target(1)
        lowered = tvm_lower.baseline_module(module, target, scheduled=True)
        executable = tvm.compile(lowered, target=target, relax_pipeline=tvm.transform.Sequential([]))
        vm = relax.VirtualMachine(executable, tvm.cpu())
        result = vm["main"](*tensors)
        return [value.numpy() for value in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]
    ty = module["main"].ret_ty
    fields = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
    outputs = [tvm.runtime.tensor(np.zeros([int(d) for d in field.shape.values], str(field.dtype))) for field in fields]
    engines.create(backend, export_onnx(module["main"]).SerializeToString(), {"threads": 1})(*tensors, *outputs)
    return [value.numpy() for value in outputs]


def compare(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float, atol: float) -> str:
    """How the results differ from the expected ones; empty when they agree.

    `rtol` and `atol` are the test's own. They are widened to a few units in the last place of the dtype (which they
    undercut for float16), and elements that nearly cancel are judged by the scale of the whole output.
    """
    if len(actual) != len(expected):
        return f"{len(actual)} outputs instead of {len(expected)}"
    for index, (got, want) in enumerate(zip(actual, expected, strict=True)):
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"output {index} is {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
        if not _close(got, want, rtol, atol):
            return f"output {index}: {got.ravel()[:6]} instead of {want.ravel()[:6]}"
    return ""


def _close(got: np.ndarray, want: np.ndarray, rtol: float, atol: float) -> bool:
    if got.dtype.kind in "biu":
        return bool(np.array_equal(got, want))
    if got.dtype.isbuiltin == 1:
        epsilon = float(np.finfo(got.dtype).eps)
    else:
        epsilon = 2.0**-7 if got.dtype.name == "bfloat16" else 0.0
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, float(finite.max(initial=0.0)))
    return bool(
        np.allclose(got, want, rtol=max(rtol, 4 * epsilon), atol=max(atol, 8 * epsilon * scale), equal_nan=True)
    )


def part_of(names: Sequence[str], index: int, count: int) -> list[str]:
    """One of `count` parts of the tests. A test stays in its part whatever tests come or go."""
    return [name for name in names if zlib.crc32(name.encode()) % count == index]


def run_all(backend: str, names: Sequence[str], time_limit_s: float = 300.0, kept: Path | None = None) -> list[Outcome]:
    """Run tests in worker processes. A worker that dies, or says nothing for `time_limit_s`, costs the test that it was
    at, and another one goes on.

    Parameters
    ----------
    kept
        A file of outcomes, one a line, to which new ones are appended. Tests that are in it are not run again.
    """
    known: dict[str, Outcome] = {}
    if kept is not None and kept.exists():
        known = {outcome.name: outcome for outcome in map(_outcome, kept.read_text().splitlines())}
    waiting = [name for name in names if name not in known]
    with kept.open("a") if kept is not None else contextlib.nullcontext() as file:
        while waiting:
            for outcome in _of_worker(backend, waiting, time_limit_s):
                known[outcome.name] = outcome
                if file is not None:
                    print(_line(outcome), file=file, flush=True)
            waiting = [name for name in waiting if name not in known]
    return [known[name] for name in names]


def _of_worker(backend: str, names: Sequence[str], time_limit_s: float) -> Iterator[Outcome]:
    """What one worker reports; of a test at which it ends, that it crashed."""
    command = [sys.executable, "-m", "benchmarks.onnx_node_tests", "--worker", "--backend", backend]
    left = iter(names)
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as worker,
    ):
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write("\n".join(names))
        worker.stdin.close()
        while True:
            limit = threading.Timer(time_limit_s, worker.kill)
            limit.start()
            line = worker.stdout.readline()
            limit.cancel()
            if line.startswith(_REPORT) and line.endswith("\n"):
                yield _outcome(line)
                next(left)
            elif not line:
                break
        status = worker.wait()
        errors.seek(0)
        for name in left:
            yield Outcome(name, "crash", f"exit status {status}: {errors.read().strip()[-200:]}")
            return


_REPORT = '{"name"'


def _line(outcome: Outcome) -> str:
    return json.dumps(asdict(outcome))


def _outcome(line: str) -> Outcome:
    return Outcome(**json.loads(line))


def _worker(backend: str) -> None:
    wanted = sys.stdin.read().split()
    cases = {case.name: case for case in node_tests()}
    for name in wanted:
        print(_line(run_test(cases[name], backend)), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; exit status 1 when a result is wrong or a process died, or the goal is not reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=BACKENDS, required=True)
    parser.add_argument("--part", default="0/1", help="K/N: one of N equal parts, K from 0")
    parser.add_argument("--match", default="", help="only tests whose name matches this regular expression")
    parser.add_argument("--show", default="wrong,crash,error", help="outcomes to list one by one")
    parser.add_argument("--out", type=Path, help="keep outcomes in this file; tests that are in it are not run again")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        import_tvm_without_torch()
        _worker(options.backend)
        return 0
    index, count = map(int, options.part.split("/"))
    names = part_of([case.name for case in node_tests() if re.search(options.match, case.name)], index, count)
    outcomes = run_all(options.backend, names, kept=options.out)
    for outcome in outcomes:
        if outcome.outcome in options.show.split(","):
            print(f"{outcome.outcome:11s} {outcome.name}: {outcome.reason}")
    if options.backend == "collage":
        lines, reached = goal_report(outcomes)
        print("\n".join(lines))
        return int(not reached)
    print("\n".join(summarise(outcomes)))
    return int(any(outcome.outcome in ("wrong", "crash") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
