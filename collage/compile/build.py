"""From a partitioned module to something that runs: code generation by each backend, TVM's lowering, one executable.

`compile_partitioned` builds both the candidate that is measured and the whole network that ships (invariant 1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

import collage
from collage.annotations.opaque import PREFIX, opaque_calls, opaque_name
from collage.annotations.places import places_of
from collage.backends.base import Backend
from collage.backends.lowering import Linker, Lowering
from collage.compile.calls import with_open_results
from collage.compile.copies import Placed, devices_of, owners_of, with_copies
from collage.compile.deployment import as_metadata, deployment_of
from collage.compile.linking import link
from collage.compile.lowering import lowering_of
from collage.compile.other_devices import native_elsewhere, with_kernels_elsewhere
from collage.errors import CodegenError, CollageError, last_line
from collage.files import replacing
from collage.frontend.values import input_specs, output_specs
from collage.runtime import engines as runtime_engines
from collage.runtime import native
from collage.runtime.blob import pack
from collage.runtime.engines import weights
from collage.runtime.model import CompiledModel


@dataclass(frozen=True)
class CompiledExecutable:
    """A compiled network in this process: callable, and exportable to one file.

    `collage.runtime.load` loads that file in a process that has nothing of the compiling side. What was compiled for a
    board cannot be called here, and TVM's virtual machine loads its file.

    Attributes
    ----------
    executable
        TVM's.
    metadata
        What the model says of itself.
    linker
        Of the board that it is for; None of this machine.
    """

    executable: Any
    metadata: Mapping[str, Any]
    linker: Linker | None = None

    def load(self) -> CompiledModel:
        """The network, ready to be called in this process.

        Raises
        ------
        CollageError
            It is for a board.
        """
        if self.linker is not None:
            raise CollageError(f"it is compiled for a board ({self.linker.triple}): export it, and run it there")
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
        CollageError
            The file cannot be written, or there is no compiler to link it with.
        """
        target = Path(path)
        if self.linker is not None:
            self.linker.require_able(target)
        try:
            with replacing(target, ".so" if self.linker is None else target.suffix) as partial:
                if self.linker is not None:
                    self.linker.export(self.executable, partial)
                    return
                objects = [native.object_file(), *runtime_engines.object_files(self.metadata["engines"])]
                link(self.executable, partial, objects)
        except (OSError, RuntimeError) as error:
            raise CollageError(f"{target}: cannot write the compiled model: {last_line(error)}") from error


@dataclass(frozen=True)
class Blob:
    """The blob of one partition in a file of its own: the form in which a candidate reaches the timing process.

    Attributes
    ----------
    symbol
        Name of the partition's function.
    path
        Of the file.
    engine
        Name of the engine that runs the blob.
    options
        The engine's settings (`Backend.engine_options`).
    """

    symbol: str
    path: str
    engine: str
    options: Mapping[str, Any]


def write_blob(backend: Backend, function: Any, threads: int, folder: Path) -> Blob:
    """Write the blob of one `Codegen` function to `folder`.

    Raises
    ------
    CodegenError
        The backend cannot take the function.
    """
    symbol = str(function.attrs["global_symbol"])
    path = folder / f"{symbol}.blob"
    path.write_bytes(backend.engine_blob(function))
    return Blob(symbol, str(path), backend.engine_name, backend.engine_options(threads))


def build(
    partitioned: Any,
    backends: Iterable[Backend],
    threads: int,
    metadata: Mapping[str, Any] | None = None,
    home: str | None = None,
) -> CompiledExecutable:
    """Compile a partitioned module (`collage.compile.rewrite.apply`).

    Parameters
    ----------
    partitioned
        Relax module whose `main` calls `Primitive` and `Codegen` functions.
    backends
        Those that appear in it.
    threads
        Number of threads of the deployment.
    metadata
        Additional entries of the compiled model's metadata (the plan, versions).
    home
        The device of inputs and results; None is the only device of the backends.

    Raises
    ------
    CodegenError
        A backend, or TVM, cannot compile its part; the message says which and why.
    """
    by_name = with_called(backends)
    engines = [by_name[name].engine_name for name in codegen_names(partitioned) if by_name[name].makes_blobs]
    device = home or device_of_backends(by_name.values())
    owners = owners_of(partitioned, {name: backend.device for name, backend in by_name.items()})
    devices = devices_of(owners, device)
    more: dict[str, Any] = {"engines": engines, **(metadata or {})}
    alone = False
    if device == "cpu":
        deployment = deployment_of(partitioned, by_name)
        if len(devices) > 1:
            deployment = replace(deployment, direct=None)
        alone, more["runtime"] = deployment.alone, as_metadata(deployment)
    if len(devices) > 1:
        more["devices"] = devices
        if native_elsewhere(partitioned, owners, device):
            engines.append(weights.ENGINE)
    info = _metadata(partitioned, threads, device, more)
    linker = _linker_of(by_name.values(), threads)
    executable = compile_partitioned(
        partitioned,
        by_name.values(),
        threads,
        [native.metadata_module(info)] if linker is None else [],
        graph=len(devices) == 1,
        alone=alone,
        home=device,
        owners=owners,
    )
    return CompiledExecutable(executable, info, linker)


def build_untouched(
    module: Any,
    threads: int,
    metadata: Mapping[str, Any] | None = None,
    device: str = "cpu",
    backends: Sequence[Backend] = (),
) -> CompiledExecutable:
    """TVM's own default build of a canonical module: what ships where no placement beats it. Native backends know the
    target.

    Raises
    ------
    CodegenError
        TVM cannot compile the network, or it holds operators that only engines run.
    """
    info = _metadata(module, threads, device, metadata or {})
    linker = _linker_of(backends, threads)
    carried = [native.metadata_module(info)] if linker is None else []
    executable = compile_untouched(module, threads, carried, device, backends)
    return CompiledExecutable(executable, info, linker)


