"""The suites, applied as CONTRIBUTING.md shows it to the plug-ins of that page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_PAGE = Path(__file__).resolve().parents[3] / "CONTRIBUTING.md"
_BLOCK = re.compile(r"^```python\n# ([\w/]+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_plug_ins_of_the_page_pass_the_suites(tmp_path: Path) -> None:
    blocks = dict(_BLOCK.findall(_PAGE.read_text(encoding="utf-8")))
    for name, source in blocks.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_plugins.py"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:]
    passed = int(re.findall(r"(\d+) passed", done.stdout)[0])
    assert passed > 100 and not re.search("skipped|failed|error", done.stdout)
