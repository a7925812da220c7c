"""Invariant 6: a key changes with everything that a cost depends on, and with nothing else."""

import importlib.metadata
import json
import subprocess
import sys
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage import plugins
from collage.backends.code import configuration_of, equivalent_configurations
from collage.errors import RecordsError
from collage.records import RecordKey, key_of, keys_of, plan_key, transition_key
from collage.records.key import canonical_json, digest_of, tvm_version

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
OTHER = {
    "kind": "plan",
    "structure": "another",
    "backend": "tvm",
    "backend_version": "2026.2",
    "configuration": "beef",
    "composites": (("conv2d+relu", (0, 2)), ("dense", (2,))),
    "device": "another",
    "threads": 4,
    "tvm_version": "0.28",
    "protocol": '{"name":"p","version":1,"weights":"hot"}',
}


class StubBackend:
    """As much of a backend as keys depend on."""

    engine_name = ""

    def __init__(self, name: str, version: str = "1", **configuration: object) -> None:
        self.name, self._version, self._configuration = name, version, configuration
        self.asked = 0

    def version(self) -> str:
        self.asked += 1
        return self._version

    def configuration(self) -> dict[str, object]:
        return self._configuration


@dataclass
class StubWorkload:
    backend: StubBackend
    structure: str = "s"
    composites: tuple[tuple[str, tuple[int, ...]], ...] = ()
    threads: int = 2


@dataclass
class StubProtocol:
    weights: str

    def as_dict(self) -> dict[str, object]:
        return {"weights": self.weights}


@pytest.mark.parametrize("name", [f.name for f in fields(RecordKey) if f.compare])
def test_every_field_changes_the_digest(key, name: str) -> None:
    assert replace(key(), **{name: OTHER[name]}).digest != key().digest


def test_the_digest_is_the_same_in_another_process(key) -> None:
    code = (
        "import json, sys; from collage.records import RecordKey;"
        "print(RecordKey.from_dict(json.load(sys.stdin)).digest)"
    )
    text = json.dumps(key().as_dict())
    other = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == key().digest


def test_the_digest_is_pinned(key) -> None:
    """A change here loses every user's records: raise SCHEMA_VERSION instead of editing the number."""
    assert key().digest == "fe31ce9a470ef3e790a265b13f43d1b82befc9de4d9b8a37ee5604c821f94cae"


def test_the_canonical_text_is_pinned() -> None:
    """Of what other JSON libraries write differently: digests of keys and configurations are over this text."""
    value = {"é": [1e-05, 1e16, 0.1 + 0.2, -0.0, 2**70, True, None, "☃\x00/"], "a": (1, {"c": "", "b": []})}
    text = canonical_json(value)
    assert text == (
        r'{"a":[1,{"b":[],"c":""}],"\u00e9":[1e-05,1e+16,0.30000000000000004,-0.0,1180591620717411303424,true,null,'
        r'"\u2603\u0000/"]}'
    )


def test_a_key_comes_back_from_its_dictionary(key) -> None:
    assert RecordKey.from_dict(json.loads(json.dumps(key().as_dict()))) == key()


@pytest.mark.parametrize(
    "change",
    [{"kind": "guess"}, {"threads": 0}, {"threads": True}, {"structure": 5}, {"extra": 1}, {"composites": [["a"]]}],
)
def test_a_wrong_key_is_an_error(key, change: dict[str, object]) -> None:
    with pytest.raises(RecordsError):
        RecordKey.from_dict({**key().as_dict(), **change})


def test_a_field_of_the_wrong_type_is_named(key) -> None:
    for field, value in {"structure": 5, "threads": "2", "composites": [["a", [0.5]]]}.items():
        with pytest.raises(RecordsError, match=rf"\$\.{field}") as caught:
            RecordKey.from_dict({**key().as_dict(), field: value})
        assert "\n" not in str(caught.value)


def test_a_missing_field_is_named(key) -> None:
    values = key().as_dict()
    del values["device"]
    with pytest.raises(RecordsError, match="device"):
        RecordKey.from_dict(values)


@given(JSON)
def test_canonical_json_comes_back_and_is_a_fixed_point(value: object) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(), st.integers()))
def test_the_order_of_a_mapping_does_not_matter(value: dict[str, int]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, {1, 2}, object(), b"bytes", np.float64(1)])
def test_what_json_would_change_is_refused(value: object) -> None:
    for inside in (value, [value], {"a": value}, [[0.5, value]], {"a": {"b": (value,)}}):
        with pytest.raises(RecordsError):
            canonical_json(inside)


