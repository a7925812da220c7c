"""The cost models that ship: nothing but data, one per machine, and every machine gets one."""

import gzip
import json
from importlib.resources import files
from typing import Any

import pytest

from collage.errors import CollageError
from collage.runtime.device_info import DeviceInfo
from estimators.active import ActiveEstimator
from estimators.cost_model import shipped as module
from estimators.cost_model.model import CostModel
from estimators.cost_model.shipped import FOLDER, is_near, nearest, related, shipped
from estimators.learned import LearnedEstimator

MODELS = sorted(f.name for f in files("estimators").joinpath(FOLDER).iterdir())
_EVERYWHERE = {"tvm", "openvino", "onnxruntime"}
_ALL = {*_EVERYWHERE, "onednn", "winograd"}
#: The Xeon was measured before the other two backends were there.
KNOWN = {"xeon.json.gz": _EVERYWHERE, "epyc.json.gz": _ALL, "zen3.json.gz": _ALL}


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


#: Zen 4, a generation before the EPYC of the model; its AVX-512 lacks VP2INTERSECT, and it has no AVX-VNNI.
_ZEN_4 = (
    "abm aes avx avx2 avx512_bf16 avx512_bitalg avx512_vbmi2 avx512_vnni avx512_vpopcntdq avx512bw avx512cd avx512dq "
    "avx512f avx512ifma avx512vbmi avx512vl bmi1 bmi2 f16c fma gfni movbe pclmulqdq popcnt sha_ni sse sse2 sse4_1 "
    "sse4_2 sse4a ssse3 vaes vpclmulqdq"
)
#: A generation before the EPYC of the model without AVX-512; it lacks the wide AES instructions.
_ZEN_2 = "abm aes avx avx2 bmi1 bmi2 f16c fma movbe pclmulqdq popcnt sha_ni sse sse2 sse4_1 sse4_2 sse4a ssse3"
_SANDY_BRIDGE = "aes avx pclmulqdq popcnt sse sse2 sse4_1 sse4_2 ssse3"
_CASCADE_LAKE = f"{_ZEN_2.replace(' sha_ni', '')} avx512_vnni avx512bw avx512cd avx512dq avx512f avx512vl"
_NEON = "asimd aes bf16 fphp i8mm sve"


def machine(model: str, features: str, arch: str = "x86_64", kind: str = "cpu") -> DeviceInfo:
    return DeviceInfo(kind, model, tuple(features.split()), 2, 0, "Linux", arch)


@pytest.mark.parametrize(
    ("device", "near"),
    [
        (machine("AMD EPYC (AuthenticAMD family 25 model 17 stepping 1)", _ZEN_4), "AMD EPYC"),
        (machine("AMD EPYC 7502 (AuthenticAMD family 23 model 49 stepping 0)", _ZEN_2), "AMD EPYC"),
        (machine("Intel Xeon E5-2670 (GenuineIntel family 6 model 45 stepping 7)", _SANDY_BRIDGE), None),
        (machine("Intel Xeon Gold 6248 (GenuineIntel family 6 model 85 stepping 7)", _CASCADE_LAKE), None),
        (machine("Arm CPU implementer 0x41", _NEON, arch="aarch64"), None),
        (machine("NVIDIA H200", "9.0", kind="cuda"), None),
        ({"kind": "cpu", "arch": "x86_64"}, None),
    ],
)
def test_near_is_a_processor_with_nearly_the_same_instruction_sets(device: Any, near: str | None) -> None:
    assert (nearest(device, _ALL, 2) or "").startswith(near or "\0") == (near is not None)


@pytest.mark.parametrize(("threads", "near"), [(1, True), (2, True), (4, True), (8, False)])
def test_near_is_a_model_of_about_as_many_threads(threads: int, near: bool) -> None:
    assert (nearest(machine("", _ZEN_4), _ALL, threads) is not None) == near


def test_near_is_a_model_that_knows_the_backends() -> None:
    xeon, epyc = (content(f"{name}.json.gz")["device_info"] for name in ("xeon", "epyc"))
    assert nearest(xeon, _EVERYWHERE, 2) == xeon["model"]
    assert nearest(xeon, _ALL, 2) == epyc["model"], "one that knows everything comes before the machine's own"
    assert shipped(xeon, _ALL).device_ == epyc["fingerprint"]
    assert nearest(epyc, {"tvm", "a third party's"}, 2) is None


@pytest.mark.parametrize(
    ("device", "backends", "is_related"),
    [
        (machine("", _ZEN_4), _ALL, True),
        (machine("", _CASCADE_LAKE), _ALL, True),
        (machine("", _NEON, arch="aarch64"), _ALL, False),
        (machine("", "9.0", kind="cuda"), _ALL, False),
        (machine("", _ZEN_4), {"tvm", "a third party's"}, False),
    ],
)
def test_related_is_a_processor_of_the_same_architecture(device: Any, backends: set[str], is_related: bool) -> None:
    assert related(device, backends) == is_related
    assert is_related or nearest(device, backends, 2) is None, "what is near is related"


def test_a_model_of_the_users_own_is_near_by_the_same_rule() -> None:
    epyc = content("epyc.json.gz")["device_info"]
    assert is_near(epyc, [2], machine("", _ZEN_4), 2)
    assert not is_near(epyc, [2], machine("", _CASCADE_LAKE), 2)
    assert not is_near(epyc, [], machine("", _ZEN_4), 2), "of how many threads is not known"


def test_only_headers_are_read_to_tell_what_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CostModel, "load", lambda path: pytest.fail("a model was read"))
    assert ActiveEstimator().serves(machine("", _ZEN_4), _ALL, 2)
    assert LearnedEstimator().serves(machine("", _ZEN_4), [*_ALL, "a third party's"], 2), "which is left out"
    assert ActiveEstimator().serves(machine("", _CASCADE_LAKE), _ALL, 2), "which measures more there"
    assert not LearnedEstimator().serves(machine("", _CASCADE_LAKE), _ALL, 2)
    assert not ActiveEstimator().serves(machine("", _NEON, arch="aarch64"), _ALL, 2)
    assert ActiveEstimator("cost.json").serves(machine("", _NEON, arch="aarch64"), _ALL, 2), "the user knows"


def test_the_estimator_asks_for_its_device() -> None:
    for name in MODELS:
        device = content(name)["device_info"]["fingerprint"]
        assert LearnedEstimator(device=device).model_.device_ == device


def test_an_installation_without_models_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLDER", ".")
    with pytest.raises(CollageError, match="lacks the cost models"):
        shipped()
