"""Where boards are, what they are, and what is told where there are none: without a board."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tvm
from tvm.rpc import base

from collage.backends.tvm.target import linker_of
from collage.errors import CollageError
from collage.measure.boards import Board, board_at
from collage.measure.boards.address import BoardAddress
from collage.measure.boards.board import _BoardRunner
from collage.measure.boards.files import BoardFiles, build_reader
from collage.measure.boards.identity import fingerprint_of, identify
from collage.measure.boards.messages import Setup
from collage.measure.boards.tracker import lend, require_board
from collage.measure.faults import Failure
from collage.measure.protocol import BoardProtocol, candidate_protocol
from collage.progress import Reporter
from collage.runtime.device_info import describe_device


def test_an_address_says_tracker_and_key() -> None:
    assert BoardAddress.parse("rpc://tracker:9190/pi4") == BoardAddress("tracker", 9190, "pi4")
    assert str(BoardAddress.parse("rpc://10.0.0.7/pi4/")) == "rpc://10.0.0.7:9190/pi4"


@pytest.mark.parametrize(
    "text", ["", "tracker:9190/pi4", "tcp://t:1/k", "rpc://t:9190", "rpc://t:x/k", "rpc://t:1/a/b"]
)
def test_what_is_no_address_is_one_line(text: str) -> None:
    with pytest.raises(CollageError, match=r"does not read like rpc://tracker:9190/key"):
        BoardAddress.parse(text)


Answer = Callable[[Any], Any]


@pytest.fixture
def tracker() -> Iterator[Callable[[Answer, int], BoardAddress]]:
    """Makes trackers that give the answer of a function to each message, or none."""
    listeners: list[socket.socket] = []

    def make(answer: Answer, magic: int = base.RPC_TRACKER_MAGIC) -> BoardAddress:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                    base.recvall(connection, 4)
                    connection.sendall(struct.pack("<i", magic))
                    if (found := answer(base.recvjson(connection))) is not None:
                        base.sendjson(connection, found)
                    connections.append(connection)
                except OSError:
                    return

        connections: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        return BoardAddress("127.0.0.1", listener.getsockname()[1], "pi4")

    yield make
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def summary(*keys: str) -> Answer:
    return lambda _: [base.TrackerCode.SUCCESS, {"server_info": [{"key": f"server:{key}"} for key in keys]}]


def test_a_tracker_that_is_not_there_is_one_line() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(CollageError, match=rf"no RPC tracker answers at 127.0.0.1:{port}: .*[Cc]onnection refused"):
        Board(f"rpc://127.0.0.1:{port}/pi4", None, Reporter())


def test_what_is_no_tracker_or_knows_no_such_board(tracker: Any) -> None:
    require_board(tracker(summary("pi3", "pi4")))
    with pytest.raises(CollageError, match="what listens there is no tracker"):
        require_board(tracker(summary("pi4"), 7))
    with pytest.raises(CollageError, match="has no board of the key pi4; it has pi3, pi5"):
        require_board(tracker(summary("pi5", "pi3")))
    with pytest.raises(CollageError, match="it has none at all"):
        require_board(tracker(summary()))


def test_a_board_is_lent_or_waited_for_in_vain(tracker: Any) -> None:
    asked: list[Any] = []

    def lent(message: Any) -> Any:
        asked.append(message)
        return [base.TrackerCode.SUCCESS, ["10.0.0.7", 9090, "pi4:0.5"]]

    assert lend(tracker(lent), 5.0) == ("10.0.0.7", 9090, "pi4:0.5")
    assert asked[0][:2] == [base.TrackerCode.REQUEST, "pi4"]
    with pytest.raises(TimeoutError, match="no board of the key pi4 was free"):
        lend(tracker(lambda _: None), 0.05)


def test_options_that_do_not_go_together() -> None:
    def at(
        runner: str | None, target: str | None, devices: tuple[str, ...] = ("cpu",), workers: str | None = None
    ) -> None:
        with board_at(runner, target, Reporter(), devices, workers) as board:
            assert board is None

    at(None, None)
    with pytest.raises(CollageError, match="name it, too"):
        at(None, "llvm")
    with pytest.raises(CollageError, match="leave one out"):
        at("rpc://t/k", None, workers="tcp://s:8786")
    with pytest.raises(CollageError, match="leave --runner out for other devices"):
        at("rpc://t/k", None, ("cuda",))


def test_a_board_says_what_it_is_by_its_files(tmp_path: Path) -> None:
    """This machine is the board: its own description by other means."""
    target = {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()}
    reader = build_reader(target, linker_of(target), tmp_path)
    module = tvm.runtime.load_module(str(reader))
    session = SimpleNamespace(upload=lambda *_: None, load_module=lambda _: module, cpu=tvm.cpu)
    files, here = BoardFiles(session, reader), describe_device()
    (tmp_path / "large").write_bytes(bytes(range(256)) * 300)
    assert files.content(str(tmp_path / "large")) == (bytes(range(256)) * 300, 76800)
    assert files.content(str(tmp_path / "large"), 1 << 12)[0] == bytes(range(256)) * 16
    assert files.content(str(tmp_path / "nothing")) == (b"", -1)
    found = identify(files, target)
    assert replace(found.device, runtime="", memory=0) == replace(here, memory=0)
    assert found.device.runtime.startswith("TVM ") and found.device.fingerprint != here.fingerprint
    assert fingerprint_of(files) == found.device.fingerprint
    assert "runtime" in found.device.as_dict() and "runtime" not in here.as_dict()


def test_boards_have_a_protocol_of_their_own() -> None:
    board = replace(describe_device(), runtime="TVM 1", cache=1 << 20)
    assert candidate_protocol(board) == BoardProtocol(evict_bytes=5 << 18)
    assert candidate_protocol(replace(board, cache=0)).evict_bytes == BoardProtocol().evict_bytes


def test_what_hangs_or_ends_on_a_board_is_no_fault_of_a_candidate() -> None:
    runner = _BoardRunner(Setup(BoardAddress("t", 1, "k"), None, "", 1.0, 1.0), 1.0)
    for failure in (Failure("hangs", "candidate"), Failure("crashes", "crash")):
        assert runner._blamed(failure).blame == "machine"
    runner.close()


def test_the_server_ends_a_session_after_the_parent_would_have() -> None:
    setup = Setup(BoardAddress("t", 1, "k"), None, "", 1.0, 60.0)
    assert (setup.session_s(), setup.session_s(3)) == (120, 240)
