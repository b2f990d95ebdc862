from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]
_USERS_SCRIPT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.read.format("ledger").option("log", "orders").load()
except Exception as error:
    print(error)
"""


def run_in(folder: Path, script: str) -> str:
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(_ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_users_folder_of_the_same_name_is_named_as_the_reason(tmp_path: Path) -> None:
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "__init__.py").write_text("MINE = True\n")
    said = run_in(tmp_path, _USERS_SCRIPT)
    assert "Python finds another package `connectors` first" in said
    assert str(tmp_path / "connectors") in said
    assert "Rename that folder" in said


def test_the_look_up_module_never_fails_to_import(tmp_path: Path) -> None:
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "__init__.py").write_text("raise RuntimeError('mine is broken')\n")
    said = run_in(
        tmp_path,
        "from pyspark_ledger import DefaultSource\n"
        "print(DefaultSource.name())\n"
        "try:\n    DefaultSource({}).schema()\n"
        "except ImportError as error:\n    print(error)\n",
    )
    assert said.startswith("ledger\n")
    assert "mine is broken" in said


def test_a_session_that_got_the_package_by_py_files_registers_it(spark: SparkSession, log: Any) -> None:
    from connectors.spark.register import register

    register(spark)
    assert spark.read.format("ledger").options(**log.options()).load().count() == log.revision
