"""The ratio of two backends, learned from workloads that both were measured on, shows which of them is faster."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collage.errors import CollageError
from collage.records import Record
from estimators.cost_model.model import CostModel


@pytest.fixture(scope="module")
def both(measured: list[Record]) -> list[Record]:
    """Two backends, one a fifth faster wherever there is a convolution and slower elsewhere, measured in bad minutes:
    each workload took up to half as long again, on both.
    """
    result = []
    chance = np.random.default_rng(0)
    for record in measured:
        if record.key.backend == "openvino":
            bad, factor = chance.uniform(0.67, 1.5), 0.8 if _convolves(record) else 1.25
            result.append(replace(record, seconds=record.seconds * bad))
            key = replace(record.key, backend="onnxruntime")
            result.append(replace(record, key=key, seconds=record.seconds * bad * factor))
    return result


def _convolves(record: Record) -> bool:
    return any("conv" in node["op"] for node in record.description["nodes"])


def test_it_names_the_faster_backend_more_often(both: list[Record]) -> None:
    half = len(both) // 4 * 2
    learned, asked = both[:half], both[half:]
    model = CostModel(rounds=60, threads=1).fit(learned + _copies(learned))
    assert [(c.first, c.second) for c in model.ratios_] == [("onnxruntime", "openvino")]
    truth = np.log([0.8 if _convolves(r) else 1.25 for r in asked[::2]])
    off = {}
    for name, ratios in (("with", model.ratios_), ("without", ())):
        model.ratios_ = ratios
        predicted = np.log(model.predict(asked))
        off[name] = np.mean(np.abs(predicted[1::2] - predicted[::2] - truth))
    assert off["with"] < 0.95 * off["without"]


def _copies(records: list[Record]) -> list[Record]:
    """Enough for a model of each backend's own: as many under other structures."""
    return [replace(r, key=replace(r.key, structure=f"{r.key.structure}-again")) for r in records]


def test_backends_that_take_different_workloads_have_no_ratio(measured: list[Record]) -> None:
    model = CostModel(rounds=5, threads=1).fit(measured)  # TVM takes some that the others do not
    assert [(c.first, c.second) for c in model.ratios_] == [("onnxruntime", "openvino")]


def test_a_prediction_is_the_same_alone_and_among_others(measured: list[Record]) -> None:
    model = CostModel(rounds=5, threads=1).fit(measured)
    together = model.predict(measured)
    assert all(model.predict([r])[0] == pytest.approx(t, rel=1e-6) for r, t in zip(measured, together, strict=True))


def test_a_ratio_of_a_backend_that_the_model_does_not_know_is_refused(measured: list[Record], tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    CostModel(rounds=5, threads=1).fit(measured).save(path)
    content = json.loads(path.read_text())
    content["contrasts"][0]["first"] = "dnnl"
    path.write_text(json.dumps(content))
    with pytest.raises(CollageError, match=r"damaged cost model .*backends that it does not know"):
        CostModel.load(path)
