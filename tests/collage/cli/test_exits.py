"""How commands end."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

import pytest
import typer

from collage.cli.exits import explain, guarded
from collage.errors import CollageError, RecordsError, SearchInterrupted


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (CollageError("two\n  lines"), "error: two lines", 2),
        (RecordsError("r.db is damaged"), "error: r.db is damaged", 2),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/x"), "error: /tmp/x: No space left on device", 2),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), "error: Read-only file system", 2),
        (SearchInterrupted("interrupted; kept in r.db"), "interrupted; kept in r.db", 130),
        (KeyboardInterrupt(), "interrupted", 130),
        (BrokenPipeError(), "", 141),
    ],
)
def test_every_error_has_a_line_and_a_status(error: BaseException, line: str, status: int) -> None:
    assert explain(error) == (line, status)


def test_what_nobody_expected_is_called_a_bug() -> None:
    line, status = explain(ZeroDivisionError("division by zero"))
    assert status == 1 and "bug" in line and "ZeroDivisionError: division by zero" in line and "--verbose" in line


@pytest.mark.parametrize("verbose", [False, True])
def test_a_traceback_is_shown_on_request_only(verbose: bool, capsys: pytest.CaptureFixture[str]) -> None:
    @guarded
    def command(verbose: bool = False) -> NoReturn:
        raise CollageError("wrong")

    with pytest.raises(typer.Exit) as ended:
        command(verbose=verbose)
    errors = capsys.readouterr().err
    assert ended.value.exit_code == 2
    assert errors.splitlines()[-1] == "error: wrong"
    assert ("Traceback" in errors) is verbose


def test_usage_errors_and_exits_pass_through() -> None:
    @guarded
    def command(error: Exception) -> NoReturn:
        raise error

    with pytest.raises(typer.BadParameter):
        command(typer.BadParameter("wrong"))
    with pytest.raises(typer.Exit):
        command(typer.Exit(0))
