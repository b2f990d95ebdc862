"""A package or module of the user's own that hides one of ours is named, whoever meets it first; real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_RSM = str(Path(sys.executable).parent / "rsm")


def _run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command, cwd=folder, env={**inherited, **environment}, capture_output=True, text=True, check=False, timeout=120
    )


def _hide(folder: Path, name: str, *, is_module: bool = False) -> Path:
    place = folder / f"{name}.py" if is_module else folder / name / "__init__.py"
    place.parent.mkdir(exist_ok=True)
    place.write_text("")
    return place


@pytest.mark.parametrize(
    ("name", "is_module", "line"),
    [
        ("ledger", False, "from rsm_spark import MapClient"),
        ("ledger", True, "import rsm_spark.core.commands"),
        ("ledger", False, "from broker.client import BrokerClient"),
        ("ledger", False, "import connectors.register"),
        ("rsm_spark", False, "import pyspark_ledger"),
    ],
)
def test_what_lies_beside_a_script_and_hides_ours_is_named(
    name: str, is_module: bool, line: str, tmp_path: Path
) -> None:
    place = _hide(tmp_path, name, is_module=is_module)
    script = tmp_path / "script.py"
    if name == "rsm_spark":
        # Where ours cannot even be asked, the source of Spark tells.
        line += (
            "\ntry:\n    pyspark_ledger.DefaultSource(options={}).schema()\nexcept ImportError as error: print(error)"
        )
    script.write_text(f"{line}\n")
    ended = _run(tmp_path, sys.executable, str(script))
    assert str(place) in ended.stdout + ended.stderr
    assert f"another `{name}`" in ended.stderr or f"another package `{name}`" in ended.stdout
    if name != "rsm_spark":
        assert ended.returncode != 0
        assert "start Python with -P" in ended.stderr


@pytest.mark.parametrize("line", ["from rsm_spark import MapClient", "from broker.client import BrokerClient"])
def test_what_is_not_needed_may_have_any_name(line: str, tmp_path: Path) -> None:
    _hide(tmp_path, "connectors")
    (tmp_path / "ledger").mkdir()  # No package: Python goes on to ours.
    (tmp_path / "script.py").write_text(f"{line}\n")
    ended = _run(tmp_path, sys.executable, "script.py")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("command", [(_RSM,), (sys.executable, "-P", "-m", "rsm_spark")])
def test_rsm_does_not_look_into_the_working_directory_first(command: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("ledger", "connectors"):
        _hide(tmp_path, name)
    _hide(tmp_path, "broker", is_module=True)
    for words in (("map", "--help"), ("broker", "run", "--help"), ("task", "--help")):
        ended = _run(tmp_path, *command, *words)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_python_m_rsm_spark_names_what_hides_ours(tmp_path: Path) -> None:
    place = _hide(tmp_path, "broker", is_module=True)
    ended = _run(tmp_path, sys.executable, "-m", "rsm_spark", "broker", "run", "--help")
    assert ended.returncode == 1
    assert ended.stderr.startswith("rsm: rsm broker cannot be loaded: Python finds another `broker`")
    assert str(place) in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert _run(tmp_path, sys.executable, "-m", "rsm_spark", "map", "--help").returncode == 0

    place = _hide(tmp_path, "ledger")
    ended = _run(tmp_path, sys.executable, "-m", "rsm_spark", "map", "--help")
    assert ended.returncode != 0
    assert str(place) in ended.stderr


def test_a_folder_of_pythonpath_is_named_as_such(tmp_path: Path) -> None:
    place = _hide(tmp_path, "broker", is_module=True)
    ended = _run(tmp_path, _RSM, "broker", "run", "--help", PYTHONPATH=str(tmp_path))
    assert ended.returncode == 1
    assert str(place) in ended.stderr
    assert "take it out of PYTHONPATH" in ended.stderr


def test_a_worker_finds_its_tasks_in_the_working_directory_but_none_of_our_packages(tmp_path: Path) -> None:
    _hide(tmp_path, "ledger")
    _hide(tmp_path, "broker", is_module=True)
    (tmp_path / "chores.py").write_text("raise RuntimeError('the chores were found')\n")
    ended = _run(tmp_path, _RSM, "worker", "run", "--worker-id", "w", "--executor", "thread", "--tasks", "chores")
    assert "the chores were found" in ended.stderr
    assert "another `" not in ended.stderr