def _linker_of(backends: Iterable[Backend], threads: int) -> Linker | None:
    """Of the board that native backends compile for; None where that is this machine."""
    found = (lowering for b in backends if b.device == "cpu" and (lowering := b.lowering(threads)) is not None)
    return next((lowering.linker for lowering in found), None)


def compile_untouched(
    module: Any,
    threads: int,
    carried: Sequence[Any] = (),
    device: str = "cpu",
    backends: Sequence[Backend] = (),
) -> Any:
    """The executable of TVM's own default pipeline. Raises CodegenError when that fails."""
    opaque = dict.fromkeys(opaque_name(call).removeprefix(PREFIX) for call in opaque_calls(module["main"]))
    if opaque:
        raise CodegenError(f"TVM has no kernel for {', '.join(opaque)}: operators of ONNX that only engines run")
    elsewhere = sorted(set(places_of(module)) - {"", device})
    if elsewhere:
        raise CodegenError(f"TVM's default pipeline is for one device, {device}; the module asks for {elsewhere[0]}")
    try:
        lowering = lowering_of(device, threads, backends)
        return _compile(lowering.baseline(module), lowering, carried)
    except Exception as error:  # TVM's own pipeline may fail in any way; then this baseline is out, with the reason
        raise CodegenError(f"TVM's default pipeline: {last_line(error)}") from error


def compile_partitioned(
    module: Any,
    backends: Iterable[Backend],
    threads: int,
    carried: Sequence[Any] = (),
    scheduled: bool = True,
    called: Iterable[Backend] = (),
    graph: bool = True,
    alone: bool = False,
    home: str | None = None,
    owners: Mapping[str, str] | None = None,
) -> Any:
    """Run each backend's code generator, then lower and compile the rest by TVM.

    Parameters
    ----------
    module
        Relax module whose `main` calls `Primitive` and `Codegen` functions.
    backends
        Those that appear in it.
    threads
        Number of threads of the deployment.
    carried
        Further runtime modules that become part of the executable.
    scheduled
        False leaves native kernels unscheduled: slow, for references.
    called
        Backends whose partitions are in the module already as calls of packed functions.
    graph
        On an accelerator: whether to capture calls in a graph, if all of the backends allow it.
    alone
        Whether the only thread pool at work will be an engine's (`Backend.alone_options`).
    home
        The device of inputs and native kernels; None is the only device of the backends.
    owners
        Symbol -> device of each partition, where there may be several devices.

    Raises
    ------
    CodegenError
        A backend, or TVM, cannot compile its part.
    """
    by_name = with_called(backends)
    used = codegen_names(module)
    for name in used:
        register_codegen(by_name[name])
    inside = [by_name[name] for name in used] + list(called)
    try:
        if used:
            options = {"threads": threads, "alone": int(alone)}
            module = relax.transform.RunCodegen({name: options for name in used})(module)
            module = with_open_results(module)
            # The backends' modules own their weights; TVM would store them a second time.
            module = module.without_attr("const_name_to_constant")
        device = home or device_of_backends(by_name.values())

        def lowering_on(where: str) -> Lowering:
            return lowering_of(where, threads, [b for b in by_name.values() if b.device == where])

        if owners is not None and len(devices_of(owners, device)) > 1:
            placed = with_copies(with_kernels_elsewhere(module, owners, device, lowering_on), owners, device)
            module, carried = placed.module, [*carried, *_weight_modules(placed)]
        lowering = lowering_on(device)
        graph = graph and all(backend.capturable for backend in inside)
        return _compile(lowering.lower(module, scheduled, graph), lowering, carried)
    except CollageError:
        raise
    except Exception as error:  # whatever a code generator raises is the reason why this candidate is Invalid
        raise CodegenError(f"cannot compile: {last_line(error)}") from error


def _weight_modules(placed: Placed) -> list[Any]:
    """The runtime modules that give the constants of each device."""
    return [
        native.engine_module(
            weights.ENGINE, {symbol: pack({}, {str(i): a for i, a in enumerate(arrays)})}, {"device": device}
        )
        for device, (symbol, arrays) in placed.weights.items()
    ]


def with_called(backends: Iterable[Backend]) -> dict[str, Backend]:
    """Name -> backend, of some backends and of the libraries that these call.

    Raises
    ------
    CodegenError
        Two backends of one name have different settings.
    """
    found: dict[str, Backend] = {}
    for backend in (each for one in backends for each in (one, *one.libraries.values())):
        other = found.setdefault(backend.name, backend)
        if other is not backend and other.configuration() != backend.configuration():
            raise CodegenError(f"two backends called {backend.name}, with other settings, in one network: use one")
    return found


def device_of_backends(backends: Iterable[Backend]) -> str:
    """The one device that backends run on; "cpu" when there are none.

    Raises
    ------
    CodegenError
        They run on several.
    """
    devices = sorted({backend.device for backend in backends})
    if len(devices) > 1:
        raise CodegenError(f"one network runs on one device: its backends are for {' and '.join(devices)}")
    return devices[0] if devices else "cpu"


def _compile(lowered: Any, lowering: Lowering, carried: Sequence[Any]) -> Any:
    external = list(lowered.attrs["external_mods"]) if lowered.attrs and "external_mods" in lowered.attrs else []
    if external or carried:
        lowered = lowered.with_attr("external_mods", [*external, *carried])
    with lowering.scope():
        return tvm.compile(lowered, target=lowering.target, relax_pipeline=tvm.transform.Sequential([]))


def _metadata(module: Any, threads: int, device: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a compiled model; lists and plain values only, as they come back from JSON."""
    info = {
        **({} if device == "cpu" else {"device": device}),
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
