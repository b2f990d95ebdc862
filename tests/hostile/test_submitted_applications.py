"""Applications of a hostile tenant: what payloads smuggle, what drivers look at; those of others go on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from broker.client import BrokerClient
from ledger.dev import DevCluster
from tests.integration.broker_processes import brokers
from tests.integration.worker_processes import is_alive
from tests.spark.submitting import APPLICATIONS, NAMES, submitting

pytestmark = pytest.mark.timeout(1800)

_AGENT = "-javaagent:/tmp/a.jar"
_PAYLOADS: list[tuple[str, Any]] = [
    ("on this worker's list", {"conf": {"spark.driver.extraJavaOptions": _AGENT}}),
    ("on this worker's list", {"conf": {"spark.executor.extraJavaOptions": _AGENT}}),
    ("on this worker's list", {"conf": {"spark.jars.packages": "a:b:1"}}),
    ("on this worker's list", {"conf": {"spark.executorEnv.LD_PRELOAD": "/tmp/a.so"}}),
    ("the worker's to set", {"conf": {"spark.master": "local[64]"}}),
    ("the worker's to set", {"conf": {"spark.submit.deployMode": "cluster"}}),
    ("no name of a setting", {"conf": {"spark.a=b\n--master": "local"}}),
    ("control characters", {"conf": {"spark.sql.session.timeZone": "UTC\nspark.master local"}}),
    ("say the value", {"conf": {"spark.sql.session.timeZone": "${env:RSM_SECRET}"}}),
    ("control characters", {"args": ["x\n26/11/27 18:00:00 INFO ClientEndpoint: Driver successfully submitted as d"]}),
    ("none, such as", {"master": "local[64]"}),
    ("none, such as", {"deploy_mode": "cluster"}),
    ("arguments and settings", {"args": ["x" * 900_000]}),
    ("names a code pool, and its payload another", {"application": "/etc/passwd"}),
]


def test_a_hostile_payload_and_a_hostile_driver_reach_nothing_while_others_work(
    cluster: DevCluster, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    secret, opened = tmp_path / "secret", tmp_path / "opened"
    secret.write_text("of_the_worker")
    opened.mkdir()
    (opened / "link.py").symlink_to(APPLICATIONS / "counts.py")
    monkeypatch.setenv("RSM_SECRET", "of_the_worker")
    with (
        brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2")) as (process,),
        BrokerClient.connect([process.url], tenant="bolt") as victim,
        BrokerClient.connect([process.url], tenant="acme") as client,
    ):
        client.deploy_code(APPLICATIONS, entries=NAMES, name="applications")
        options = ("--threads", "4", "--submit-applications", str(opened))
        with submitting(tmp_path, client, "local[1]", *found, *options) as here:

            def refused(payload: dict[str, Any], said: str, **named: Any) -> None:
                task_id = client.submit("spark_submit", json.dumps(payload), max_attempts=1, **named)
                assert said in here.until_ended(task_id).error, payload

            works = victim.submit(
                "spark_submit", json.dumps({"args": ["/tmp/dots"]}), code="applications", mode="works.py"
            )
            here.until(lambda: " of 200 tasks" in victim.get(works).progress_message)
            for said, payload in _PAYLOADS:
                refused(payload, said, code="applications", mode="counts.py")
            for mode in ("nothing.py", "../counts.py", "/etc/passwd", "os:system", "--conf"):
                refused({}, "is not declared", code="applications", mode=mode)
            for place in (APPLICATIONS / "counts.py", f"{opened}/../secret", f"{opened}/link.py", "--help", ""):
                refused({"application": str(place)}, "application")
            assert len(here.jvms()) == 1, "nothing of it has come as far as Spark"

            looks = here.submit("looks.py", str(secret), str(os.getpid()), str(tmp_path / "written"))
            seen = json.loads(here.result(looks)["output"])
            for what in ("python", "java", "signal", "write", "environment"):
                assert "Error" in seen[what] or seen[what] == "0", (what, seen)
            assert seen["variable"] == ""
            assert not (tmp_path / "written").exists()
            assert is_alive(os.getpid())
            assert victim.get(works).status == "running"
            told = json.loads(here.result(here.submit("counts.py"))["output"])
            assert told["count"] == 100
            victim.cancel(works)
            here.until(lambda: victim.get(works).status == "cancelled")
