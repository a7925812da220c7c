"""CostModel learns latencies from records of real networks, says how sure it is, and refuses what it cannot use."""

import gzip
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collage.errors import CollageError, RecordsError
from collage.records import Record, read_log
from estimators.cost_model.analytic import Analytic
from estimators.cost_model.conformal import conformal_quantile, group_weights, observed_coverage
from estimators.cost_model.data.training_set import training_set
from estimators.cost_model.model import CostModel
from estimators.features.columns import WORK_NAMES

LOG = Path(__file__).parent / "data" / "records.jsonl.gz"


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return list(read_log(LOG))


@pytest.fixture(scope="module")
def valid(records: list[Record]) -> list[Record]:
    return [r for r in records if r.status == "ok"]


@pytest.fixture(scope="module")
def model(records: list[Record]) -> CostModel:
    return CostModel(rounds=60, threads=1).fit(records)


@pytest.fixture
def saved(model: CostModel, tmp_path: Path) -> Path:
    model.save(tmp_path / "cost.json")
    return tmp_path / "cost.json"


def test_it_knows_what_it_has_seen(model: CostModel, valid: list[Record]) -> None:
    truth = np.array([r.seconds for r in valid])
    assert np.median(np.abs(model.predict(valid) / truth - 1)) < 0.35
    assert model.score(valid) > 0.9


def test_on_networks_left_out_it_beats_the_roofline(model: CostModel) -> None:
    from estimators.cost_model.model import _task_of_record
    from estimators.features.batch import Roofline, features_of

    data = model.training_set_
    table = features_of([_task_of_record(r) for r in data.records], Roofline.of(model.device_info_))
    roofline = np.log(table.roofline)
    gap = np.median(data.log_seconds - roofline)  # even with its level fitted
    assert np.mean(np.abs(model.held_out_.log_seconds - data.log_seconds)) < 0.7 * np.mean(
        np.abs(roofline + gap - data.log_seconds)
    )


def test_intervals_hold_about_the_stated_share_of_networks_left_out(model: CostModel) -> None:
    report = model.errors()
    assert report.rows[0].name == "all"
    assert 0.8 <= report.rows[0].coverage <= 0.97


def test_errors_keep_the_prediction_of_each_record_and_its_interval(model: CostModel) -> None:
    report = model.errors()
    assert len(report.predictions) == report.rows[0].count and len({p.network for p in report.predictions}) == 10
    assert all(
        p.low < p.predicted < p.high and p.record.seconds == pytest.approx(p.seconds) for p in report.predictions
    )
    inside = np.mean([p.low <= p.seconds <= p.high for p in report.predictions])
    assert inside == pytest.approx(report.rows[0].coverage) and report.coverage == 0.9


def test_observed_coverage_grows_with_the_nominal_one(model: CostModel) -> None:
    report = model.errors()
    assert {c.name for c in report.calibration} == {"all", "onnxruntime", "openvino", "tvm"}
    observed = [c.observed for c in report.calibration if c.name == "all"]
    assert observed == sorted(observed) and 0.8 < observed[4] < 0.97


def test_it_says_of_which_operators_it_has_no_records(model: CostModel) -> None:
    unseen = model.errors().unseen
    assert "nn.conv2d" not in unseen["any backend"] and "nn.conv1d_transpose" in unseen["any backend"]


def test_scores_of_a_group_are_held_by_quantiles_of_the_others() -> None:
    scores, groups = np.array([1.0, 1.0, 2.0, 2.0]), np.array([0, 0, 1, 1])
    found = observed_coverage(scores, groups, np.array([0.5, 0.9]))
    np.testing.assert_allclose(found, [0.5, 0.5], err_msg="the group of ones")
    many = np.linspace(0.0, 1.0, 1000)
    found = observed_coverage(many, np.arange(1000), np.array([0.5, 0.9]))
    np.testing.assert_allclose(found, [0.5, 0.9], atol=0.01)


def test_intervals_lie_around_predictions(model: CostModel, valid: list[Record]) -> None:
    low, high = model.predict_interval(valid)
    predicted = model.predict(valid)
    assert np.all((low > 0) & (low < predicted) & (predicted < high))


