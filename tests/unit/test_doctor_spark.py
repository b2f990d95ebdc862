"""What `rsm doctor` says of Spark's side of an installation, as the interpreter that Spark would run sees it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rsm_spark.cli.doctor import Finding, Grade
from rsm_spark.cli.doctor_spark import look_at_spark

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def looked(**more: str) -> dict[str, Finding]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
    return {one.what: one for one in look_at_spark({**inherited, "PYTHONPATH": str(_ROOT), **more})}


def test_both_sources_are_found_by_the_interpreter_that_is_named() -> None:
    found = looked(PYSPARK_PYTHON=sys.executable)
    for what in ("PYSPARK_PYTHON", "source ledger", "source ledger_state"):
        assert found[what].verdict is Grade.GOOD, found[what]
        assert sys.executable in found[what].seen


def test_the_jars_of_delta_are_shown_as_spark_takes_them(elsewhere: Path) -> None:
    (elsewhere / "jars").mkdir()
    for name in ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"):
        (elsewhere / "jars" / name).touch()
    found = looked(RSM_CACHE_DIR=str(elsewhere))["Delta's JARs"]
    assert found.verdict is Grade.GOOD
    assert found.seen.split(",") == [str(jar) for jar in sorted((elsewhere / "jars").glob("*.jar"))]


def test_what_is_not_set_and_not_there_is_a_note_and_not_a_fault(elsewhere: Path) -> None:
    found = looked(RSM_CACHE_DIR=str(elsewhere))
    assert found["PYSPARK_PYTHON"].verdict is Grade.NOTE
    assert found["PYSPARK_PYTHON"].advice == f"export PYSPARK_PYTHON={sys.executable}"
    assert found["source ledger"].verdict is Grade.GOOD
    assert found["Delta's JARs"].verdict is Grade.NOTE
    assert "make setup" in found["Delta's JARs"].seen


def test_a_package_of_this_folder_that_hides_the_sources_is_told(elsewhere: Path) -> None:
    (elsewhere / "connectors").mkdir()
    (elsewhere / "connectors" / "__init__.py").touch()
    found = looked(PYSPARK_PYTHON=sys.executable)
    for name in ("ledger", "ledger_state"):
        assert found[f"source {name}"].verdict is Grade.BAD
        assert str(elsewhere / "connectors") in found[f"source {name}"].seen


def test_another_source_that_fails_to_import_is_told_because_it_hides_all(elsewhere: Path) -> None:
    (elsewhere / "pyspark_mine.py").write_text("raise RuntimeError('not today')")
    found = looked(PYSPARK_PYTHON=sys.executable)["source mine"]
    assert found.verdict is Grade.BAD
    assert "not today" in found.seen


def test_an_interpreter_that_cannot_be_run_is_told() -> None:
    found = looked(PYSPARK_PYTHON="/nowhere/python")["Spark's sources"]
    assert found.verdict is Grade.BAD
    assert "/nowhere/python" in found.seen
    assert found.advice == f"export PYSPARK_PYTHON={sys.executable}"
