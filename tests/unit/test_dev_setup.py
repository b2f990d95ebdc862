"""The set-up script: one line that says what to do, nothing when all is current. No test here uses the network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_FILES = ("requirements.lock", "pyproject.toml", "jars.lock", "tools/setup.sh", "tools/uv.lock")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with all that the set-up reads."""
    folder = tmp_path / "project"
    (folder / "tools").mkdir(parents=True)
    for name in _FILES:
        shutil.copy(_ROOT / name, folder / name)
    return folder


def _set_up(project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {
        "PATH": os.environ["PATH"],
        "HOME": str(project.parent),
        "RSM_PYTHON": sys.executable,
        "RSM_CACHE_DIR": str(project.parent / "cache"),
        **environment,
    }
    command = [str(project / "tools" / "setup.sh")]
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def _pretend_finished(project: Path, cache: Path) -> None:
    """Lay out what a finished set-up leaves behind; its stamp is written as the script does it."""
    rsm = project / ".venv" / "bin" / "rsm"
    rsm.parent.mkdir(parents=True)
    rsm.write_text("#!/bin/sh\n")
    rsm.chmod(0o755)
    (cache / "jars").mkdir(parents=True)
    for line in (project / "jars.lock").read_text().splitlines():
        (cache / "jars" / line.split()[1]).touch()
    script = f"{_stamp_function(project)}\nJARS={cache}/jars\nwanted > .venv/.rsm-setup"
    subprocess.run(["bash", "-c", script], cwd=project, check=True)


def _stamp_function(project: Path) -> str:
    source = (project / "tools" / "setup.sh").read_text()
    return source[source.index("wanted() {") : source.index("is_current() {")]


def _fake_java(folder: Path, version: str) -> str:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    java.chmod(0o755)
    return str(folder)


def test_a_current_set_up_says_and_does_nothing(project: Path) -> None:
    cache = project.parent / "cache"
    _pretend_finished(project, cache)
    done = _set_up(project, PATH="/usr/bin:/bin", RSM_PYTHON="no-such-python")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("changed", _FILES)
def test_a_changed_lock_is_noticed(project: Path, changed: str) -> None:
    cache = project.parent / "cache"
    _pretend_finished(project, cache)
    with (project / changed).open("a") as file:
        file.write("\n")
    assert _set_up(project, RSM_PYTHON="no-such-python").returncode == 1


def test_a_lost_jar_is_noticed(project: Path) -> None:
    cache = project.parent / "cache"
    _pretend_finished(project, cache)
    next((cache / "jars").iterdir()).unlink()
    assert _set_up(project, RSM_PYTHON="no-such-python").returncode == 1


def test_a_moved_project_is_noticed(project: Path) -> None:
    _pretend_finished(project, project.parent / "cache")
    moved = project.rename(project.parent / "moved")
    assert _set_up(moved, RSM_PYTHON="no-such-python").returncode == 1


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RSM_PYTHON": "no-such-python"}, "no no-such-python: install Python 3.11"),
        ({"JAVA_HOME": "/nowhere"}, "no /nowhere/bin/java: install Java 17"),
        ({"RSM_CACHE_DIR": "/proc/nowhere"}, "cannot write to /proc/nowhere"),
    ],
    ids=["python", "java", "cache"],
)
def test_what_is_missing_is_one_line_that_says_what_to_do(
    project: Path, environment: dict[str, str], said: str
) -> None:
    failed = _set_up(project, **environment)
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"setup: {said}")
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402"])
def test_an_old_java_is_one_line_that_says_what_to_do(project: Path, tmp_path: Path, version: str) -> None:
    failed = _set_up(project, JAVA_HOME=_fake_java(tmp_path / "jdk", version))
    assert failed.returncode == 1
    assert f"is Java {version}: install Java 17 or newer" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_full_disk_is_one_line_that_says_what_to_do(project: Path, tmp_path: Path) -> None:
    df = tmp_path / "bin" / "df"
    df.parent.mkdir()
    df.write_text("#!/bin/sh\necho header\necho /dev/x 100 90 10 90% /\n")
    df.chmod(0o755)
    failed = _set_up(project, PATH=f"{df.parent}:{os.environ['PATH']}")
    assert failed.returncode == 1
    assert "only 10 MiB are free" in failed.stderr
    assert failed.stderr.count("\n") == 1