def test_the_same_records_give_the_same_model(valid: list[Record]) -> None:
    some = valid[:150]
    first, second = CostModel(rounds=10, threads=1).fit(some), CostModel(rounds=10, threads=1).fit(reversed(some))
    assert np.array_equal(first.predict(valid), second.predict(valid))
    assert first.training_ == second.training_


def test_a_saved_model_predicts_bit_by_bit_the_same(model: CostModel, saved: Path, valid: list[Record]) -> None:
    loaded = CostModel.load(saved)
    assert np.array_equal(loaded.predict(valid), model.predict(valid))
    assert np.array_equal(loaded.predict_interval(valid), model.predict_interval(valid))
    assert loaded.get_params() == model.get_params()


def test_a_model_file_is_plain_json(saved: Path) -> None:
    content = json.loads(saved.read_text())
    assert content["format"] == "collage-cost-model"
    assert set(content["libraries"]) == {"xgboost", "numpy", "scikit-learn"}
    assert content["training"]["fingerprint"]


def test_a_model_file_may_be_compressed(model: CostModel, tmp_path: Path, valid: list[Record]) -> None:
    model.save(tmp_path / "cost.json.gz")
    gzip.decompress((tmp_path / "cost.json.gz").read_bytes())
    assert np.array_equal(CostModel.load(tmp_path / "cost.json.gz").predict(valid), model.predict(valid))


def changed(path: Path, **fields: object) -> Path:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return path


def test_a_truncated_model_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(CollageError, match="cut off"):
        CostModel.load(saved)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"format": "something else"}, "is no cost model"),
        ({"version": 99}, "version 99, not 3"),
        ({"feature_version": 0}, "features of version 0"),
        ({"work_features": []}, "other features"),
        ({"backends": []}, r"damaged cost model .*backends"),
        ({"backends": {"tvm": {"analytic": {}}}}, "damaged cost model"),
        ({"parameters": {"colour": "blue"}}, "damaged cost model"),
        ({"contrasts": {}}, r"damaged cost model .*contrasts"),
        ({"contrasts": [{"first": "tvm"}]}, "damaged cost model"),
    ],
)
def test_a_foreign_model_is_refused(saved: Path, fields: dict, words: str) -> None:
    with pytest.raises(CollageError, match=words):
        CostModel.load(changed(saved, **fields))


def test_loading_a_model_executes_nothing(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple:
            return Path.touch, (tmp_path / "executed",)

    (tmp_path / "cost.json").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(CollageError, match="is no cost model"):
        CostModel.load(tmp_path / "cost.json")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("keep", [0, 1, 20, 5000])
def test_a_model_cut_off_anywhere_is_refused(model: CostModel, tmp_path: Path, keep: int) -> None:
    for name in ("cost.json", "cost.json.gz"):
        model.save(tmp_path / name)
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:keep])
        with pytest.raises(CollageError, match=r"cut off|damaged"):
            CostModel.load(tmp_path / name)


@pytest.mark.parametrize("where", [("quantile",), ("shift",), ("analytic", "call.calls", 0), ("reach", "operators", 1)])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), "1e", None])
def test_a_model_with_a_number_that_is_none_is_refused(saved: Path, where: tuple, number: object) -> None:
    content = json.loads(saved.read_text())
    inner = content["backends"]["tvm"]
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = number
    saved.write_text(json.dumps(content))
    with pytest.raises(CollageError, match="damaged cost model"):
        CostModel.load(saved)


def test_a_missing_model_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CollageError, match="cannot be read"):
        CostModel.load(tmp_path / "none.json")


def test_nothing_to_learn_from() -> None:
    with pytest.raises(CollageError, match=r"at least 30 .* of 0 records 0 can be used"):
        CostModel().fit([])


def test_invalid_records_are_left_out(records: list[Record]) -> None:
    assert training_set(records).ignored["invalid"] == sum(r.status == "invalid" for r in records) > 0


