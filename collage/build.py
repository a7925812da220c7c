"""From a partitioned module to something that runs: code generation by each backend, TVM's lowering, one executable.

The same function builds a candidate that is measured and the whole network that ships (invariant 1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

import collage
from collage.backends import tvm_lower
from collage.backends.base import Backend
from collage.backends.tvm import TVMBackend
from collage.errors import CodegenError, CollageError
from collage.frontend.specs import input_specs, output_specs
from collage.runtime import engines as runtime_engines
from collage.runtime import native
from collage.runtime.model import CompiledModel


@dataclass(frozen=True)
class CompiledExecutable:
    """A compiled network in this process: callable, and exportable to one file.

    `collage.runtime.load` loads that file in a process that has nothing of the compiling side.
    """

    executable: Any
    metadata: Mapping[str, Any]

    def load(self) -> CompiledModel:
        """The network, ready to be called in this process."""
        runtime_engines.register()
        return CompiledModel(self.executable.jit(), dict(self.metadata))

    def __call__(self, *inputs: Any) -> Any:
        """Run once, loading on the first call; see `collage.runtime.CompiledModel`."""
        if "model" not in self.__dict__:
            object.__setattr__(self, "model", self.load())
        return self.__dict__["model"](*inputs)

    def export(self, path: str | Path) -> None:
        """Write everything into one shared library.

        Raises
        ------
        CollageError: the file cannot be written, or there is no host compiler to link it with.
        """
        target = Path(path)
        temporary = target.with_name(f".{target.name}.part.so")
        # Libraries that register the engine module must never be unmapped while the process lives.
        options = ["-Wl,-z,nodelete"]
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self.executable.export_library(str(temporary), addons=[native.object_file()], options=options)
            temporary.replace(target)
        except (OSError, RuntimeError) as error:
            raise CollageError(f"{target}: cannot write the compiled model: {last_line(error)}") from error
        finally:
            temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class Blob:
    """What an engine makes one symbol of, in a file of its own: how candidates and rival plans reach the timing
    process.
    """

    symbol: str
    path: str
    engine: str
    options: Mapping[str, Any]


def write_blob(backend: Backend, function: Any, threads: int, folder: Path) -> Blob:
    """Write what the engine runs for one `Codegen` function to `folder`.

    Raises
    ------
    CodegenError: the backend cannot take the function.
    """
    symbol = str(function.attrs["global_symbol"])
    path = folder / f"{symbol}.blob"
    path.write_bytes(backend.engine_blob(function))
    return Blob(symbol, str(path), backend.engine or backend.name, backend.engine_options(threads))


def build(
    partitioned: Any,
    backends: Iterable[Backend],
    threads: int,
    metadata: Mapping[str, Any] | None = None,
) -> CompiledExecutable:
    """Compile a partitioned module (`collage.rewrite.apply`).

    Parameters
    ----------
    partitioned: Relax module whose `main` calls `Primitive` and `Codegen` functions.
    backends: those that appear in it.
    threads: number of threads of the deployment.
    metadata: more that the model should say of itself when it is loaded (the plan, versions).

    Raises
    ------
    CodegenError: a backend, or TVM, cannot compile its part; the message says which and why.
    """
    by_name = {backend.name: backend for backend in backends}
    engines = [by_name[name].engine or name for name in codegen_names(partitioned) if by_name[name].style == "graph"]
    info = _metadata(partitioned, threads, {"engines": engines, **(metadata or {})})
    executable = compile_partitioned(partitioned, by_name.values(), threads, [native.metadata_module(info)])
    return CompiledExecutable(executable, info)


def build_untouched(module: Any, threads: int, metadata: Mapping[str, Any] | None = None) -> CompiledExecutable:
    """TVM's own default build of a canonical module: what ships where no placement beats it.

    Raises
    ------
    CodegenError: TVM cannot compile the network.
    """
    info = _metadata(module, threads, metadata or {})
    executable = compile_untouched(module, threads, [native.metadata_module(info)])
    return CompiledExecutable(executable, info)


def compile_untouched(module: Any, threads: int, carried: Sequence[Any] = ()) -> Any:
    """The executable of TVM's own default pipeline. Raises CodegenError when that fails."""
    target = tvm_lower.cpu_target(threads)
    try:
        lowered = tvm_lower.baseline_module(module, target)
        return _compile(lowered, target, carried)
    except Exception as error:  # TVM's own pipeline may fail in any way; then this rival is out, with the reason
        raise CodegenError(f"TVM's default pipeline: {last_line(error)}") from error


def compile_partitioned(
    module: Any, backends: Iterable[Backend], threads: int, carried: Sequence[Any] = (), scheduled: bool = True
) -> Any:
    """Run each backend's code generator, lower and compile the rest by TVM, and carry further runtime modules along.

    `scheduled=False` leaves native kernels plain: slow, for references.

    Raises
    ------
    CodegenError: a backend, or TVM, cannot compile its part.
    """
    by_name = {backend.name: backend for backend in backends}
    used = codegen_names(module)
    for name in used:
        register_codegen(by_name[name])
    tuned = next((b.tuning_records for b in by_name.values() if isinstance(b, TVMBackend)), None)
    try:
        if used:
            module = relax.transform.RunCodegen({name: {"threads": threads} for name in used})(module)
            # The backends' modules own their weights; TVM would store them a second time.
            module = module.without_attr("const_name_to_constant")
        target = tvm_lower.cpu_target(threads)
        lowered = tvm_lower.lower(module, target, tuned, scheduled)
        return _compile(lowered, target, carried)
    except CollageError:
        raise
    except Exception as error:  # whatever a code generator raises is the reason why this candidate is Invalid
        raise CodegenError(f"cannot compile: {last_line(error)}") from error


def _compile(lowered: Any, target: Any, carried: Sequence[Any]) -> Any:
    external = list(lowered.attrs["external_mods"]) if lowered.attrs and "external_mods" in lowered.attrs else []
    if external or carried:
        lowered = lowered.with_attr("external_mods", [*external, *carried])
    return tvm.compile(lowered, target=target, relax_pipeline=tvm.transform.Sequential([]))


def _metadata(module: Any, threads: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """What a loaded model says of itself; lists and plain values only, as they come back from JSON."""
    info = {
        "format": 1,
        "collage": collage.__version__,
        "tvm": tvm.__version__,
        "threads": threads,
        "engines": [],
        "inputs": [astuple(spec) for spec in input_specs(module)],
        "outputs": [astuple(spec) for spec in output_specs(module)],
        **more,
    }
    result: dict[str, Any] = json.loads(json.dumps(info))
    return result


def codegen_names(module: Any) -> list[str]:
    """The external backends that have partitions in a module."""
    functions = (f for _, f in module.functions_items() if isinstance(f, relax.Function))
    return sorted({str(f.attrs["Codegen"]) for f in functions if f.attrs and "Codegen" in f.attrs})


def register_codegen(backend: Backend) -> None:
    """Make `relax.transform.RunCodegen` find the backend, as TVM's own external code generators are found."""

    def generate(functions: Sequence[Any], options: Any, _constant_names: Any) -> list[Any]:
        return backend.codegen(list(functions), json.loads(str(options)) if options else {})

    tvm_ffi.register_global_func(f"relax.ext.{backend.name}", generate, override=True)


def last_line(error: BaseException) -> str:
    """The line of an error that says what went wrong: TVM puts it below its stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:500]
