"""The examples of CONTRIBUTING.md run as they are printed there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from collage.records import RecordDatabase

_PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
_BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.long
def test_the_examples_run_together(tmp_path: Path) -> None:
    blocks = dict(_BLOCK.findall(_PAGE.read_text(encoding="utf-8")))
    assert list(blocks) == [
        *("relu_backend.py", "pair_rule.py", "eager_searcher.py", "traffic_estimator.py", "use_them.py")
    ]
    for name, source in blocks.items():
        (tmp_path / name).write_text(source, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "use_them.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "eager: nothing is fused" in done.stdout and "ships, unconfirmed" in done.stdout
    with RecordDatabase(tmp_path / "records.db") as database:
        (relu,) = database.matching(kind="candidate", backend="numpy-relu")
    assert relu.status == "ok", "it ran, and gave the right numbers"