def test_what_was_measured_several_times_counts_once_with_the_mean(valid: list[Record]) -> None:
    first = valid[0]
    again = replace(first, seconds=4 * (first.seconds or 0), timestamp="2099-01-01T00:00:00.000000+00:00")
    once, twice = training_set(valid), training_set([again, *valid])
    assert len(twice.records) == len(once.records)
    place = [r.key for r in once.records].index(first.key)
    assert twice.records[place].key == first.key, "and stands where it was measured first"
    assert twice.log_seconds[place] == pytest.approx(once.log_seconds[place] + np.log(2))
    assert np.delete(twice.log_seconds, place) == pytest.approx(np.delete(once.log_seconds, place))


def test_what_failed_when_it_was_measured_again_is_left_out(valid: list[Record]) -> None:
    failed = replace(valid[0], status="invalid", seconds=None, timestamp="2099-01-01T00:00:00.000000+00:00")
    assert valid[0].key not in [r.key for r in training_set([*valid, failed]).records]


@pytest.mark.parametrize("field", ["seconds", "spread"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0])
def test_latencies_that_are_no_numbers_are_refused_before_they_can_be_learned_from(
    valid: list[Record], field: str, number: float
) -> None:
    with pytest.raises(RecordsError, match="finite and not negative"):
        replace(valid[0], **{field: number})


@pytest.mark.long
def test_an_outlier_bends_nothing(valid: list[Record]) -> None:
    some = valid[:200]
    wrong = [replace(some[0], seconds=1e3 * some[0].seconds), *some[1:]]
    predicted, bent = (CostModel(rounds=20, threads=1).fit(r).predict(some) for r in (some, wrong))
    assert np.median(np.abs(bent / predicted - 1)) < 0.05


def test_mixed_devices_are_refused(valid: list[Record]) -> None:
    other = [replace(r, key=replace(r.key, device="cpu-other")) for r in valid[:40]]
    with pytest.raises(CollageError, match="2 devices"):
        CostModel().fit([*valid, *other])


def test_mixed_protocols_are_refused(valid: list[Record]) -> None:
    other = [replace(r, key=replace(r.key, protocol='{"weights":"hot"}')) for r in valid[:40]]
    with pytest.raises(CollageError, match="2 measuring protocols"):
        CostModel().fit([*valid, *other])


def test_groups_are_one_for_each_record(valid: list[Record]) -> None:
    with pytest.raises(CollageError, match="one for each record"):
        CostModel().fit(valid, groups=[1, 2])


def test_a_malformed_description_is_one_clear_line(valid: list[Record]) -> None:
    broken = replace(valid[0], description={"nodes": [{"op": "relax.add"}]})
    with pytest.raises(CollageError, match="description cannot be read"):
        CostModel().fit([*valid, replace(broken, key=replace(broken.key, structure="x"))])


def test_uncertain_latencies_count_less(valid: list[Record]) -> None:
    noisy = [replace(valid[0], spread=valid[0].seconds), *(replace(r, spread=0.0) for r in valid[1:60])]
    data = training_set(noisy)
    assert data.weights[data.records.index(noisy[0])] < 0.2 * data.weights.max()


@pytest.mark.long
def test_few_records_of_a_backend_are_pooled_with_the_others(valid: list[Record]) -> None:
    scarce = [r for r in valid if r.key.backend != "tvm"] + [r for r in valid if r.key.backend == "tvm"][:20]
    fitted = CostModel(rounds=20, threads=1).fit(scarce)
    assert fitted.backends_["tvm"].shift != 0.0
    assert np.all(np.isfinite(fitted.predict(valid)))


def test_another_backend_or_device_is_refused(model: CostModel, valid: list[Record]) -> None:
    record = valid[0]
    with pytest.raises(CollageError, match="nothing of tpu"):
        model.predict([replace(record, key=replace(record.key, backend="tpu"))])
    with pytest.raises(CollageError, match="of device"):
        model.predict([replace(record, key=replace(record.key, device="cpu-other"))])


def test_an_unfitted_model_says_so() -> None:
    with pytest.raises(CollageError, match="not fitted"):
        CostModel().predict([])


