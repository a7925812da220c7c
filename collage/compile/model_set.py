"""A network that was compiled for several shapes: something to call, and to export into one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from collage.compile.build import CompiledExecutable
from collage.errors import CollageError
from collage.files import replacing
from collage.runtime.dynamic import DynamicModel
from collage.runtime.loading import DYNAMIC
from collage.runtime.model_set import ModelSet
from collage.runtime.packed_file import PackedFile, pack


@dataclass(frozen=True)
class Dynamic:
    """The network for shapes that were not tuned.

    Attributes
    ----------
    model
        A serialised ONNX model.
    facts
        As of `collage.runtime.dynamic.DynamicModel`.
    """

    model: bytes
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class CompiledSet:
    """One executable for each list of shapes, and the network for the others.

    `collage.runtime.load` loads the file that `export` writes.
    """

    executables: tuple[CompiledExecutable, ...]
    dynamic: Dynamic | None

    def load(self, strict: bool = False) -> ModelSet:
        """The network, ready to be called in this process."""
        found = self.dynamic
        dynamic = None if found is None else DynamicModel(lambda: found.model, found.facts)
        return ModelSet([executable.load() for executable in self.executables], dynamic, strict)

    def __call__(self, *inputs: Any) -> Any:
        """Run once, loading on the first call; see `collage.runtime.ModelSet`."""
        if "model" not in self.__dict__:
            object.__setattr__(self, "model", self.load())
        return self.__dict__["model"](*inputs)

    def export(self, path: str | Path) -> None:
        """Write everything into one file, in which equal weights are stored once.

        Raises
        ------
        CollageError
            The file cannot be written, or there is no host compiler to link models with.
        """
        target = Path(path)

        def files() -> Iterator[tuple[str, bytes]]:
            for number, executable in enumerate(self.executables):
                with TemporaryDirectory(prefix="collage-") as folder:
                    library = Path(folder) / f"{number}.so"
                    executable.export(library)
                    content = library.read_bytes()
                yield library.name, content
            if self.dynamic is not None:
                yield DYNAMIC, self.dynamic.model

        about = {} if self.dynamic is None else {"dynamic": dict(self.dynamic.facts)}
        try:
            with replacing(target, ".so") as partial:
                pack(partial, files(), about)
        except OSError as error:
            raise CollageError(f"{target}: cannot write the compiled model: {error.strerror or error}") from error

    def description(self, path: str | Path) -> str:
        """What runs the shapes that were not tuned, and what the file takes that was exported to `path`."""
        packed = PackedFile.open(Path(path))
        size, apart = (f"{count / 1e6:,.4g} MB" for count in (len(packed.content), packed.unpacked_bytes()))
        others = "are refused" if self.dynamic is None else f"run on {self.dynamic.facts['engine']}, untuned"
        return f"{path}: {size} for {len(self.executables)} plans, {apart} without sharing; other shapes {others}"
