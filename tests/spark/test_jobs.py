"""What holds for every script in `jobs/`: how it is called, what it answers, how it fails."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_JOBS = sorted(path.stem for path in (_ROOT / "jobs").glob("*.py") if path.stem != "__init__")
_NO_STORE = "zk+hierarchical://127.0.0.1:1/ledgers"

# How each job is asked for a log that is not there: arguments, given the metadata URI and an empty folder.
_OF_NO_LOG: dict[str, Callable[[str, Path], list[str]]] = {
    "audit": lambda uri, folder: (
        ["--metadata-uri", uri, "--log", "nobody", "--table", f"{folder}/audit", "--available-now"]
    ),
    "broker_history": lambda uri, folder: (
        ["--metadata-uri", uri, "--log", "nobody", "--lake", f"{folder}/lake", "--available-now"]
    ),
    "materialize": lambda uri, folder: (
        ["--metadata-uri", uri, "--log", "nobody", "--table", f"{folder}/table", "--available-now"]
    ),
    "snapshot": lambda uri, folder: ["--metadata-uri", uri, "--log", "nobody", "--lake", f"{folder}/lake"],
    "verify": lambda uri, _folder: ["--metadata-uri", uri, "--log", "nobody"],
    "worker_pool": lambda uri, _folder: ["--metadata-uri", uri, "--log", "nobody", "--tasks", "json", "--max", "2"],
}

# A pool waits for its broker, which may come later.
_WAITS_FOR_ITS_LOG = {"worker_pool"}

every_job = pytest.mark.parametrize("name", _JOBS)


def job(name: str) -> ModuleType:
    return importlib.import_module(f"jobs.{name}")


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


@every_job
def test_help_shows_an_example_and_the_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert job(name).main(["--help"]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"^    spark-submit (--\S+ \S+ )*jobs/{name}\.py --", said, re.MULTILINE)
    codes = said[said.lower().index("exit code") :]
    assert [code for code in (0, 1, 2) if f"{code} = " not in codes] == []


@every_job
def test_the_examples_in_the_help_have_arguments_that_the_job_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job(name).main(["--help"])
    said = capsys.readouterr().out
    known = {"--py-files"} | set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", said, re.MULTILINE))
    examples = re.findall(rf"^    .*jobs/{name}\.py (?:.*\\\n)*.*$", said, re.MULTILINE)
    assert [
        word for example in examples for word in re.findall(r"(?<=\s)--[a-z-]+", example) if word not in known
    ] == []


@every_job
@pytest.mark.parametrize("argv", [["--no-such-argument"], ["--log-level", "loud"]])
def test_wrong_arguments_are_one_line_and_the_exit_code_2(
    name: str, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(name).main(argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith(f"{name}: ")


@every_job
def test_no_argument_takes_a_secret(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    job(name).main(["--help"])
    arguments = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    secret = [one for one in arguments if re.search("password|secret|token|credential|auth", one)]
    assert [one for one in secret if not one.endswith(("-file", "-env"))] == []


@pytest.fixture
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job starts a session."""

    def start(*_arguments: Any, **_more: Any) -> None:
        raise AssertionError("Spark is started for what was wrong before")

    for name in _JOBS:
        for starter in {"spark_session", "pool_session"} & set(vars(job(name))):
            monkeypatch.setattr(job(name), starter, start)


@pytest.mark.usefixtures("_no_spark")
@pytest.mark.parametrize("name", [name for name in _JOBS if name not in _WAITS_FOR_ITS_LOG])
def test_a_log_that_is_not_there_ends_a_job_before_spark_with_what_to_do(
    name: str, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(name).main(_OF_NO_LOG[name](cluster.metadata_uri, tmp_path)) == 1
    answer = last_line(capsys)
    assert (answer["job"], answer["ok"]) == (name, False)
    assert "there is no log nobody" in answer["error"]
    assert "check" in answer["error"]
    assert "Traceback" not in answer["error"]


@pytest.mark.usefixtures("_no_spark")
@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("materialize", ["--max-bytes", "many"], "maxBytesPerTrigger"),
        ("broker_history", ["--max-bytes", "many"], "maxBytesPerTrigger"),
        ("materialize", ["--consumer", "a", "--hold-time", "soon"], "holdTime"),
        ("audit", ["--password-env", "RSM_NO_SUCH_VARIABLE"], "RSM_NO_SUCH_VARIABLE"),
        ("verify", ["--log-key-file", "/no/such/file"], "logKeyFile"),
        ("snapshot", ["--password-file", "/no/such/file"], "passwordFile"),
    ],
)
def test_a_value_that_the_source_refuses_is_a_wrong_argument_before_spark(
    name: str, wrong: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(name).main([*_OF_NO_LOG[name](_NO_STORE, tmp_path), *wrong]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert why in said.err


@pytest.mark.usefixtures("_no_spark")
@every_job
def test_a_store_that_is_not_there_ends_a_job_before_spark_with_what_to_do(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(name).main(_OF_NO_LOG[name](_NO_STORE, tmp_path)) == 1
    answer = last_line(capsys)
    assert (answer["job"], answer["ok"]) == (name, False)
    assert "no ZooKeeper answered at 127.0.0.1:1 (127.0.0.1:1: Connection refused)" in answer["error"]
    assert "check the metadata URI" in answer["error"]
