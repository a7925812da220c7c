"""What the table of native kernels says of its rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.kernels import expected, listed, read_rows, table


def row(operator: str, count: int, microseconds: float, **facts: Any) -> dict[str, Any]:
    known = {"network": "net", "dtype": "float16", "operators": [f"relax.{operator}"], "count": count}
    kernel = {"registers": 40, "stack": 0, "spilled": 0}
    made = {"ceiling_s": microseconds * 1e-6, "product": operator == "matmul", "kernels": [kernel]}
    return {**known, **made, "tensor_cores": 0, "imprecise": [], **facts}


ROWS = [
    row("matmul", 2, 3.0, tensor_cores=8),
    row("matmul", 1, 1.0, kernels=[{"registers": 255, "stack": 16, "spilled": 4}]),
    row("nn.softmax", 4, 0.5),
    row("topk", 1, 0.1, failure="error: no header", kernels=[]),
]


def test_kernels_are_expected_to_take_the_roofline_and_what_a_launch_takes() -> None:
    assert [expected(each) for each in ROWS] == pytest.approx([10e-6, 3e-6, 10e-6, 0.1e-6])


def test_a_network_is_one_line_and_what_is_wrong_is_said() -> None:
    lines = table(ROWS).splitlines()
    assert lines[2] == "| net float16 | 8 (4) | 255, 1, 1 failed | 1 | 9 µs |"
    assert lines[3:] == ["- net float16 matmul: 16 bytes of local memory", "- net float16 topk: error: no header"]


def test_kernels_are_listed_by_their_share() -> None:
    lines = listed(ROWS).splitlines()
    assert lines[0] == "net float16: 23 us expected"
    assert lines[2].split() == ["43.3%", "2", "3.00", "40", "0", "8", "matmul"]
    assert [line.split()[-1] for line in lines[2:]] == ["matmul", "softmax", "matmul", "topk"]


def test_rows_are_read_plain_and_packed(tmp_path: Path) -> None:
    text = "".join(json.dumps(each) + "\n" for each in ROWS)
    (tmp_path / "rows.jsonl").write_text(text)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert read_rows(tmp_path / "rows.jsonl") == read_rows(tmp_path / "rows.jsonl.gz") == ROWS
    assert read_rows(tmp_path / "nothing.jsonl") == []
