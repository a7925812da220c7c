"""Which algorithms were fastest, remembered on disk: they are timed once per computation, not once per process.

Engines look here before they time anything and write here afterwards; backends put what is known into the blobs that
they make, so that the model which ships runs what was measured. What was found holds for one computation on one kind
of device with one version of the library.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

from collage.files import replacing
from collage.runtime.blob import unpack, with_choice
from collage.runtime.cuda.native import CudaEngine
from collage.runtime.devices import cuda_name
from collage.runtime.engine import Run


def folder_of(engine: str) -> Path:
    """Where an engine's choices, and what else it keeps, are by default."""
    return Path(platformdirs.user_cache_dir("collage", appauthor=False)) / engine


def read(key: str, folder: Path) -> dict[str, Any] | None:
    """The choice of this name; None when there is none that can be read."""
    try:
        found = json.loads(_path(key, folder).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(key: str, choice: Mapping[str, Any], folder: Path) -> None:
    """Remember it. A folder that cannot be written costs only that algorithms are timed again."""
    with suppress(OSError), replacing(_path(key, folder)) as partial:
        partial.write_text(json.dumps(dict(choice), sort_keys=True))


class ChoosingEngine(CudaEngine):
    """An engine of a library that has several algorithms for one computation."""

    def create(self, blob: bytes, options: Mapping[str, Any]) -> Run:
        """The function that runs `blob`, by the algorithms that it names, or are remembered, or are timed now."""
        if "choice" not in unpack(blob)[0]:
            key, folder = self._key(blob, int(options.get("device", 0))), folder_of(self.name)
            chosen = read(key, folder)
            if chosen is None:
                chosen = self.choose(blob, options)
                write(key, chosen, folder)
            blob = with_choice(blob, chosen)
        return super().create(blob, options)

    def known(self, blob: bytes) -> bytes:
        """The blob with what is remembered of its computation on the first device, or as it is.

        Raises
        ------
        CompiledModelError
            The engine has to be compiled and cannot be.
        """
        chosen = read(self._key(blob, 0), folder_of(self.name))
        return blob if chosen is None else with_choice(blob, chosen)

    def choose(self, blob: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
        """The algorithms for a blob, timed now unless the blob names them, or an equal one was timed in this process
        before. As "choice" of the blob's header they are kept, for this version of the library.

        Returns
        -------
        dict
            Names of the library's own, and "microseconds" that the proposals took; see the engine's C++ source.

        Raises
        ------
        CompiledModelError
            As `create`.
        """
        result: dict[str, Any] = self.ask("choice", blob, options)
        return result

    def _key(self, blob: bytes, device: int) -> str:
        """Of all that the fastest algorithm depends on; of weights only what they look like."""
        self.load()
        header, tensors = unpack(blob)
        header["tensors"] = {name: [str(array.dtype), array.shape] for name, array in tensors.items()}
        version = int(self.function("version")())
        text = json.dumps([header, version, cuda_name(device)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _path(key: str, folder: Path) -> Path:
    return folder / "choices" / f"{key}.json"
