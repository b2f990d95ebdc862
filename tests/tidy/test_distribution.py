"""What users install, and what an import costs them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = {path.name for path in _ROOT.glob("pyspark_*.py")}
_TOP_LEVEL = {"broker", "ledger", "rsm_spark", "connectors", "rsm_demo", *_SOURCES}
_HEAVY = ("pyspark", "pyarrow", "pandas", "grpc", "deltalake", "lmdb", "psutil", "typer", "rich", "google.protobuf")


def test_the_wheel_holds_our_packages_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    files = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    packaged = [file for file in files if not file.parts[0].endswith((".dist-info", ".data"))]
    assert {file.parts[0] for file in packaged} == _TOP_LEVEL
    typed = {file.parts[0] for file in packaged if file.name == "py.typed"}
    assert typed == _TOP_LEVEL - _SOURCES, "a type checker believes no annotation of a package without py.typed"
    shared = {"/".join(file.parts[2:]) for file in files if file.parts[0].endswith(".data")}
    jobs = {f"share/rsm-spark/jobs/{path.name}" for path in (_ROOT / "jobs").glob("*.py")}
    assert shared == {*jobs, "share/rsm-spark/conf/spark-defaults.conf"}


@pytest.mark.parametrize("package", ["ledger", "rsm_spark", "broker", "connectors"])
def test_importing_a_package_imports_no_heavy_library(package: str) -> None:
    script = f"import sys, {package}; print(*[name for name in {_HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], cwd=_ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
