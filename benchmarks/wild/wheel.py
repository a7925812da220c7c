"""Wheels as PyPI has them: fetched by pip, checked by their digest, kept outside the repository, never installed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from collage.files import replacing

#: Seconds that a download may take.
_LIMIT_S = 600.0


class FetchError(Exception):
    """pip could not fetch a wheel, or what it fetched is another file."""


class UnreachableError(FetchError):
    """PyPI does not answer."""


@dataclass(frozen=True)
class Wheel:
    """One file of a package on PyPI.

    Attributes
    ----------
    package, version
        Whose.
    sha256
        Of the file.
    licence
        As the package's metadata says.
    platform
        Options of pip that name the file, where the package has one for each platform.
    """

    package: str
    version: str
    sha256: str
    licence: str
    platform: Sequence[str] = ()

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return user_cache_path("collage") / "wild" / f"{self.package}-{self.version}.whl"

    def fetch(self) -> Path:
        """Its path; downloads it where it is not there. Nothing of it is run.

        Raises
        ------
        UnreachableError
            PyPI does not answer.
        FetchError
            It has no such file, or what is there is another one.
        """
        if not self.path.is_file():
            with tempfile.TemporaryDirectory(prefix="wild-") as folder:
                found = self._download(Path(folder))
                with replacing(self.path) as partial:
                    partial.write_bytes(found.read_bytes())
        if hashlib.sha256(self.path.read_bytes()).hexdigest() != self.sha256:
            raise FetchError(f"{self.path} is not the file that is expected; delete it")
        return self.path

    def _download(self, folder: Path) -> Path:
        wanted = folder / "requirements.txt"
        wanted.write_text(f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n")
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", *self.platform, "--dest", str(folder)]
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", *options]
        try:
            done = subprocess.run(
                [*command, "-r", str(wanted)], capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"{self.package} {self.version}: no answer in {_LIMIT_S:.0f} s") from error
        found = list(folder.glob("*.whl"))
        if done.returncode or len(found) != 1:
            last = (done.stderr.strip().splitlines() or ["pip fetched nothing"])[-1]
            kind = UnreachableError if "connection broken" in done.stderr else FetchError
            raise kind(f"{self.package} {self.version}: {last}")
        return found[0]

    def read(self, name: str) -> bytes:
        """A file inside it."""
        with zipfile.ZipFile(self.fetch()) as archive:
            return archive.read(name)

    def metadata(self) -> bytes:
        """What the package says of itself: prose, in most cases."""
        with zipfile.ZipFile(self.fetch()) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return archive.read(name)
