"""A board is timed on through a tracker, and what happens to it condemns no candidate."""

from __future__ import annotations

import os
import signal
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.runtime.vm import VirtualMachine

import collage
from collage.backends.tvm.backend import TVMBackend
from collage.collect.collection import collect
from collage.cost.estimator import Workload
from collage.errors import CollageError
from collage.frontend import load
from collage.graph.from_relax import read_graph
from collage.measure.boards import Board
from collage.measure.helper_process import HelperProcess
from collage.measure.job import Begin
from collage.measure.reference import ReferenceRun
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.runtime.device_info import describe_device
from estimators.cached import CachedEstimator
from estimators.measured import MeasuredEstimator
from tests.e2e.networks import convolution_relu
from tests.rpc_boards import RpcBoards

pytestmark = pytest.mark.scale


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RpcBoards]:
    """Left as they are by the tests that use them."""
    made = RpcBoards(tmp_path_factory.mktemp("boards"))
    yield made
    made.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RpcBoards]:
    """For a test that breaks them."""
    made = RpcBoards(tmp_path)
    yield made
    made.close()


def workload(board: Board, channels: int = 4) -> Workload:
    made, _ = board.backends({"tvm": TVMBackend()})
    return Workload.of_module(convolution_relu(channels), made["tvm"])


def test_what_is_timed_there_is_recorded_as_the_boards_and_not_as_this_machines(
    boards: RpcBoards, tmp_path: Path
) -> None:
    with Board(boards.address, None, Reporter()) as board, RecordDatabase(tmp_path / "r.db") as database:
        here = describe_device()
        assert board.device.fingerprint != here.fingerprint and board.device.runtime.startswith("TVM ")
        assert replace(board.device, runtime="", memory=0) == replace(here, memory=0), "it is this machine after all"
        asked = [workload(board)]
        estimator = MeasuredEstimator(database, workers=board)
        (cost,) = estimator.estimate(asked)
        assert cost.is_finite and cost.samples > 0, cost
        assert any("1 sub-graphs and plans were timed there" in note for note in estimator.notes(asked))
        (observed,) = database.observations()
        assert observed.key.device == board.device.fingerprint == (observed.device or {})["fingerprint"]
        assert observed.device["host"] and '"clock":"time evaluator over RPC"' in observed.key.protocol
        assert CachedEstimator(database).on(board).estimate(asked) == [cost]
        assert CachedEstimator(database).estimate(asked)[0].is_unknown


def test_a_plan_for_a_board_is_confirmed_there_and_runs_by_tvm_alone(boards: RpcBoards, tmp_path: Path) -> None:
    network, target = convolution_relu(), {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()}
    plan = collage.partition(
        network, runner=boards.address, target=f"llvm -mcpu={target['mcpu']}", records=tmp_path / "r.db"
    )
    assert {p.backend for p in plan.partitions} == {"tvm"} and plan.target == f"llvm -mcpu={target['mcpu']}"
    assert plan.confirmation is not None and plan.latency.is_finite
    assert {c.name for c in plan.confirmation.contestants} == {"collage", "tvm alone", "untouched TVM"}
    assert any("no runtime on a board: openvino" in note for note in plan.notes)
    plan.save(tmp_path / "plan.json")
    compiled = collage.Plan.load(tmp_path / "plan.json", network).compile()
    with pytest.raises(CollageError, match="compiled for a board"):
        compiled.load()
    compiled.export(tmp_path / "net.so")
    compiled.export(tmp_path / "net.tar")
    assert tarfile.is_tarfile(tmp_path / "net.tar")
    module = load(network)
    reference = ReferenceRun(module, read_graph(module), 1)
    machine = VirtualMachine(tvm.runtime.load_module(str(tmp_path / "net.so")), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(array) for array in reference.inputs))
    np.testing.assert_allclose(result.numpy(), reference.outputs[0], rtol=1e-4, atol=1e-4)


def test_a_collection_on_a_board(boards: RpcBoards, tmp_path: Path) -> None:
    options: dict[str, Any] = {"records": tmp_path / "r.db", "samples": 0, "runner": boards.address}
    found = collect([convolution_relu()], ["tvm", "onnxruntime"], **options)
    assert found.measured > 0 and found.invalid == 0
    assert found.notes[0] == "left out, because they have no runtime on a board: onnxruntime"
    again = collect([convolution_relu()], ["tvm"], **options)
    assert (again.measured, again.known) == (0, found.measured)


