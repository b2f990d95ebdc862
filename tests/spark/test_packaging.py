"""The package as users get it: a wheel in an environment of its own, by --py-files, packed, in a notebook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests.spark.children import CHILD_S, child_environment, run_child

_ROOT = Path(__file__).resolve().parents[2]
_LIBRARIES = Path(sysconfig.get_path("purelib"))
# What a session of tests needs to be small.
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}

pytestmark = pytest.mark.timeout(4 * CHILD_S)

_READ_BY_NAME = """
import json, sys
import connectors
from connectors.session import spark_session
options, conf = json.loads(sys.argv[1]), json.loads(sys.argv[2])
spark = spark_session("reads", delta=False, local="local[1]", conf=conf)
rows = spark.read.format("ledger").options(**options).load().count()
print(json.dumps({"rows": rows, "connectors": connectors.__file__}))
"""

_READ_REGISTERED = """
import json, sys
from collections.abc import Iterator
import pyarrow as pa
from connectors.session import spark_session
from connectors.register import register

def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import connectors
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"place": [connectors.__file__] * batch.num_rows})

options = json.loads(sys.argv[1])
spark = spark_session("reads", delta=False)
register(spark)
rows = spark.read.format("ledger").options(**options).load()
query = (
    spark.readStream.format("ledger").options(**options, startingOffsets="earliest").load()
    .writeStream.format("memory").queryName("streamed").trigger(availableNow=True).start()
)
query.awaitTermination()
found = rows.select("revision").mapInArrow(places, "place string").distinct().collect()
print(json.dumps({
    "master": spark.sparkContext.master,
    "rows": rows.count(),
    "streamed": spark.table("streamed").count(),
    "connectors": [row.place for row in found],
}))
"""


# What a task of the source imports that is not of this project, and what that needs.
_OF_TASKS = ("pyarrow", "numpy", "msgspec", "crc32c", "kazoo")

_READ_PACKED = """
import json, sys
from collections.abc import Iterator
import pyarrow as pa
from connectors.session import spark_session

def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import connectors
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"place": [connectors.__file__] * batch.num_rows})

spark = spark_session("reads", delta=False)
rows = spark.read.format("ledger").options(**json.loads(sys.argv[1])).load()
found = rows.select("revision").mapInArrow(places, "place string").distinct().collect()
print(json.dumps({"rows": rows.count(), "connectors": [row.place for row in found]}))
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the project's own build backend."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


def make_environment(folder: Path) -> Path:
    """Make an environment that sees the libraries of this one, but not this project; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    place = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", place], capture_output=True, text=True, check=True).stdout.strip()
    # A path that is added like this is not searched for .pth files, so that our editable installation is not seen.
    (Path(site) / "libraries.pth").write_text(f"{_LIBRARIES}\n")
    assert subprocess.run([python, "-c", "import connectors"], capture_output=True, check=False, cwd=folder).returncode
    return python


def install_wheel(wheel: Path, prefix: Path) -> None:
    """Install a wheel that is pure Python as an installer does; the environment that runs the tests may have none."""
    site = next((prefix / "lib").glob("python3*")) / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            _, is_data, place = name.partition(".data/data/")
            target = prefix / place if is_data else site / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with every library and without this project."""
    return make_environment(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="session")
