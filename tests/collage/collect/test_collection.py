"""Collecting training data: legal variants, each measured once, outliers twice; an interrupted collection resumes."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tvm import relax

from collage import plugins
from collage.annotations.precision import UNKNOWN, ranges_of
from collage.backends.resolve import resolve_backends
from collage.cli.collect import collect as command
from collage.collect.collection import _candidates, collect
from collage.collect.outliers import Observation, better, outliers
from collage.collect.sampling import draw_variants, whole_workloads
from collage.collect.variants import Change, extents_of, propose, skeleton, vary
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.errors import SearchInterrupted
from collage.graph.description import describe_module
from collage.measure.protocol import candidate_protocol
from collage.records import Record, RecordDatabase, key_of
from collage.runtime.device_info import describe_device
from estimators.replay import ReplayEstimator
from tests.collage.cli.conftest import dense

BACKENDS = ["onnxruntime"]


def network(shapes: Sequence[Sequence[int]], body: Any) -> Any:
    """A canonical module; `body` gets an `emit` and the inputs, and gives the result."""
    inputs = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, *inputs))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())


def weight(*shape: int) -> Any:
    return relax.const(np.linspace(0.1, 1.0, int(np.prod(shape)), dtype=np.float32).reshape(shape))


def convolution(channels: int = 8, groups: int = 1) -> Any:
    """conv2d 3x3 from `channels` to 16 channels on 14 x 14, and relu."""

    def body(emit: Any, x: Any) -> Any:
        kernel = weight(16, channels // groups, 3, 3)
        return emit(relax.op.nn.relu(emit(relax.op.nn.conv2d(x, kernel, padding=(1, 1), groups=groups))))

    return network([(1, channels, 14, 14)], body)


def heads() -> Any:
    """1 x 10 x 24, split into 4 heads of 6."""
    return network([(1, 10, 24)], lambda emit, x: emit(relax.op.reshape(x, (1, 10, 4, 6))))


def residual() -> Any:
    """A convolution of stride 2 from 12 x 12 to 6 x 6, and the sum with its second input."""

    def body(emit: Any, x: Any, y: Any) -> Any:
        return emit(relax.op.add(emit(relax.op.nn.conv2d(x, weight(8, 8, 4, 4), (2, 2), (1, 1))), y))

    return network([(1, 8, 12, 12), (1, 8, 6, 6)], body)


def product() -> Any:
    return network([(5, 20)], lambda emit, x: emit(relax.op.matmul(x, weight(20, 30))))


def two_products() -> Any:
    """Two products with a relu between."""

    def body(emit: Any, x: Any) -> Any:
        return emit(relax.op.matmul(emit(relax.op.nn.relu(emit(relax.op.matmul(x, weight(20, 30))))), weight(30, 10)))

    return network([(5, 20)], body)


def shapes(module: Any) -> tuple[int, ...]:
    return extents_of(describe_module(module))


def test_renaming_an_extent_renames_it_in_inputs_weights_and_results() -> None:
    varied = vary(convolution(), Change(((8, 4), (16, 24))))
    assert shapes(varied) == (1, 4, 14, 14, 24, 4, 3, 3, 1, 24, 14, 14, 1, 24, 14, 14)


def test_windows_of_convolutions_keep_their_extents() -> None:
    varied = vary(residual(), Change(((4, 8), (12, 24), (6, 12))))
    assert shapes(varied)[8:12] == (8, 8, 4, 4)


def test_groups_follow_their_channels() -> None:
    varied = vary(convolution(16, groups=16), Change(((16, 4),)))
    assert describe_module(varied)["nodes"][0]["attrs"]["groups"] == 4
    assert shapes(varied)[:8] == (1, 4, 14, 14, 4, 1, 3, 3)


def test_products_and_strides_survive_when_all_that_hangs_together_is_scaled() -> None:
    assert vary(heads(), Change(((24, 12),))) is None
    assert shapes(vary(heads(), Change(((24, 12), (4, 2))))) == (1, 10, 12, 1, 10, 2, 6)
    assert vary(residual(), Change(((12, 24),))) is None
    assert shapes(vary(residual(), Change(((12, 24), (6, 12)))))[2:4] == (24, 24)


def test_the_batch_is_a_leading_one_of_activations_and_target_shapes_not_of_weights() -> None:
    assert shapes(vary(heads(), Change((), batch=4))) == (4, 10, 24, 4, 10, 4, 6)
    assert shapes(vary(convolution(16, groups=16), Change((), batch=2)))[:8] == (2, 16, 14, 14, 16, 1, 3, 3)


def test_weights_keep_their_range() -> None:
    varied = vary(product(), Change(((30, 60),)))
    array = varied["main"].body.blocks[0].bindings[0].value.args[1].value.numpy()
    assert array.shape == (20, 60) and array.min() > 0 and array.std() > 0.1


def test_what_is_too_large_to_measure_is_no_variant() -> None:
    assert vary(product(), Change(((5, 1 << 19),))) is not None
    assert vary(product(), Change(((5, 1 << 20),))) is None


def test_a_skeleton_is_shared_by_all_variants_and_by_nothing_else() -> None:
    rng = random.Random(0)
    for module in (convolution(), heads(), residual(), product()):
        varied = [v for v in (vary(module, propose(module, rng)) for _ in range(20)) if v is not None]
        assert varied
        assert {skeleton(describe_module(v)) for v in varied} == {skeleton(describe_module(module))}
        assert {len(shapes(v)) for v in varied} == {len(shapes(module))}
    kinds = [skeleton(describe_module(m)) for m in (convolution(), convolution(16, 16), heads(), residual(), product())]
    assert len(set(kinds)) == len(kinds)


def test_variants_are_distinct_new_repeatable_and_even_over_skeletons() -> None:
    backends = resolve_backends(BACKENDS)

    def draw(seed: int) -> list[list[Workload]]:
        many = [whole_workloads(convolution(c), backends, 1) for c in (8, 10, 12, 20, 24)]
        sources = [*many, whole_workloads(product(), backends, 1)]
        return list(draw_variants(sources, backends, 1, 24, random.Random(seed)))

    drawn = draw(0)
    structures = [alternatives[0].structure for alternatives in drawn]
    assert len(set(structures)) == len(drawn) == 24
    assert whole_workloads(convolution(8), backends, 1)[0].structure not in structures
    assert 6 <= sum("relax.matmul" in alternatives[0].operators for alternatives in drawn) <= 18
    assert structures == [alternatives[0].structure for alternatives in draw(0)]
    assert structures != [alternatives[0].structure for alternatives in draw(1)]


def test_a_collection_measures_each_structure_once_and_then_has_nothing_left_to_measure(tmp_path: Path) -> None:
    options: dict[str, Any] = {"records": tmp_path / "r.db", "samples": 2, "threads": 1}
    first = collect([product()], BACKENDS, **options)
    assert (first.known, first.measured, first.invalid, first.variants, first.complete) == (0, 3, 0, 2, True)
    with RecordDatabase(tmp_path / "r.db") as database:
        measured = list(database.matching(kind="candidate"))
    assert len({r.key.structure for r in measured}) == len(measured) == 3
    assert all(r.status == "ok" and r.samples >= 7 for r in measured)
    assert len({skeleton(r.description) for r in measured if r.description}) == 1

    again = collect([product()], BACKENDS, **options)
    assert (again.known, again.measured) == (3, 0)


def test_with_int8_each_candidate_comes_with_all_and_with_some_of_its_products_in_eight_bits() -> None:
    """Where it has products; they have ranges, and the same ones are drawn again."""
    backends = resolve_backends(["onnxruntime", "tvm"])
    options: dict[str, Any] = {"backends": backends, "device": "cpu", "threads": 1, "seed": 0}
    plain, drawn, again = (_candidates(two_products(), int8=int8, **options) for int8 in (False, True, True))
    assert [g[0].structure for g in plain] == [g[0].structure for g in drawn] and drawn == again
    labels = [[w.composites for w in group if w.backend.name == "onnxruntime"] for group in drawn]
    whole = next(own for own, group in zip(labels, drawn, strict=True) if len(group[0].operators) == 3)
    assert whole[:2] == [(), (("int8", (0, 2)),)] and whole[2] in ((("int8", (0,)),), (("int8", (2,)),))
    assert sorted(map(len, labels)) == [1, 2, 2, 2, 3]  # relu has none
    assert all(not w.composites for group in drawn for w in group if w.backend.name == "tvm")
    assert ranges_of(drawn[0][0].module)[0] != UNKNOWN


def test_precisions_that_there_are_not_are_refused(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    with pytest.raises(typer.BadParameter, match="--precisions takes bf16 and int8, not int4"):
        app(["--designed", "1", "--precisions", "bf16,int4"], standalone_mode=False)


@pytest.mark.long
def test_backends_that_take_little_are_collected_alone(tmp_path: Path) -> None:
    """Nothing is searched, so nothing has to be covered: neither of networks nor of designed blocks."""
    networks, records = [convolution(), product()], tmp_path / "r.db"
    done = collect(networks, ["winograd"], records=records, samples=0, designed=8, threads=1)
    with RecordDatabase(records) as database:
        found = {record.operators for record in database.matching(kind="candidate")}
    assert done.complete and {("relax.nn.conv2d",), ("relax.nn.conv2d", "relax.nn.relu")} <= found


def test_when_the_time_is_up_nothing_is_started(tmp_path: Path) -> None:
    found = collect([product()], BACKENDS, records=tmp_path / "r.db", samples=2, threads=1, budget_s=0.0)
    assert (found.measured, found.complete) == (0, False)


def test_the_command_is_nice_and_says_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(os, "nice", steps.append)
    app = typer.Typer()
    app.command()(command)
    path = tmp_path / "r.db"
    files = [str(dense(tmp_path / "a.onnx")), str(dense(tmp_path / "b.onnx", features=24))]
    options = ["--records", str(path), "--samples", "3", "--budget", "0", "--threads", "1"]
    app([*files, *options, "--backends", BACKENDS[0]], standalone_mode=False)
    printed = capfd.readouterr().out
    assert f"{path}: 0 workloads measured" in printed and "3 variants drawn" in printed
    assert "the same command goes on from here" in printed
    assert steps and min(steps) > 0


@pytest.mark.long
def test_what_changes_of_backend_cost_is_collected_with_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collage.cost.transition._VAGUE_S", 1e9)  # however noisy
    seen = []
    for _ in range(2):
        collect([product()], ["onnxruntime", "tvm"], records=tmp_path / "r.db", samples=0, threads=1)
        with RecordDatabase(tmp_path / "r.db") as database:
            found = database.matching(kind="transition")
            seen.append({(r.key.backend, r.description["bytes"]): r.timestamp for r in found if r.description})
    assert {pair for pair, _ in seen[0]} == {
        f"{a}->{b}" for a in ("onnxruntime", "tvm") for b in ("onnxruntime", "tvm")
    }
    assert len({size for _, size in seen[0]}) >= 3
    assert seen[1] == seen[0], "what is known is not measured again"
    replayed = ReplayEstimator(tmp_path / "r.db").transitions(["onnxruntime", "tvm"], 1)
    assert len(replayed) == 2


class Scripted(CostEstimator):
    """Records, for every workload, the next of the spreads that it was given."""

    def __init__(self, records: RecordDatabase, spreads: Any) -> None:
        self.records = records
        self.spreads = spreads

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        costs = [Cost(1e-3, next(self.spreads), 7) for _ in workloads]
        for workload, cost in zip(workloads, costs, strict=True):
            record = Record.of(
                key_of(workload, describe_device(), candidate_protocol(describe_device())),
                cost,
                description=workload.description,
            )
            self.records.put(record)
        return costs


class Unsure(CostEstimator):
    """Unsure about products only."""

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return [Cost(1e-3, 1e-3 if "relax.matmul" in w.operators else 1e-6) for w in workloads]


def replace_estimators(monkeypatch: pytest.MonkeyPatch, spreads: Any, measured: type[Scripted] = Scripted) -> None:
    load = plugins.load

    def load_fake(kind: plugins.Kind, name: Any, **parameters: Any) -> Any:
        if name == "measured":
            return measured(parameters["records"], spreads)
        return Unsure() if name == "learned" else load(kind, name, **parameters)

    monkeypatch.setattr(plugins, "load", load_fake)


@pytest.mark.parametrize(("second", "kept"), [(1e-6, 1e-6), (9e-4, 5e-4)])
def test_of_two_measurements_the_better_converged_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: float, kept: float
) -> None:
    replace_estimators(monkeypatch, iter([5e-4, *[1e-6] * 4, second]))
    operators = (relax.op.exp, relax.op.tanh, relax.op.sigmoid, relax.op.nn.relu, relax.op.sqrt)
    models = [network([(3, 7)], lambda emit, x, op=op: emit(op(x))) for op in operators]
    found = collect(models, BACKENDS, records=tmp_path / "r.db", samples=0, threads=1)
    assert (found.measured, found.repeated, found.replaced) == (5, 1, int(second == kept))
    with RecordDatabase(tmp_path / "r.db") as database:
        assert sorted(r.spread for r in database)[-1] == kept


class Interrupted(Scripted):
    """Records one workload; then Ctrl-C is pressed."""

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        super().estimate(workloads[:1])
        raise KeyboardInterrupt


def test_an_interrupted_collection_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"records": tmp_path / "r.db", "samples": 2, "threads": 1}
    replace_estimators(monkeypatch, itertools.repeat(1e-6), Interrupted)
    with pytest.raises(SearchInterrupted, match="goes on from there"):
        collect([product()], BACKENDS, **options)
    replace_estimators(monkeypatch, itertools.repeat(1e-6))
    resumed = collect([product()], BACKENDS, **options)
    assert (resumed.known, resumed.measured, resumed.variants) == (1, 2, 2)


def test_variants_are_drawn_where_the_model_is_unsure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for model in (None, "cost.json"):
        path = tmp_path / f"{model}.db"
        replace_estimators(monkeypatch, itertools.repeat(1e-6))
        collect([convolution(), product()], BACKENDS, records=path, samples=8, threads=1, model=model)
        with RecordDatabase(path) as database:
            shares.append(sum(r.description["nodes"][0]["op"] == "relax.matmul" for r in database if r.description))
    assert shares[1] > shares[0]


def point(seconds: float, spread: float = 0.0, extents: tuple[int, ...] = (8, 8), family: str = "f") -> Observation:
    return Observation("backend", family, extents, Cost(seconds, spread, 7))


def test_a_spread_far_above_that_of_its_peers_is_an_outlier() -> None:
    points = [point(1.0, 0.01, (n, n)) for n in range(8, 16)]
    assert outliers([*points, point(1.0, 0.2, (20, 20))]) == [False] * 8 + [True]
    assert not any(outliers([*points, point(1.0, 0.045, (20, 20))]))
    assert not any(outliers([point(1.0, 0.2), point(1.0, 0.2), point(1.0, 0.2)]))


def test_a_pair_is_an_outlier_when_the_larger_one_is_much_faster() -> None:
    small, large = point(2.0, extents=(8, 8)), point(1.0, extents=(8, 16))
    assert outliers([small, large]) == [True, True]
    assert outliers([small, point(1.0, extents=(4, 16))]) == [False, False]
    assert outliers([small, point(1.0, extents=(8, 16), family="g")]) == [False, False]
    assert outliers([small, point(1.5, extents=(8, 16))]) == [False, False]


def test_a_second_measurement_that_failed_is_not_better() -> None:
    assert not better(Cost(1.0, 0.5, 7), Cost.invalid("timed out"))
    assert better(Cost(1.0, 0.5, 7), Cost(2.0, 0.5, 7))
    assert not better(Cost(2.0, 0.5, 7), Cost(1.0, 0.5, 7))
