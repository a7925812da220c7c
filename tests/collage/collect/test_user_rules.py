"""Collecting goes by a user's rules, and over several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tvm import relax

from collage.backends.tvm.backend import TVMBackend
from collage.collect.collection import _candidates, collect
from collage.collect.sampling import whole_workloads
from collage.measure import workers
from collage.records import RecordDatabase
from collage.rules import OpPredicatePartitionRule, PartitionRule
from tests.collage.collect.test_collection import network, two_products
from tests.e2e.two_devices.backend import SecondDevice
from tests.estimators.test_one_thread import Process


def only(operator: str) -> PartitionRule:
    return OpPredicatePartitionRule(lambda node: node.op == operator)


def relu() -> Any:
    return network([(4, 8)], lambda emit, x: emit(relax.op.nn.relu(x)))


def test_candidates_are_those_of_the_users_rule() -> None:
    narrow = {"tvm": TVMBackend().with_rule(only("relax.nn.relu"))}
    groups = _candidates(two_products(), narrow, device="cpu", threads=1, seed=0)
    assert [[workload.operators for workload in group] for group in groups] == [[("relax.nn.relu",)]]


def test_variants_are_whole_by_the_users_rule() -> None:
    takes, takes_not = (TVMBackend().with_rule(only(name)) for name in ("relax.nn.relu", "relax.exp"))
    assert len(whole_workloads(relu(), {"tvm": takes}, threads=1)) == 1
    assert whole_workloads(relu(), {"tvm": takes_not}, threads=1) == []


def test_backends_of_several_devices_are_measured_each_on_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "Runner", Process)  # which asks that what it times is of one device
    monkeypatch.setattr(workers, "build_all", lambda given, *_: [preparation.artifact for preparation in given])
    monkeypatch.setattr("collage.measure.probe.build_all", lambda given, *_: [p.artifact for p in given])
    found = collect(
        [relu()],
        [TVMBackend(), SecondDevice()],
        devices=["cpu", "cpu:1"],
        records=tmp_path / "records.db",
        samples=0,
        threads=1,
    )
    assert (found.measured, found.invalid, found.complete) == (2, 0, True)
    with RecordDatabase(tmp_path / "records.db") as database:
        assert {record.key.backend for record in database.matching(kind="candidate")} == {"tvm", "second"}
