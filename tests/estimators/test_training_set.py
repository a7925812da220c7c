"""Which records a cost model learns from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from collage.backends import code
from collage.records import Record
from collage.records.key import canonical_json, digest_of
from estimators.cost_model.data import training_set as cost_model_data
from estimators.cost_model.data.training_set import training_set


def tvm_records(measured: list[Record], configuration: str) -> list[Record]:
    """Records of TVM's candidates, half of them of another configuration; the last one is the newest."""
    ours = sorted((r for r in measured if r.key.backend == "tvm"), key=lambda r: r.timestamp)
    older = [replace(r, key=replace(r.key, configuration=configuration)) for r in ours[::2]]
    return [*older, *ours[1::2], replace(ours[-1], timestamp="2999-01-01T00:00:00.000000+00:00")]


def test_records_of_an_older_configuration_are_left_out(measured: list[Record]) -> None:
    data = training_set(tvm_records(measured, "older"))
    assert {r.key.configuration for r in data.records} == {data.records[-1].key.configuration}
    assert data.ignored["older backend"] > 0


def test_records_of_an_equivalent_configuration_are_learned_from(
    measured: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One new record after files were moved must not discard fifty thousand old ones."""
    declared = {"tvm": code._Equivalent({"tuning": "none"}, [["before", "after"]])}
    monkeypatch.setattr(code, "_equivalences", lambda: declared)
    monkeypatch.setattr(cost_model_data, "_representative", cost_model_data._representative.__wrapped__)
    before, after = (digest_of({"code": each, "tuning": "none"}) for each in ("before", "after"))
    newer = [replace(r, key=replace(r.key, configuration=after)) for r in measured if r.key.backend == "tvm"]
    data = training_set(tvm_records(newer, before))
    assert "older backend" not in data.ignored
    assert {r.key.configuration for r in data.records} == {before, after}


def test_all_configurations_are_a_choice(measured: list[Record]) -> None:
    records = tvm_records(measured, "older")
    data = training_set(records, configurations="all")
    assert "older backend" not in data.ignored and len(data.records) > len(training_set(records).records)


def test_records_of_the_commonest_working_set_are_learned_from(measured: list[Record]) -> None:
    protocol = json.loads(measured[0].key.protocol)
    warm = canonical_json({**protocol, "evict_bytes": 1 << 20})
    small = [replace(r, key=replace(r.key, protocol=warm)) for r in measured[:40]]
    data = training_set([*measured[40:], *small])
    assert {r.key.protocol for r in data.records} == {measured[0].key.protocol}
    assert 0 < data.ignored["another working set"] <= 40


def test_records_of_more_and_of_fewer_samples_are_learned_from_together(measured: list[Record]) -> None:
    """As of before and after the default changed: else one new record would make all old ones useless, or an error."""
    protocol = json.loads(measured[0].key.protocol)
    longer = canonical_json({**protocol, "max_samples": 2 * protocol["max_samples"]})
    data = training_set([*measured[40:], *(replace(r, key=replace(r.key, protocol=longer)) for r in measured[:40])])
    assert {r.key.protocol for r in data.records} == {measured[0].key.protocol, longer}
    assert "another working set" not in data.ignored