def test_the_version_of_tvm_is_read_from_disk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for each record, and reading it takes longer than storing one."""
    asked: list[str] = []
    monkeypatch.setattr(importlib.metadata, "version", lambda name: asked.append(name) or "1.2")
    tvm_version.cache_clear()
    try:
        assert [tvm_version() for _ in range(3)] == ["1.2"] * 3 and asked == ["apache-tvm"]
    finally:
        tvm_version.cache_clear()


def test_a_workloads_key_holds_its_parts() -> None:
    backend = StubBackend("openvino", "2026.1", precision="f32")
    work = StubWorkload(backend, "abc", (("dense", (0,)),), 4)
    key = key_of(work, "cpu-fingerprint", {"weights": "cold"})
    assert (key.kind, key.structure, key.backend, key.backend_version) == ("candidate", "abc", "openvino", "2026.1")
    assert (key.composites, key.device, key.threads) == ((("dense", (0,)),), "cpu-fingerprint", 4)
    assert key.protocol == '{"weights":"cold"}'
    assert key.tvm_version


@pytest.mark.parametrize(
    "other",
    [
        StubWorkload(StubBackend("b", "2", precision="f32")),
        StubWorkload(StubBackend("c", "1", precision="f32")),
        StubWorkload(StubBackend("b", "1", precision="bf16")),
        StubWorkload(StubBackend("b", "1", precision="f32"), structure="t"),
        StubWorkload(StubBackend("b", "1", precision="f32"), composites=(("x", (0,)),)),
        StubWorkload(StubBackend("b", "1", precision="f32"), threads=3),
    ],
)
def test_a_changed_workload_or_backend_is_a_miss(other: StubWorkload) -> None:
    key = key_of(StubWorkload(StubBackend("b", "1", precision="f32")), "d", {})
    assert key_of(other, "d", {}) != key


def test_a_protocol_is_a_mapping_or_has_as_dict() -> None:
    work = StubWorkload(StubBackend("b"))
    assert key_of(work, "d", StubProtocol("cold")) == key_of(work, "d", {"weights": "cold"})
    assert key_of(work, "d", StubProtocol("cold")) != key_of(work, "d", StubProtocol("hot"))


def test_many_workloads_ask_each_backend_once() -> None:
    one, two = StubBackend("one"), StubBackend("two", "7")
    keys = keys_of([StubWorkload((one, two)[i % 2], str(i)) for i in range(100)], "d", {})
    assert [key.structure for key in keys] == [str(i) for i in range(100)]
    assert keys[3].backend_version == "7"
    assert (one.asked, two.asked) == (1, 1)


def test_a_configuration_that_json_cannot_hold_is_an_error() -> None:
    with pytest.raises(RecordsError, match="object"):
        key_of(StubWorkload(StubBackend("b", handle=object())), "d", {})


def test_plans_do_not_depend_on_the_order_of_backends_and_transitions_do() -> None:
    a, b = StubBackend("a", "1"), StubBackend("b", "2")
    assert plan_key("p", [a, b], "d", 2, {}) == plan_key("p", [b, a], "d", 2, {})
    assert plan_key("p", [a, b], "d", 2, {}).backend == "a+b"
    there, back = transition_key("t", a, b, "d", 2, {}), transition_key("t", b, a, "d", 2, {})
    assert (there.kind, there.backend, there.backend_version) == ("transition", "a->b", "1->2")
    assert there != back


def test_keys_of_several_backends_stay_few_however_much_earlier_code_was_equivalent() -> None:
    """The earlier code of five backends has a hundred thousand combinations; that of two, looked for, has fewer."""
    backends = [plugins.load("backends", name) for name in ("tvm", "openvino", "onnxruntime", "onednn", "winograd")]
    assert plan_key("p", backends, "d", 2, {}).equivalent == ()
    one, other = backends[3:]
    key = transition_key("t", one, other, "d", 2, {})
    assert key.configuration == digest_of([configuration_of(one), configuration_of(other)])
    counts = [len(equivalent_configurations(backend)) + 1 for backend in (one, other)]
    assert len(set(key.equivalent)) == len(key.equivalent) == counts[0] * counts[1] - 1 > 0
