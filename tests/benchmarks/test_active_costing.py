"""The benchmark of active costing: a plan by few of the records, against the plan by all of them."""

import re
from pathlib import Path

import pytest

from benchmarks.active import compare, main
from benchmarks.estimators.networks import ELSEWHERE, Key, Network
from collage.records import Record, RecordDatabase
from estimators.cost_model.model import CostModel
from tests.benchmarks.test_estimator_networks import THREADS, networks, records

pytestmark = pytest.mark.long

__all__ = ["networks", "records"]


@pytest.fixture(scope="module")
def model(records: dict[Key, Record]) -> CostModel:
    return CostModel(rounds=10).fit(list(records.values()))


def test_what_is_measured_stays_in_the_budget_and_a_bigger_one_loses_no_more(
    networks: list[Network], records: dict[Key, Record], model: CostModel
) -> None:
    losses = {}
    for share in (0.2, 1.0):
        _, total, measured, _, loss = compare(networks[0], model, {"share": share}, records, {}, run=False)
        assert 0 < int(measured.split()[0]) <= share * int(total)
        losses[share] = float(loss.rstrip("%"))
    assert 0.0 <= losses[1.0] <= losses[0.2]


def test_what_was_searched_and_what_ships_are_run(
    networks: list[Network], records: dict[Key, Record], model: CostModel
) -> None:
    *_, searched, ships = compare(networks[0], model, {"share": 0.05}, records, {}, run=True)
    for cell in (searched, ships):
        assert cell == "the same" or re.fullmatch(r"\d+\.\d{3} \(\d+\.\d{3} to \d+\.\d{3}\)", cell)


def test_records_of_another_machine_are_replayed_and_nothing_is_run(
    records: dict[Key, Record], model: CostModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RecordDatabase(tmp_path / "r.db") as database:
        database.put_many(records.values())
    model.save(tmp_path / "tiny_resnet.json.gz")
    where = ["--records", str(tmp_path / "r.db"), "--models", str(tmp_path), "--threads", str(THREADS)]
    main(["tiny_resnet", *where, "--backends", "tvm,onnxruntime", "--end-to-end"])
    told = capsys.readouterr().out
    assert ELSEWHERE in told and "tiny_resnet" in told
