"""Where headers of NVIDIA's packages are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.errors import CompiledModelError
from collage.runtime.cuda.native import include_folders


def test_headers_of_wheels_that_were_unpacked_into_a_folder_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `benchmarks/gpu/pack.sh` does: what a wheel installs beside its packages lies in the folder itself."""
    wanted = {"collage_frontend.h": "collage-frontend"}
    with pytest.raises(CompiledModelError, match="pip install collage-frontend"):
        include_folders(wanted)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "collage_frontend.h").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert include_folders(wanted) == [str(tmp_path / "include")]