def test_nothing_is_predicted_for_nothing(model: CostModel) -> None:
    assert len(model.predict([])) == 0


def test_the_weight_of_a_network_grows_with_the_root_of_its_workloads() -> None:
    weights = group_weights(np.array([0, 0, 0, 0, 1]))
    assert weights == pytest.approx([1 / 6] * 4 + [1 / 3])


def test_the_quantile_holds_its_share() -> None:
    scores = np.arange(1.0, 100.0)
    assert conformal_quantile(scores, np.arange(99), 0.9) == 90.0
    with pytest.raises(ValueError, match="needs scores"):
        conformal_quantile(np.array([]), np.array([]), 0.9)


def test_the_analytic_part_recovers_costs_that_add_up() -> None:
    rng = np.random.default_rng(0)
    work = np.zeros((300, len(WORK_NAMES)))
    used = [WORK_NAMES.index(name) for name in ("matmul.flops", "elementwise.calls", "call.calls")]
    work[:, used] = 10.0 ** rng.uniform(-6, -3, (300, 3))
    true = np.array([1.5, 4.0, 20.0])
    fitted = Analytic.fit(work, np.log(work[:, used] @ true), np.ones(300))
    assert fitted.costs[used] == pytest.approx(true, rel=0.05)
    assert fitted.seen.sum() == 3 and np.all(fitted.costs >= 0)


def test_work_that_was_never_seen_costs_what_resembles_it() -> None:
    work = np.zeros((40, len(WORK_NAMES)))
    work[:, WORK_NAMES.index("convolution.flops")] = np.geomspace(1e-5, 1e-2, 40)
    fitted = Analytic.fit(work, np.log(3.0 * work.sum(axis=1)), np.ones(40))
    other = np.zeros((1, len(WORK_NAMES)))
    other[0, WORK_NAMES.index("transposed.flops")] = 1e-3
    log_seconds, _, unseen = fitted.predict(other)
    assert np.exp(log_seconds[0]) == pytest.approx(3e-3, rel=0.05)
    assert unseen[0] == pytest.approx(1.0)


@pytest.fixture(scope="module")
def with_int8(records: list[Record]) -> CostModel:
    """Of one backend, whose records with all products in eight bits are there, too, at a third of the latency."""
    own = [r for r in records if r.key.backend == "openvino"]
    return CostModel(rounds=15, threads=1).fit([*own, *map(in_eight_bits, _products(records))])


def _products(records: list[Record]) -> list[Record]:
    return [r for r in records if r.key.backend == "openvino" and r.seconds and _positions(r)]


def _positions(record: Record) -> tuple[int, ...]:
    return tuple(i for i, name in enumerate(record.operators) if name in ("relax.nn.conv2d", "relax.matmul"))


def in_eight_bits(record: Record) -> Record:
    key = replace(record.key, composites=(("int8", _positions(record)),))
    return replace(record, key=key, seconds=(record.seconds or 0.0) / 3)


def test_products_in_eight_bits_have_a_model_of_their_own(
    with_int8: CostModel, records: list[Record], tmp_path: Path
) -> None:
    some = _products(records)
    labelled = list(map(in_eight_bits, some))
    assert set(with_int8.backends_) == {"openvino", "openvino+int8"} and not with_int8.ratios_
    truth = np.array([r.seconds for r in some])
    assert np.median(np.abs(with_int8.predict(some) / truth - 1)) < 0.35
    assert np.median(np.abs(with_int8.predict(labelled) / (truth / 3) - 1)) < 0.35
    assert "openvino+int8" in [row.name for row in with_int8.errors().rows]
    with_int8.save(tmp_path / "cost.json")
    assert list(CostModel.load(tmp_path / "cost.json").predict(labelled)) == list(with_int8.predict(labelled))


def test_a_model_that_has_not_seen_eight_bits_says_so(model: CostModel, records: list[Record]) -> None:
    with pytest.raises(CollageError, match=r"nothing of openvino\+int8"):
        model.predict([in_eight_bits(_products(records)[0])])
