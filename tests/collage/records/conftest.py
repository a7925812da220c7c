"""Keys and records to test with."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collage.cost.cost import Cost
from collage.records import Location, Record, RecordDatabase, RecordKey


def make_key(structure: object = "s", **changes: object) -> RecordKey:
    fields: dict[str, object] = {
        "kind": "candidate",
        "structure": str(structure),
        "backend": "openvino",
        "backend_version": "2026.1",
        "configuration": "c0ffee",
        "composites": (("conv2d+relu", (0, 1)), ("dense", (2,))),
        "device": "cpu-x86_64-2-0123456789ab",
        "threads": 2,
        "tvm_version": "0.27.0",
        "protocol": '{"name":"p","version":1,"weights":"cold"}',
    }
    return RecordKey(**{**fields, **changes})  # type: ignore[arg-type]


def make_record(structure: object = "s", cost: Cost | None = None, **changes: object) -> Record:
    return Record.of(
        make_key(structure, **changes),
        cost or Cost(1 / 3, 1e-7 / 3, 3, "converged"),
        timings=(0.1 + 0.2, 1e-300, 5e-324),
        label="openvino conv2d+relu",
        operators=("relax.nn.conv2d", "relax.nn.relu"),
        description={
            "nodes": [{"op": "relax.nn.conv2d", "shape": [1, 64, 56, 56], "epsilon": 1e-5, "name": "é ☃ \x00"}]
        },
        device={"model": "a processor", "cores": 2, "features": ["avx2"]},
    )


@pytest.fixture
def key() -> Callable[..., RecordKey]:
    return make_key


@pytest.fixture
def record() -> Callable[..., Record]:
    return make_record


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.scale)])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Location]:
    """Gives places for databases that are not there yet."""
    if request.param == "sqlite":
        return lambda name="records.db": tmp_path / name
    server = request.getfixturevalue("postgres")
    return lambda name="": server.new_database()


@pytest.fixture
def database(new_place: Callable[..., Location]) -> Iterator[RecordDatabase]:
    with RecordDatabase(new_place()) as opened:
        yield opened