def test_numbers_are_held_to_the_reference(boards: RpcBoards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = np.save

    def falsified(path: Any, array: np.ndarray) -> None:
        save(path, array + 1 if "expected" in str(path) else array)

    monkeypatch.setattr(np, "save", falsified)
    with Board(boards.address, None, Reporter()) as board, RecordDatabase(tmp_path / "r.db") as database:
        (cost,) = MeasuredEstimator(database, workers=board).estimate([workload(board)])
    assert cost.is_invalid and cost.reason.startswith("wrong result")


def test_an_address_without_boards_of_the_key(boards: RpcBoards) -> None:
    with pytest.raises(CollageError, match=r"has no board of the key pi; it has board"):
        Board(boards.address.replace("/board", "/pi"), None, Reporter())


def test_a_target_that_is_not_the_boards_is_found_out_before_anything_is_measured(boards: RpcBoards) -> None:
    other = "x86_64-linux-gnu" if describe_device().arch == "aarch64" else "aarch64-linux-gnu"
    with pytest.raises(CollageError, match=rf"compiled for 'llvm -mtriple={other}' does not load on the board"):
        Board(boards.address, f"llvm -mtriple={other}", Reporter())


def test_boards_of_two_kinds_are_not_mixed(boards: RpcBoards, tmp_path: Path) -> None:
    with Board(boards.address, None, Reporter()) as board, RecordDatabase(tmp_path / "r.db") as database:
        board._runner.close()
        board._runner._setup = replace(board._runner._setup, fingerprint="cpu-aarch64-4-0123456789ab")
        (cost,) = MeasuredEstimator(database, workers=board).estimate([workload(board)])
        assert cost.is_unknown and "boards of two kinds have the key board" in cost.reason
        assert database.stats().by_kind == {}


# Faults


def at_stage(monkeypatch: pytest.MonkeyPatch, stage: str, act: Callable[[int], None]) -> list[int]:
    """Act whenever an artifact reaches a stage, with the number of times before."""
    receive, times = HelperProcess.receive, []

    def watching(self: HelperProcess, seconds: float) -> Any:
        event = receive(self, seconds)
        if isinstance(event, Begin) and event.stage == stage:
            times.append(len(times))
            act(times[-1])
        return event

    monkeypatch.setattr(HelperProcess, "receive", watching)
    return times


def test_a_board_that_is_killed_loses_its_job_to_another(
    own: RpcBoards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_first(before: int) -> None:
        if before == 0:
            own.kill()
            own.add()  # as its supervisor does

    with Board(own.address, None, Reporter(), timeout_s=30) as board, RecordDatabase(tmp_path / "r.db") as database:
        at_stage(monkeypatch, "running", kill_first)
        (cost,) = MeasuredEstimator(database, workers=board).estimate([workload(board)])
        assert cost.is_finite, cost
        assert database.stats().by_kind == {"candidate": 1}


def test_a_board_that_does_not_come_back_leaves_costs_unknown(
    own: RpcBoards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_all(before: int) -> None:
        if before == 0:
            own.kill()

    with (
        Board(own.address, None, Reporter(), timeout_s=30, patience_s=1.0) as board,
        RecordDatabase(tmp_path / "r.db") as database,
    ):
        at_stage(monkeypatch, "running", kill_all)
        asked = [workload(board, 4), workload(board, 6)]
        costs = MeasuredEstimator(database, workers=board).estimate(asked)
        assert all(cost.is_unknown for cost in costs), costs
        assert all("was lost, and did not come back: " in cost.reason for cost in costs)
        assert database.stats().by_kind == {}, "nothing is condemned"
        assert any("was lost" in note for note in board.notes())


def test_a_board_that_is_cut_off_is_given_up_in_time(
    own: RpcBoards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped, and so are its sockets: nothing is closed, and nothing comes."""

    def stop(before: int) -> None:
        os.killpg(own.boards[0].pid, signal.SIGSTOP)

    with (
        Board(own.address, None, Reporter(), timeout_s=3, patience_s=1.0) as board,
        RecordDatabase(tmp_path / "r.db") as database,
    ):
        at_stage(monkeypatch, "running", stop)
        (cost,) = MeasuredEstimator(database, workers=board).estimate([workload(board)])
        assert cost.is_unknown, cost
        assert database.stats().by_kind == {}
