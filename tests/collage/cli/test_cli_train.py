"""`collage train` learns a model from logs, and prints how wrong it is."""

import gzip
import io
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import typer

from collage.cli.train import train
from collage.records import RecordDatabase, import_log

LOG = Path(__file__).parents[2] / "estimators" / "data" / "records.jsonl.gz"


def run(capsys: pytest.CaptureFixture[str], *logs: Path, output: Path, **options: object) -> tuple[int, str, str]:
    try:
        train(
            list(logs),
            output,
            **{"estimator": "learned", "seed": 0, "calibrate": None, "verbose": False, **options},
        )
        status = 0
    except typer.Exit as ended:
        status = ended.exit_code
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A model of `LOG`, and what was printed when it was trained."""
    output, printed = tmp_path_factory.mktemp("trained") / "cost.json", io.StringIO()
    with redirect_stdout(printed):
        train([LOG], output, estimator="learned", seed=0, calibrate=None, verbose=False)
    return output, printed.getvalue()


def test_it_writes_a_model_and_prints_a_table(trained: tuple[Path, str]) -> None:
    model, printed = trained
    lines = printed.splitlines()
    assert "networks left out in turn" in lines[0]
    assert lines[1].split() == ["records", "MAPE", "<=10%", "<=20%", "Spearman", "coverage"]
    names = [line.split()[0] for line in lines[2:-1]]
    assert names[:4] == ["all", "onnxruntime", "openvino", "tvm"] and "convolution" in names and "matmul" in names
    assert model.stat().st_size > 10_000


def test_a_database_trains_as_its_log_does(capsys, tmp_path: Path, trained: tuple[Path, str]) -> None:
    with RecordDatabase(tmp_path / "r.db") as database:
        import_log(database, LOG)
    model, from_log = trained
    _, from_database, _ = run(capsys, tmp_path / "r.db", output=tmp_path / "database.json")
    assert from_log.splitlines()[:-1] == from_database.splitlines()[:-1]
    assert model.read_text() == (tmp_path / "database.json").read_text()


@pytest.mark.long
def test_a_log_whose_end_is_missing_trains_with_a_warning(capsys, tmp_path: Path) -> None:
    whole = gzip.decompress(LOG.read_bytes()).decode().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_text("".join(whole[: len(whole) * 2 // 3]))
    status, _, err = run(capsys, tmp_path / "cut.jsonl", output=tmp_path / "cost.json")
    assert status == 0 and err.startswith("warning: ") and "its end is missing" in err


def test_a_model_is_calibrated_by_records(capsys, tmp_path: Path, trained: tuple[Path, str]) -> None:
    model, _ = trained
    status, out, _ = run(capsys, LOG, output=tmp_path / "here.json", calibrate=str(model))
    assert status == 0 and out.startswith("Errors on records left out in turn")
    assert "Wrote" in out and (tmp_path / "here.json").read_text() != model.read_text()
    status, out, _ = run(capsys, LOG, output=tmp_path / "other.json", calibrate="shipped")
    assert status == 0 and (tmp_path / "other.json").exists()


def test_what_cannot_be_calibrated_is_one_line(capsys, tmp_path: Path) -> None:
    status, _, err = run(capsys, LOG, output=tmp_path / "o.json", calibrate=str(tmp_path / "none.json"))
    assert status == 2 and err.count("\n") == 1 and "cannot be read" in err
    status, _, err = run(capsys, LOG, output=tmp_path / "o.json", calibrate="shipped", estimator="cached")
    assert status == 2 and err.count("\n") == 1 and "'cached' cannot be calibrated" in err


@pytest.mark.parametrize("content", [b"", b"nothing\n", b"\x1f\x8b\x08broken", bytes(range(256))])
def test_a_log_with_nothing_in_it_is_one_line(capsys, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log.jsonl").write_bytes(content)
    status, _, err = run(capsys, tmp_path / "log.jsonl", output=tmp_path / "cost.json")
    assert status == 2 and err.count("\n") == 1 and not (tmp_path / "cost.json").exists()


def test_a_missing_log_is_one_line(capsys, tmp_path: Path) -> None:
    status, _, err = run(capsys, tmp_path / "none.jsonl", output=tmp_path / "cost.json")
    assert status == 2 and err.count("\n") == 1 and "there is no such log" in err


def test_an_estimator_without_training_is_one_line(capsys, tmp_path: Path) -> None:
    status, _, err = run(capsys, LOG, output=tmp_path / "cost.json", estimator="cached")
    assert status == 2 and "'cached' cannot be trained" in err


def test_a_log_is_not_overwritten(capsys, tmp_path: Path) -> None:
    log = tmp_path / "records.jsonl.gz"
    shutil.copy(LOG, log)
    with pytest.raises(typer.BadParameter, match="would overwrite a log"):
        run(capsys, log, output=log)
    assert log.read_bytes() == LOG.read_bytes()


@pytest.mark.scale
def test_a_cluster_learns_the_same(capsys, tmp_path: Path, trained: tuple[Path, str]) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        status, out, err = run(capsys, LOG, output=tmp_path / "cost.json", workers=address)
        assert status == 0, err
        assert cluster.scheduler.transition_log, "the workers were asked nothing"
    model, printed = trained
    assert (tmp_path / "cost.json").read_bytes() == model.read_bytes()
    assert out.splitlines()[:-1] == printed.splitlines()[:-1]


@pytest.mark.scale
def test_a_cluster_that_is_not_there_is_one_line(capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collage.cli.train._CONNECT_S", 1.0)
    status, _, err = run(capsys, LOG, output=tmp_path / "cost.json", workers="tcp://127.0.0.1:9")
    assert status == 2 and "there is no scheduler" in err and len(err.splitlines()) == 1
    assert not (tmp_path / "cost.json").exists()


@pytest.mark.scale
def test_workers_with_another_library_are_refused(capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        monkeypatch.setattr("collage.cli.train.python_version", lambda: "3.0.0")  # here, not in the worker
        status, _, err = run(capsys, LOG, output=tmp_path / "cost.json", workers=cluster.scheduler_address)
    assert status == 2 and "not 3.0.0" in err
