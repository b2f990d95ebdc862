"""Sources are found by name, and where a project's own folders hide them, each says so and what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from tests.spark.children import CHILD_S, child_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = {path.stem.removeprefix("pyspark_"): path.stem for path in sorted(_ROOT.glob("pyspark_*.py"))}
pytestmark = pytest.mark.timeout(3 * CHILD_S)
_USERS_SCRIPT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for name in sys.argv[1:]:
    try:
        print(name, "has", spark.read.format(name).option("log", "orders").load().columns)
    except Exception as error:
        print(name, "fails:", error)
"""
_OTHER_SOURCE = """
from pyspark.sql.datasource import DataSource
class DefaultSource(DataSource):
    @classmethod
    def name(cls): return "other"
    def schema(self): return "a int"
"""
_IMPORT = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1])
try:
    said = module.DefaultSource({"log": "orders"}).schema()
except ImportError as error:
    said = str(error)
print(json.dumps([module.DefaultSource.name(), said]))
"""


def run_in(folder: Path, *command: str, **environment: str) -> str:
    """Run Python as Spark does it: with `-m` or `-c`, the working directory comes first."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(_ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make somebody's project: packages `connectors` and `jobs` of its own, and a source of its own."""
    for package in ("connectors", "jobs"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "pyspark_other.py").write_text(_OTHER_SOURCE)
    return tmp_path


def test_a_project_with_packages_of_these_names_is_told_so_and_keeps_its_own_sources(project: Path) -> None:
    said = run_in(project, "-c", _USERS_SCRIPT, *_SOURCES, "other")
    for name in _SOURCES:
        assert f"source {name} is hidden: Python finds another package `connectors` before rsm-spark's" in said
    assert said.count(str(project / "connectors" / "__init__.py")) == len(_SOURCES)
    assert said.count("Start Spark with PYTHONSAFEPATH=1 in its environment") == len(_SOURCES)
    assert "other has ['a']" in said


@pytest.mark.slow
def test_such_a_project_reads_when_it_follows_that_advice(project: Path) -> None:
    said = run_in(project, "-c", _USERS_SCRIPT, "ledger", PYTHONSAFEPATH="1")
    assert said.startswith("ledger has ['log', 'ledger_id'")


@pytest.mark.slow
def test_a_job_does_its_work_in_such_a_project(project: Path, log: Any) -> None:
    log.fill(5)
    job = str(_ROOT / "jobs" / "snapshot.py")
    where = ["--metadata-uri", log.metadata_uri, "--log", log.name, "--lake", str(project / "lake")]
    answer = json.loads(run_in(project, job, *where).splitlines()[-1])
    assert answer["ok"] is True


@pytest.mark.slow
def test_a_job_that_is_submitted_there_ends_with_what_to_do(project: Path, log: Any) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    settings = ["--properties-file", str(_ROOT / "conf" / "spark-defaults.conf"), "--conf", "spark.ui.enabled=false"]
    where = ["--metadata-uri", log.metadata_uri, "--log", log.name, "--lake", str(project / "lake")]
    for environment, code in (({}, 1), ({"PYTHONSAFEPATH": "1"}, 0)):
        done = subprocess.run(
            [submit, "--master", "local[1]", *settings, str(_ROOT / "jobs" / "snapshot.py"), *where],
            cwd=project,
            env=child_environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(_ROOT), **environment),
            capture_output=True,
            text=True,
            timeout=CHILD_S,
            check=False,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        assert (done.returncode, answer["ok"]) == (code, code == 0), answer
        assert ("Start Spark with PYTHONSAFEPATH=1" in answer.get("error", "")) is (code == 1)


@pytest.mark.parametrize("module", _SOURCES.values())
@pytest.mark.parametrize(
    ("package", "content", "means"),
    [
        ("connectors", "MINE = True", "another package `connectors` before"),
        ("ledger", "MINE = True", "another package `ledger` before"),
        ("rsm_spark", "raise RuntimeError('mine is broken')", "another package `rsm_spark` before"),
        (
            "msgspec",
            "raise RuntimeError('broken')",
            "RuntimeError: broken. Install rsm-spark[spark] for this interpreter",
        ),
    ],
)
def test_the_look_up_never_fails_to_import(module: str, package: str, content: str, means: str, tmp_path: Path) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(content)
    name, said = json.loads(run_in(tmp_path, "-c", _IMPORT, module))
    assert name == module.removeprefix("pyspark_")
    assert means in said


def test_a_folder_of_the_path_is_named_with_another_advice(project: Path, tmp_path_factory: Any) -> None:
    path = os.pathsep.join((str(project), str(_ROOT)))
    said = run_in(tmp_path_factory.mktemp("elsewhere"), "-c", _IMPORT, "pyspark_ledger", PYTHONPATH=path)
    assert "Take that folder out of PYTHONPATH, or rename the package" in said


def test_a_session_that_got_the_package_by_py_files_registers_it(spark: SparkSession, log: Any) -> None:
    from connectors.register import register

    register(spark)
    assert spark.read.format("ledger").options(**log.options()).load().count() == log.revision
