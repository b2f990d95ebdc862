"""SQLAlchemy's own test suite of dialects, on the dialect `rsm` and a real replica."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import SQL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_000)]

_ROOT = Path(__file__).parents[2]
_SUITE = Path(__file__).parent / "sqlalchemy_suite"
_SETTINGS = "[sqla_testing]\nrequirement_cls=requirements_of_suite:Requirements\nprofile_file=profiles.txt\n"
_PLUGINS = ("no:cacheprovider", "no:xdist", "no:asyncio", "no:hypothesispytest", "skipped_of_suite")
_PASSED_MIN = 850
"""Tests that pass at least: fewer, and the suite was not run."""


def test_sqlalchemys_suite_of_dialects_passes(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    for name, copied in (
        ("conftest_of_suite.py", "conftest.py"), ("suite.py", "test_suite.py"),
        ("requirements_of_suite.py", "requirements_of_suite.py"), ("skipped_of_suite.py", "skipped_of_suite.py"),
    ):  # fmt: skip
        shutil.copy(_SUITE / name, tmp_path / copied)
    (tmp_path / "setup.cfg").write_text(_SETTINGS)
    environment = os.environ | {
        "RSM_METADATA_URI": cluster.metadata_uri, "PYTHONPATH": f"{tmp_path}:{_ROOT}", "PYTEST_ADDOPTS": "",
    }  # fmt: skip
    plugins = [part for name in _PLUGINS for part in ("-p", name)]
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a", "--transaction-idle-s", "60", "--transaction-s-max", "300", command=SQL)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", ".", "-c", "setup.cfg", "test_suite.py",
             "--dburi", f"rsm+dbapi:///{unique_name}", "--tb=short", "--maxfail=20"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=2_500,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= _PASSED_MIN, done.stdout[-2_000:]