def installed_python(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An interpreter that the wheel is installed for."""
    python = make_environment(tmp_path_factory.mktemp("installed") / "venv")
    install_wheel(wheel, python.parent.parent)
    return python


def test_the_installed_wheel_is_found_by_name_without_any_setting(
    installed_python: Path, log: Any, tmp_path: Path
) -> None:
    log.fill(20)
    command = [str(installed_python), "-c", _READ_BY_NAME, json.dumps(log.options()), json.dumps(_SMALL)]
    found = run_child(command, tmp_path)
    assert found["rows"] == log.revision
    assert Path(found["connectors"]).is_relative_to(installed_python.parents[1])


def test_the_installed_wheel_brings_the_jobs_and_their_settings(installed_python: Path, tmp_path: Path) -> None:
    share = installed_python.parents[1] / "share" / "rsm-spark"
    assert (share / "conf" / "spark-defaults.conf").exists()
    assert {path.name for path in (share / "jobs").glob("*.py")} == {
        path.name for path in (_ROOT / "jobs").glob("*.py")
    }
    helped = [str(installed_python), str(share / "jobs" / "snapshot.py"), "--help"]
    said = subprocess.run(helped, cwd=tmp_path, capture_output=True, text=True, check=True, env=child_environment())
    assert "spark-submit jobs/snapshot.py --log" in said.stdout


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".zip", ".whl"])
def test_py_files_carry_the_package_to_executors_that_have_only_its_libraries(
    suffix: str, wheel: Path, bare_python: Path, log: Any, tmp_path: Path
) -> None:
    log.fill(20)
    shipped = tmp_path / wheel.with_suffix(suffix).name
    shipped.write_bytes(wheel.read_bytes())
    (tmp_path / "reads.py").write_text(_READ_REGISTERED)
    conf = [word for key, value in _SMALL.items() for word in ("--conf", f"{key}={value}")]
    submit = [str(_LIBRARIES / "pyspark" / "bin" / "spark-submit"), "--master", "local-cluster[1,1,1024]", *conf]
    found = run_child(
        [*submit, "--py-files", str(shipped), "reads.py", json.dumps(log.options())],
        tmp_path,
        PYSPARK_PYTHON=str(bare_python),
    )
    assert found["master"] == "local-cluster[1,1,1024]"
    assert found["rows"] == found["streamed"] == log.revision
    assert found["connectors"]
    package = f"{shipped.stem}.zip/connectors/__init__.py"
    assert all(package in place for place in found["connectors"])


def copy_libraries(site: Path, *names: str) -> None:
    """Copy what distributions consist of, as an installation would."""
    for name in names:
        for file in distribution(name).files or ():
            target = site / str(file)
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), target)


@pytest.fixture
def packed_environment(tmp_path: Path, wheel: Path) -> Path:
    """Pack an environment with the package and what its tasks import; pyspark is the cluster's own."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    install_wheel(wheel, python.parent.parent)
    copy_libraries(next((folder / "lib").glob("python3*")) / "site-packages", *_OF_TASKS)
    archive = tmp_path / "packed.tar.gz"
    pack = ["-m", "venv_pack", "--prefix", str(folder), "--output", str(archive), "--compress-level", "1"]
    subprocess.run([sys.executable, *pack], check=True, capture_output=True)
    shutil.rmtree(folder)
    return archive


@pytest.mark.slow
def test_a_packed_environment_brings_the_package_to_executors_that_have_nothing(
    packed_environment: Path, installed_python: Path, log: Any, tmp_path: Path
) -> None:
    log.fill(20)
    (tmp_path / "reads.py").write_text(_READ_PACKED)
    # The driver looks sources up with PYSPARK_PYTHON too, which is a path of the executors: it is made one here.
    (tmp_path / "environment").symlink_to(installed_python.parents[1])
    conf = {**_SMALL, "spark.archives": f"{packed_environment}#environment"}
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    submit = [str(_LIBRARIES / "pyspark" / "bin" / "spark-submit"), "--master", "local-cluster[1,1,1024]", *settings]
    found = run_child(
        [*submit, "reads.py", json.dumps(log.options())],
        tmp_path,
        PYSPARK_PYTHON="./environment/bin/python",
        PYSPARK_DRIVER_PYTHON=str(installed_python),
    )
    assert found["rows"] == log.revision
    (place,) = found["connectors"]
    assert not Path(place).is_relative_to(installed_python.parents[1])
    assert "/environment/lib/" in place


@pytest.mark.slow
def test_a_notebook_starts_a_session_and_reads(log: Any, tmp_path: Path) -> None:
    log.fill(5)
    cells = [
        "import logging; logging.basicConfig(level='ERROR')",
        "from connectors.session import spark_session",
        f"spark = spark_session('notebook', local='local[1]', conf={_SMALL!r})",
        f"rows = spark.read.format('ledger').options(**{log.options()!r}).load()",
        "print(rows.count())",
        "rows.select('revision').limit(3).toPandas()['revision'].tolist()",
        "spark.stop()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(
        notebook, timeout=CHILD_S, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env={**os.environ, "PYTHONPATH": str(_ROOT)})
    printed = next(one for one in notebook.cells[4].outputs if one.get("name") == "stdout")
    assert int(printed["text"]) == log.revision
    (shown,) = [one for one in notebook.cells[5].outputs if one.output_type == "execute_result"]
    assert len(json.loads(shown["data"]["text/plain"])) == 3
