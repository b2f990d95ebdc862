"""The command `rsm`: lazy sub-commands, one line an error, exit codes."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest
import typer

from ledger.errors import NoSuchLedgerError
from rsm_spark.cli import main as cli
from rsm_spark.errors import NoLeaderError

_HEAVY = ("grpc", "pyspark", "kazoo", "pyarrow", "asyncio", "deltalake", "lmdb", "ledger.cli", "ledger.dev.cluster")


def _run(monkeypatch: pytest.MonkeyPatch, target: object, *arguments: str) -> int:
    """Run `rsm try …` with this function or Typer app as the only command that is installed."""
    monkeypatch.setitem(cli._SUMMARIES, "try", "Only in this test.")
    monkeypatch.setattr(cli, "entry_points", lambda *, group: [EntryPoint("try", "nowhere:command", group)])
    if target is not None:
        monkeypatch.setattr(EntryPoint, "load", lambda _: target)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["try", *arguments])
    return int(stopped.value.code or 0)


def _raising(error: BaseException) -> object:
    def command() -> None:
        """Fail."""
        raise error

    return command


def test_help_imports_no_command_and_no_heavy_library() -> None:
    script = f"""
import sys
from rsm_spark.cli.main import main
try:
    main(["--help"])
except SystemExit as stopped:
    assert not stopped.code
loaded = [name for name in {_HEAVY!r} if name in sys.modules]
assert not loaded, loaded
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "rsm up" in result.stdout


def test_a_function_is_a_command_with_its_own_help_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(count: int = 1) -> None:
        """Count."""
        typer.echo(f"counted {count}")

    assert _run(monkeypatch, command, "--count", "3") == 0
    assert capsys.readouterr().out == "counted 3\n"


def test_a_typer_app_with_one_command_is_still_a_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()

    @app.command()
    def only() -> None:
        typer.echo("ran")

    assert _run(monkeypatch, app, "only") == 0
    assert capsys.readouterr().out == "ran\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoSuchLedgerError("ledger 17: not there"), 4),
        (NoLeaderError("ledger 17: not there"), 6),
        (ExceptionGroup("tasks", [ExceptionGroup("more", [NoSuchLedgerError("ledger 17: not there")])]), 4),
    ],
    ids=["ledger", "state-machine", "task-group"],
)
def test_an_error_of_ours_is_one_line_and_the_exit_code_of_its_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    assert _run(monkeypatch, _raising(error)) == code
    assert capsys.readouterr().err == "rsm: ledger 17: not there\n"


def test_a_missing_file_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, _raising(FileNotFoundError(2, "No such file", "there.txt"))) == 1
    assert capsys.readouterr().err == "rsm: there.txt: No such file\n"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(monkeypatch, _raising(ModuleNotFoundError("No module named 'lmdb'", name="lmdb"))) == 1
    assert capsys.readouterr().err == "rsm: this command needs lmdb: pip install 'rsm-spark[server]'\n"


def test_a_command_that_cannot_be_imported_for_want_of_an_extra_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(_: EntryPoint) -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    monkeypatch.setattr(EntryPoint, "load", load)
    assert _run(monkeypatch, None) == 1
    assert capsys.readouterr().err == "rsm: rsm try needs pyspark: pip install 'rsm-spark[spark]'\n"


def test_a_command_whose_module_is_gone_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, None) == 1
    assert capsys.readouterr().err.startswith("rsm: rsm try cannot be loaded: No module named 'nowhere'")


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        _run(monkeypatch, _raising(ZeroDivisionError()))


def test_an_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(monkeypatch, _raising(KeyboardInterrupt())) == 130


@pytest.mark.parametrize("arguments", [["no-such-command"], ["--no-such-option"], ["up", "--bookies", "x"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert not stopped.value.code
    assert capsys.readouterr().out.startswith("rsm-spark ")


_INSTALLED = sorted(point.name for point in entry_points(group="rsm_spark.commands"))


def test_every_installed_command_has_a_summary_so_that_help_need_not_import_it() -> None:
    assert [name for name in _INSTALLED if name not in cli._SUMMARIES] == []


@pytest.mark.parametrize("name", _INSTALLED)
def test_every_installed_command_can_be_loaded_and_helps(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert not stopped.value.code, capsys.readouterr().err
    assert f"rsm {name}" in capsys.readouterr().out
