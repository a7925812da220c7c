"""What is left out with a network, what its placements lose, and what the baselines tell."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.estimators.__main__ import main
from benchmarks.estimators.baselines import BASELINES
from benchmarks.estimators.networks import (
    ELSEWHERE,
    NO_NETWORK,
    Key,
    Network,
    belongings_of,
    key_of,
    leave_out,
    recorded_candidates,
    recorded_tuning_seconds,
)
from benchmarks.estimators.regret import Placements, end_to_end, partitioning_seconds
from collage.backends.resolve import resolve_backends
from collage.collect.sampling import draw_variants
from collage.collect.variants import skeleton
from collage.cost.cost import Cost
from collage.cost.estimator import Workload
from collage.errors import RecordsError
from collage.measure.protocol import Protocol
from collage.records import Record, RecordDatabase
from collage.records.key import keys_of

THREADS = 1


def made_up(workloads: Sequence[Workload]) -> dict[Key, Record]:
    """Records of made-up costs: a millisecond per operator, more or less by structure and backend, second by second."""
    keys = keys_of(workloads, "a device", Protocol())
    found = {}
    for second, (workload, key) in enumerate(zip(workloads, keys, strict=True)):
        seconds = 1e-3 * len(workload.operators) * random.Random(repr(key_of(workload))).uniform(0.5, 2.0)
        record = Record.of(key, Cost(seconds, 0.0, 7), description=workload.description, operators=workload.operators)
        stamp = f"2026-01-31T12:{second // 60:02}:{second % 60:02}.000000+00:00"
        found[key_of(workload)] = replace(record, timestamp=stamp)
    return found


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    backends = resolve_backends(["onnxruntime", "tvm"])
    return [Network(name, backends, THREADS) for name in ("tiny_resnet", "tiny_bert")]


@pytest.fixture(scope="module")
def records(networks: list[Network]) -> dict[Key, Record]:
    return made_up(list(dict.fromkeys(w for network in networks for w in network.workloads.values())))


def test_no_structure_of_the_tested_network_is_trained_on(networks: list[Network], records: dict[Key, Record]) -> None:
    for tested in networks:
        fold = leave_out(tested, networks, records)
        assert {r.key.structure for r in fold.training}.isdisjoint(tested.structures)
        assert {r.key.structure for r in fold.test} <= tested.structures
        assert len(fold.training) + len(fold.test) == len(records)


def test_a_structure_that_two_networks_share_is_left_out_with_either(
    networks: list[Network], records: dict[Key, Record]
) -> None:
    twin = networks[0]
    with pytest.raises(RecordsError, match="0 to train on"):
        leave_out(twin, [twin, twin], {k: r for k, r in records.items() if r.key.structure in twin.structures})


def test_failures_are_neither_trained_on_nor_tested(networks: list[Network], records: dict[Key, Record]) -> None:
    key = next(key for key, r in records.items() if r.key.structure in networks[0].structures)
    broken = {**records, key: replace(records[key], status="invalid", seconds=None)}
    whole, less = (leave_out(networks[0], networks, found) for found in (records, broken))
    assert len(less.test) == len(whole.test) - 1


def test_variants_made_around_the_tested_network_alone_are_left_out(
    networks: list[Network], records: dict[Key, Record]
) -> None:
    resnet = networks[0]
    convolution = next(w for w in resnet.workloads.values() if w.operators == ("relax.nn.conv2d",))
    (variant,) = draw_variants([[convolution]], resnet.backends, THREADS, 1, random.Random(0))
    collected = made_up(variant)
    assert {skeleton(r.description) for r in collected.values() if r.description} <= resnet.skeletons
    for tested, used in zip(networks, (False, True), strict=True):
        fold = leave_out(tested, networks, {**records, **collected})
        assert {r in fold.training for r in collected.values()} == {used}
        # They say nothing of how far off a model is on a whole network that it has not seen.
        marked = {r for r, designed in zip(fold.training, fold.designed, strict=True) if designed}
        assert marked == (set(collected.values()) if used else set())


def test_right_predictions_have_no_regret_and_wrong_ones_have(
    networks: list[Network], records: dict[Key, Record]
) -> None:
    for network in networks:
        costs = {key: records[key].cost for key in network.keys.values()}
        placements = Placements(network, costs, {})
        right = placements.regret({key: cost.seconds for key, cost in costs.items()})
        scaled = placements.regret({key: 3.0 * cost.seconds for key, cost in costs.items()})
        wrong = placements.regret({key: 1e-6 / cost.seconds for key, cost in costs.items()})
        assert right.additive == scaled.additive == 1.0 and right.same
        assert wrong.additive > 1.01 and not wrong.same
        placement = right.predicted.candidates
        assert end_to_end(network, placement, tuple(reversed(placement))) == (1.0, 1.0, 1.0)


def test_a_placement_that_cannot_run_has_infinite_regret(networks: list[Network], records: dict[Key, Record]) -> None:
    network = networks[0]
    costs = {key: records[key].cost for key in network.keys.values()}
    tempting = Placements(network, costs, {}).regret({key: c.seconds for key, c in costs.items()}).recorded.partitions
    broken = network.keys[tempting[0]]
    placements = Placements(network, {**costs, broken: Cost.invalid("crashed")}, {})
    told = {key: records[key].cost.seconds for key in costs}
    assert math.isinf(placements.regret(told).additive)


def test_candidates_without_a_record_are_no_choice(networks: list[Network], records: dict[Key, Record]) -> None:
    costs = {key: records[key].cost for key in networks[0].keys.values()}
    assert Placements(networks[0], costs, {}).share == 1.0
    native = {key: cost for key, cost in costs.items() if key[1] == "tvm"}
    placements = Placements(networks[0], native, {})
    assert placements.share < 1.0
    found = placements.regret({key: cost.seconds for key, cost in native.items()})
    assert {c.backend for c in found.predicted.partitions} == {"tvm"}


def test_recorded_tuning_time_leaves_pauses_and_other_networks_out(
    networks: list[Network], records: dict[Key, Record]
) -> None:
    first = networks[0]
    mine = [key for key in records if key[0] in first.structures]
    assert recorded_tuning_seconds(first, records) == len(mine) - 1
    later = {k: replace(r, timestamp=r.timestamp.replace("T12", "T17")) for k, r in records.items() if k == mine[-1]}
    assert recorded_tuning_seconds(first, {**records, **later}) == len(mine) - 2


class Constant:
    def predict(self, workloads: Sequence[Workload]) -> np.ndarray:
        return np.array([1e-3 * len(w.operators) for w in workloads])


def test_placing_by_prediction_is_timed_step_by_step(networks: list[Network]) -> None:
    times = partitioning_seconds(networks[0].module, networks[0].backends, THREADS, Constant(), {})
    assert list(times) == ["enumeration", "description", "prediction", "search", "total"]
    assert times["total"] == pytest.approx(sum(list(times.values())[:-1]))


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_follow_the_work_and_know_a_backend_from_another(
    name: str, networks: list[Network], records: dict[Key, Record]
) -> None:
    training = [r for r in records.values() if r.key.structure in networks[0].structures]
    slower = [replace(r, seconds=10 * (r.seconds or 0.0)) if r.key.backend == "tvm" else r for r in training]
    even, uneven = (BASELINES[name]() for _ in range(2))
    even.fit(training)
    uneven.fit(slower)
    native = np.array([r.key.backend == "tvm" for r in training])
    ratio = uneven.predict(training) / even.predict(training)
    np.testing.assert_allclose(ratio, np.where(native, 10.0, 1.0), rtol=1e-6)
    stranger = [replace(r, key=replace(r.key, backend="stranger")) for r in training[:3]]
    assert np.isnan(even.predict(stranger)).all()


def test_the_nearest_neighbour_of_a_record_is_itself(networks: list[Network], records: dict[Key, Record]) -> None:
    training = [r for r in records.values() if r.key.structure in networks[0].structures]
    model = BASELINES["nearest"]()
    model.fit(training)
    close = np.isclose(model.predict(training), [r.seconds or 0.0 for r in training])
    assert close.mean() > 0.8  # structures that differ in what no feature tells are each other's neighbours


def test_the_command_line_reads_a_database_and_writes_a_row_per_network_model_and_backend(
    records: dict[Key, Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RecordDatabase(tmp_path / "r.db") as database:
        database.put_many(records.values())
    assert recorded_candidates([tmp_path / "r.db"], THREADS) == records
    rows = tmp_path / "rows.jsonl"
    options = ["tiny_resnet", "--among", "tiny_resnet,tiny_bert", "--threads", "1", "--models", "roofline,nearest"]
    options.append("--end-to-end")
    cache = ["--networks", str(tmp_path / "networks.json")]
    main([*options, "--records", str(tmp_path / "r.db"), "--out", str(rows), *cache])
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    scored = {(row["network"], row["model"], row["backend"]) for row in found if "mape" in row}
    assert scored == {("tiny_resnet", m, b) for m in ("roofline", "nearest") for b in ("onnxruntime", "tvm")}
    regrets = [row["additive_regret"] for row in found if "additive_regret" in row]
    assert len(regrets) == 2 and min(regrets) >= 1.0
    told = capsys.readouterr().out
    assert "MAPE" in told and ELSEWHERE in told


def test_the_command_line_refuses_what_it_cannot_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, message in ((["--models", "oracle"], "oracle"), ([], "cannot be read")):
        with pytest.raises(SystemExit) as ended:
            main([*options, "--records", str(tmp_path / "none.db"), "--out", str(tmp_path / "rows.jsonl")])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


def test_designed_blocks_are_trained_on_whatever_is_tested_but_for_its_very_structures(
    networks: list[Network], records: dict[Key, Record]
) -> None:
    resnet = networks[0]
    convolution = next(w for w in resnet.workloads.values() if w.operators == ("relax.nn.conv2d",))
    (variant,) = draw_variants([[convolution]], resnet.backends, THREADS, 1, random.Random(0))
    designed = made_up(variant)
    own = next(key for key in records if key[0] in resnet.structures)
    fold = leave_out(resnet, networks, {**records, **designed}, {*designed, own})
    assert set(designed.values()) <= set(fold.training) and records[own] not in fold.training
    groups = dict(zip((r.key.digest for r in fold.training), fold.groups, strict=True))
    assert {groups[r.key.digest] for r in designed.values()} == {NO_NETWORK}
    assert set(groups.values()) == {NO_NETWORK, networks[1].name}


def test_what_belongs_to_a_network_is_looked_up_the_second_time(networks: list[Network], tmp_path: Path) -> None:
    tiny, backends = networks[0], networks[0].backends
    first, built = belongings_of(tiny.name, backends, THREADS, tmp_path / "cache.json")
    again, none = belongings_of(tiny.name, backends, THREADS, tmp_path / "cache.json")
    assert built is not None and none is None
    assert first == again and first.structures == tiny.structures and first.skeletons == tiny.skeletons
    fewer = {"tvm": backends["tvm"]}
    assert belongings_of(tiny.name, fewer, THREADS, tmp_path / "cache.json")[1] is not None


def test_an_evaluation_that_is_complete_is_only_printed_again(
    records: dict[Key, Record], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RecordDatabase(tmp_path / "r.db") as database:
        database.put_many(records.values())
    options = ["tiny_resnet", "--among", "tiny_resnet,tiny_bert", "--threads", "1", "--models", "roofline"]
    places = [
        "--records",
        str(tmp_path / "r.db"),
        "--out",
        str(tmp_path / "o.jsonl"),
        "--networks",
        str(tmp_path / "n"),
    ]
    main([*options, *places])
    first = capsys.readouterr().out
    monkeypatch.setattr("benchmarks.estimators.__main__.Network", None)
    main([*options, *places])
    assert capsys.readouterr().out == first.replace("tiny_resnet: done\n", "")
