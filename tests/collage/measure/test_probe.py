"""Probes and warm-ups: every backend has one, and before a cold sample all are put into the same state."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from collage.backends.base import Backend
from collage.backends.resolve import resolve_backends
from collage.measure import clock
from collage.measure.artifact import Artifact, compile_artifact, prepare
from collage.measure.clock import HostClock
from collage.measure.instrument import Span
from collage.measure.loaded import LoadedArtifact, WarmUps
from collage.measure.probe import WARM_UP, build_probes, probe, probe_input, self_contained
from collage.measure.protocol import BoardProtocol, Protocol, candidate_protocol
from collage.runtime.device_info import describe_device
from tests.e2e import faulty

BACKENDS = resolve_backends(None, "cpu")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """The probe of every backend, called without arguments."""
    folder = tmp_path_factory.mktemp("probes")
    artifacts = []
    for name, backend in BACKENDS.items():
        workload = probe(backend, 1)
        assert workload is not None, f"{name} has no probe"
        artifacts.append(compile_artifact(prepare(workload, folder / name)))
    return dict(zip(BACKENDS, self_contained(artifacts, folder), strict=True))


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_has_a_warm_up_that_runs(name: str, built: dict[str, Artifact]) -> None:
    candidate = replace(built[name], weights=built[name].weights[1:], warm_up=built[name])
    warm_up = WarmUps().of(candidate)
    assert warm_up is not None
    (given,) = warm_up.run()
    (same,) = LoadedArtifact(candidate, [tvm.runtime.tensor(probe_input())]).run()
    assert given.shape == WARM_UP and given.any()
    np.testing.assert_array_equal(given, same)


def test_what_was_timed_takes_its_engine_along(
    built: dict[str, Artifact], engines_made: list[weakref.ref[Any]]
) -> None:
    """A process times hundreds of candidates; engines that stayed would hold their memory and their threads."""
    for artifact in built.values():
        LoadedArtifact(artifact, []).run()
    gc.collect()
    assert engines_made and all(run() is None for run in engines_made)


@pytest.mark.parametrize("name", BACKENDS)
def test_before_a_cold_sample_all_are_in_the_same_state(
    name: str, built: dict[str, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches are emptied, then the threads of the backend woken, then the activations brought back."""
    order: list[str] = []
    candidate = replace(built[name], weights=built[name].weights[1:], warm_up=built[name])
    loaded = LoadedArtifact(candidate, [tvm.runtime.tensor(probe_input())], WarmUps().of(candidate))
    assert loaded.warm_up is not None
    monkeypatch.setattr(clock.instrument, "evict", lambda size, threads: order.append(f"evict on {threads}"))
    monkeypatch.setattr(clock.instrument, "touch", lambda tensors: order.append(f"touch {len(list(tensors))}"))
    monkeypatch.setattr(clock.instrument, "spans", lambda vm, run: (run(), [Span("f", 1.0, 3.0)])[1])
    monkeypatch.setattr(loaded.warm_up, "call", _saying("warm up", order, loaded.warm_up.call))
    monkeypatch.setattr(loaded, "call", _saying("run", order, loaded.call))
    assert HostClock().time_once(loaded, Protocol(), 2) == 2.0
    assert order == ["evict on 2", "warm up", "touch 1", "run"]


def test_what_is_overwritten_is_more_than_the_caches_hold() -> None:
    here = replace(describe_device(), cache=34 << 20)
    assert candidate_protocol(here).evict_bytes >= 1.25 * here.cache
    assert candidate_protocol(replace(here, cache=0)).evict_bytes == Protocol().evict_bytes > 0
    assert candidate_protocol(here, working_set=1 << 30) == candidate_protocol(here)


def test_of_a_network_that_fits_into_the_caches_as_much_is_overwritten_as_a_call_touches() -> None:
    here = replace(describe_device(), cache=34 << 20)
    assert candidate_protocol(here, working_set=4 << 20) == Protocol(evict_bytes=4 << 20)
    board = replace(here, runtime="a board's")
    assert candidate_protocol(board, working_set=4 << 20) == BoardProtocol(evict_bytes=4 << 20)


def _saying(what: str, order: list[str], call: Callable[[], Any]) -> Callable[[], Any]:
    def wrapped() -> Any:
        order.append(what)
        return call()

    return wrapped


class TakesProducts(faulty.RaisesAtCodegen):
    """Its rule takes matrix products only."""

    def rule(self) -> Any:
        from collage.rules import OpPredicatePartitionRule

        return OpPredicatePartitionRule(lambda node: node.op == "relax.matmul")


def test_a_backend_gets_the_first_operator_that_it_takes() -> None:
    products = probe(TakesProducts(), 1)
    assert products is not None and products.operators == ("relax.matmul",)
    for name in {"onednn", "winograd", "tvm"} & set(BACKENDS):
        convolution = probe(BACKENDS[name], 1)
        assert convolution is not None and convolution.operators == ("relax.nn.conv2d",)


def test_why_a_backend_has_no_probe_is_told(tmp_path: Path) -> None:
    class TakesNothing(TakesProducts):
        def rule(self) -> Any:
            from collage.rules import OpPredicatePartitionRule

            return OpPredicatePartitionRule(lambda node: False)

    class Fails(TakesProducts):
        def rule(self) -> Any:
            raise RuntimeError("no rule today")

    backends: list[Backend] = [TakesNothing(), TakesProducts()]
    assert "takes no operator" in str(build_probes(backends[:1], 1, tmp_path / "a", 1, 60.0))
    assert "takes nothing at all" in str(build_probes(backends[1:], 1, tmp_path / "b", 1, 60.0))
    assert "no rule today" in str(build_probes([Fails()], 1, tmp_path / "c", 1, 60.0))
