from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ledger.bookie.cli import app as bookie_app
from ledger.configuration import check_variables, find_file, read_file
from ledger.errors import UsageError
from rsm_spark.cli.config import PROCESSES, app, example_file, settings_of

_CONF = Path(__file__).resolve().parents[2] / "conf"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, without a configured environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RSM_CONF_DIR", raising=False)
    return tmp_path


def _setting(name: str, conf: Path | None = None) -> tuple[object, str]:
    (found,) = (one for one in settings_of("bookie", conf) if one.name == name)
    return found.value, found.origin


def test_a_value_nobody_names_is_the_default() -> None:
    assert _setting("journal_file_mib") == (64, "default")


def test_a_file_goes_before_the_default(elsewhere: Path) -> None:
    conf = elsewhere / "mine.toml"
    conf.write_text('journal_file_mib = 8\nledger_dir = ["a", "b"]\nno_fsync = true\n')
    assert _setting("journal_file_mib", conf) == (8, "file")
    assert _setting("ledger_dir", conf) == (["a", "b"], "file")
    assert _setting("no_fsync", conf) == (True, "file")


def test_a_variable_goes_before_the_file(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = elsewhere / "mine.toml"
    conf.write_text("journal_file_mib = 8\nport = 4000\n")
    monkeypatch.setenv("RSM_BOOKIE__JOURNAL_FILE_MIB", "9")
    assert _setting("journal_file_mib", conf) == (9, "environment")
    assert _setting("port", conf) == (4000, "file")


def test_files_are_looked_for_in_the_named_folder_then_here(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = elsewhere / "conf"
    here.mkdir()
    (here / "bookie.toml").write_text("port = 1\n")
    assert find_file("bookie", None, {}) == Path("conf/bookie.toml")
    named = elsewhere / "named"
    named.mkdir()
    assert find_file("bookie", None, {"RSM_CONF_DIR": str(named)}) is None
    monkeypatch.setenv("RSM_CONF_DIR", str(named))
    (named / "bookie.toml").write_text("port = 2\n")
    assert _setting("port") == (2, "file")


def test_a_file_that_was_named_has_to_be_there(elsewhere: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        find_file("bookie", elsewhere / "none.toml", {})
    with pytest.raises(UsageError, match="no such folder"):
        find_file("bookie", None, {"RSM_CONF_DIR": str(elsewhere / "none")})


def test_an_unknown_key_is_an_error_that_names_the_nearest(elsewhere: Path) -> None:
    conf = elsewhere / "mine.toml"
    conf.write_text("jurnal_file_mib = 8\n")
    with pytest.raises(UsageError, match="'jurnal_file_mib'; did you mean 'journal_file_mib'"):
        settings_of("bookie", conf)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('journal_file_mib = "many"', "journal_file_mib = 'many': Input should be a valid integer"),
        ("port = 70000", "port = 70000: "),
        ('"no_fsync" = "perhaps"', "no_fsync = 'perhaps': "),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_file_and_line(elsewhere: Path, line: str, told: str) -> None:
    conf = elsewhere / "mine.toml"
    conf.write_text(f"# of a test\ncollect_s = 5\n{line}\n")
    with pytest.raises(UsageError) as told_by_show:
        settings_of("bookie", conf)
    assert str(told_by_show.value).startswith(f"{conf}:3: {told}")
    run = CliRunner().invoke(bookie_app, ["run", "--data-dir", "none", "--conf", str(conf)])
    assert str(run.exception) == str(told_by_show.value)
    assert not (elsewhere / "none").exists()


def test_a_variable_that_does_not_fit_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSM_BOOKIE__JOURNAL_FILE_MIB", "many")
    with pytest.raises(UsageError, match="environment: RSM_BOOKIE__JOURNAL_FILE_MIB: journal_file_mib = 'many': Input"):
        settings_of("bookie", None)


def test_an_unknown_variable_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="RSM_BOOKIE__PROT; did you mean 'RSM_BOOKIE__PORT'"):
        check_variables("bookie", {"RSM_BOOKIE__PROT": "1", "RSM_STORE__X": "1"}, ["port", "bind"])


@pytest.mark.parametrize("text", ["port = \n", "[port]\nx = 1\n", "\udcff"])
def test_a_file_that_is_no_flat_toml_is_refused(elsewhere: Path, text: str) -> None:
    conf = elsewhere / "mine.toml"
    conf.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match="mine.toml"):
        read_file(conf, ["port"])


def test_what_is_generated_from_the_options_is_current() -> None:
    check = [sys.executable, str(_CONF.parent / "tools" / "write_process_pages.py"), "--check"]
    done = subprocess.run(check, cwd=_CONF.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("process", PROCESSES)
def test_the_example_file_sets_nothing(process: str) -> None:
    assert tomllib.loads(example_file(process)) == {}


@pytest.mark.parametrize("process", PROCESSES)
def test_defaults_of_the_example_file_are_accepted_when_uncommented(process: str, elsewhere: Path) -> None:
    lines = example_file(process).splitlines()
    values = [line[1:] for line in lines if line.startswith("#") and " = " in line and not line.startswith("# ")]
    conf = elsewhere / "all.toml"
    conf.write_text("\n".join(values))
    settings = settings_of(process, conf)
    assert {one.origin for one in settings} == {"default", "file"}
    assert {one.name: one.value for one in settings} == {one.name: one.value for one in settings_of(process, None)}


def test_the_command_shows_values_and_origins(elsewhere: Path) -> None:
    conf = elsewhere / "mine.toml"
    conf.write_text("port = 4000\n")
    said = CliRunner().invoke(app, ["show", "bookie", "--origin", "--conf", str(conf)]).output
    assert "port" in said
    assert "= 4000  # file" in said
    told = json.loads(CliRunner().invoke(app, ["show", "bookie", "--json", "--conf", str(conf)]).output)
    assert told["port"] == 4000


def test_an_unknown_process_is_refused() -> None:
    with pytest.raises(UsageError, match="use one of autorecovery, bookie, broker, console, files, gateway"):
        settings_of("bokie", None)
