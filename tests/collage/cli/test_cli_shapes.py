"""`collage tune --shapes` and `--batch`: one file for several shapes, with plans, page and summary of all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from collage.cli.options import parse_shape_lists
from tests.collage.cli.conftest import Command, Ran, dense, tuning_options

QUICK = ("--no-confirm", "--effort", "quick")


@pytest.fixture
def tune(tmp_path: Path, collage_command: Command):  # type: ignore[no-untyped-def]
    model = dense(tmp_path / "model.onnx", rows="?")
    proto = onnx.load(model)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "?"  # as exporters do who know no extent
    onnx.save(proto, model)

    def run(*arguments: object) -> Ran:
        options = tuning_options(tmp_path / "records.db")
        return collage_command("tune", model, "-o", tmp_path / "out.so", *options, *QUICK, *arguments)

    return run


def test_one_file_runs_all_batches_and_others(tune, tmp_path: Path, collage_command: Command) -> None:  # type: ignore[no-untyped-def]
    page, library = tmp_path / "page.html", tmp_path / "out.so"
    done = tune("--shape", "x=1,16", "--batch", "4,2", "--report", page)
    assert done.status == 0, done.err
    assert "Note: the model calls dimensions of 'x' '?'" in done.out
    assert "for 2 plans" in done.out and "other shapes run on onnxruntime, untuned" in done.out
    assert "samples per second" in done.out and "x=4,16" in page.read_text() and "x=2,16" in page.read_text()

    assert "input   x: float32[4, 16]" in collage_command("run", library, "--random").out
    assert "output  y: float32[2, 8]" in collage_command("run", library, "--random", "--shape", "x=2,16").out
    other = collage_command("run", library, "--random", "--shape", "x=3,16")
    assert "output  y: float32[3, 8]" in other.out
    refused = collage_command("run", library, "--random", "--shape", "x=3,16", "--strict")
    assert refused.status == 2 and "Tuned are x=4,16; x=2,16" in refused.err
    np.save(tmp_path / "x.npy", np.zeros((2, 16), "float32"))
    assert "output  y: float32[2, 8]" in collage_command("run", library, "--input", f"x={tmp_path / 'x.npy'}").out

    plans = tmp_path / "out.plan.json"
    printed = collage_command("report", plans, tmp_path / "model.onnx")
    assert printed.status == 0 and printed.out.strip() in done.out
    again = collage_command("compile", tmp_path / "model.onnx", "--plan", plans, "-o", tmp_path / "again.so")
    assert again.status == 0 and (tmp_path / "again.so").stat().st_size == library.stat().st_size
    both = collage_command("report", plans, tmp_path / "model.onnx", "--shape", "x=4,16")
    assert both.status == 2 and "says which" in both.err


def test_a_list_of_shapes_has_one_for_each_input() -> None:
    both = {"ids": (1, 64), "mask": (1, 64)}
    assert parse_shape_lists(["ids=1,64 mask=1,64", "ids=1,64; mask=1,64", "x=3"]) == [both, both, {"x": (3,)}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--shapes", "x=1,16", "--shapes", "x=1,16"), "given twice: x=1,16"),
        (("--shapes", "x"), "--shapes"),
        (("--batch", "1,0"), "--batch"),
        (("--batch", "one"), "--batch"),
        (("--shape", "x=1,16", "--batch", "2,2"), "given twice: x=2,16"),
        (("--shapes", "z=1,16"), "not an input"),
        (("--batch", "2"), "--shape x=2,N"),
    ],
)
def test_what_cannot_be_shapes_is_one_line(tune, arguments: tuple[str, ...], words: str) -> None:  # type: ignore[no-untyped-def]
    done = tune(*arguments)
    assert done.status == 2 and words in done.err
