"""The cost models that ship: nothing but data, one per machine, and every machine gets one."""

import gzip
import json
from importlib.resources import files
from typing import Any

import pytest

from collage.errors import CollageError
from estimators.cost_model import shipped as module
from estimators.cost_model.model import CostModel
from estimators.cost_model.shipped import FOLDER, shipped
from estimators.learned import LearnedEstimator

MODELS = sorted(f.name for f in files("estimators").joinpath(FOLDER).iterdir())
_EVERYWHERE = {"tvm", "openvino", "onnxruntime"}
#: The Xeon was measured before the other two backends were there.
KNOWN = {"xeon.json.gz": _EVERYWHERE, "epyc.json.gz": {*_EVERYWHERE, "onednn", "winograd"}}


def content(name: str) -> dict[str, Any]:
    found = json.loads(gzip.decompress(files("estimators").joinpath(FOLDER, name).read_bytes()))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_ships_is_small_and_nothing_but_data(name: str) -> None:
    assert len(files("estimators").joinpath(FOLDER, name).read_bytes()) < 5_000_000
    found = content(name)
    assert set(found["backends"]) == KNOWN[name]
    assert found["device_info"]["model"] and found["training"]["records"] > 4000


@pytest.mark.parametrize("name", MODELS)
def test_a_machine_gets_its_own(name: str) -> None:
    device = content(name)["device_info"]
    assert shipped(device).device_ == shipped({"fingerprint": device["fingerprint"]}).device_ == device["fingerprint"]


@pytest.mark.parametrize("name", MODELS)
def test_any_other_machine_gets_the_one_that_is_most_like_it(name: str) -> None:
    device = content(name)["device_info"]
    sibling = {**device, "fingerprint": "cpu-sibling", "features": device["features"][1:]}
    assert shipped(sibling).device_ == device["fingerprint"]
    assert isinstance(shipped({}), CostModel)


def test_the_estimator_asks_for_its_device() -> None:
    for name in MODELS:
        device = content(name)["device_info"]["fingerprint"]
        assert LearnedEstimator(device=device).model_.device_ == device


def test_an_installation_without_models_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLDER", ".")
    with pytest.raises(CollageError, match="lacks the cost models"):
        shipped()
