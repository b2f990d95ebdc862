"""Django's ORM on a follower of SQL tables, over PostgreSQL's port: see `django_site`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger.dev import DevCluster
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import place, serve, until_led

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_SITE = Path(__file__).parent / "django_site"


def test_djangos_orm_works(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    (tmp_path / "shop" / "migrations").mkdir(parents=True)
    shutil.copy(_SITE / "models_of_site.py", tmp_path / "shop" / "models.py")
    for package in ("shop", "shop/migrations"):
        (tmp_path / package / "__init__.py").touch()
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        limits = ("--command-s-max", "60", "--transaction-idle-s", "60", "--transaction-s-max", "300")
        at = [place(serve(replicas, name, *limits)) for name in "ab"][1]

        def ask() -> None:
            with psycopg.connect(**at, user="ann") as connection:
                connection.execute("SELECT 1")

        until_led(ask)
        told: dict[str, Any] = {name: at[name] for name in ("host", "port", "dbname")}
        done = subprocess.run(
            [sys.executable, _SITE / "site_program.py", json.dumps(told)],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-5_000:]
