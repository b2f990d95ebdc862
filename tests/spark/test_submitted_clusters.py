"""Applications as tasks on a standalone cluster: drivers on the worker's machine, and drivers on the cluster."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import BrokerClient
from ledger.dev import DevCluster
from tests.integration.broker_processes import brokers
from tests.spark.standalone import standalone_cluster
from tests.spark.submitting import APPLICATIONS, NAMES, submitting

pytestmark = pytest.mark.timeout(1800)

_CLUSTER = "\nspark.executor.memory 512m\nspark.cores.max 1\nspark.executor.cores 1\n"
# A class of Spark's own, which runs a program in Python: so no compiler is needed here.
_CLASS = "org.apache.spark.deploy.PythonRunner"


def _jar(folder: Path) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "runs.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    (folder / "rsm-pool.toml").write_text(f'entries = ["runs.jar#{_CLASS}", "counts.py"]\n')
    (folder / "counts.py").write_text((APPLICATIONS / "counts.py").read_text())
    return folder


@pytest.fixture
def broker(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[tuple[BrokerClient, tuple[str, ...]]]:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    with (
        brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2")) as (process,),
        BrokerClient.connect([process.url], tenant="acme") as client,
    ):
        yield client, found


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with standalone_cluster(tmp_path, PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable) as address:
        yield f"spark://{address}"


def test_a_driver_here_uses_the_executors_of_the_cluster(
    broker: tuple[BrokerClient, tuple[str, ...]], master: str, tmp_path: Path
) -> None:
    client, found = broker
    client.deploy_code(APPLICATIONS, entries=NAMES, name="applications")
    with submitting(tmp_path, client, master, *found, more=_CLUSTER) as here:
        said = here.result(here.submit("counts.py", "one"))
    told = json.loads(said["output"])
    assert (told["args"], told["count"], told["master"]) == (["one"], 100, master)
    assert re.fullmatch(r"app-\d{14}-\d{4}", told["id"])
    assert said["application_id"] == told["id"]


def _executors(application_id: str) -> list[int]:
    """Return the executors of an application on this machine."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if application_id.encode() in (place / "cmdline").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def test_applications_of_a_warm_server_use_the_executors_of_the_cluster_until_it_ends(
    broker: tuple[BrokerClient, tuple[str, ...]], master: str, tmp_path: Path
) -> None:
    client, found = broker
    client.deploy_code(APPLICATIONS, entries=("asks.py", "asks_for_ever.py"), name="applications")
    with submitting(
        tmp_path, client, master, *found, "--submit-deploy-mode", "connect", "--threads", "2", more=_CLUSTER
    ) as here:
        said = [here.result(here.submit("asks.py", word)) for word in ("one", "two")]
        told = [json.loads(one["output"]) for one in said]
        server = said[0]["application_id"]
        assert re.fullmatch(r"app-\d{14}-\d{4}", server)
        assert said[1]["application_id"] == server, "it is there for the second one"
        assert [(one["args"], one["count"]) for one in told] == [(["one"], 4950), (["two"], 4950)]
        assert told[0]["session"] != told[1]["session"]
        assert [(one["before"], one["after"]) for one in told] == [([-1, False], [7])] * 2, "modules get to executors"
        executors = _executors(server)
        assert executors

        endless = here.submit("asks_for_ever.py")
        message = here.until(lambda: "http://" in (said := client.get(endless).progress_message or "") and said)
        assert message.startswith(f"{server} · session ")
        client.cancel(endless)
        assert here.until_ended(endless).status == "cancelled"
        assert _executors(server) == executors, "they are kept for the next one"
        here.worker.kill()
        here.until(lambda: not _executors(server))


def test_a_driver_on_the_cluster_ends_with_its_task_or_its_worker(
    broker: tuple[BrokerClient, tuple[str, ...]], master: str, tmp_path: Path
) -> None:
    client, found = broker
    notes, runs = str(APPLICATIONS / "notes.py"), f"runs.jar#{_CLASS}"
    client.deploy_code(_jar(tmp_path / "jar"), name="jars")

    def submit(name: str, *args: str, **more: Any) -> int:
        payload = json.dumps({"args": list(args)})
        return client.submit("spark_submit", payload, code="jars", mode=name, max_attempts=1, **more)

    with submitting(tmp_path, client, master, *found, "--submit-deploy-mode", "cluster", more=_CLUSTER) as here:
        ticks, lost_ticks = tmp_path / "ticks", tmp_path / "lost"
        endless = submit(runs, notes, "", str(ticks))
        assert "runs no drivers in Python" in here.until_ended(submit("counts.py")).error
        here.until(ticks.exists)
        message = here.until(lambda: "http://" in (said := client.get(endless).progress_message) and said)
        assert re.match(r"app-\d{14}-\d{4} · driver-\d{14}-\d{4} · http://127.0.0.1:\d+ · ", message)
        client.cancel(endless)
        assert here.until_ended(endless).status == "cancelled"
        here.until_still(ticks)

        bad = submit(runs, str(tmp_path / "none.py"), "")
        assert "the cluster says of the driver: FAILED" in here.until_ended(bad).error
        done = here.result(submit(runs, notes, ""))
        assert re.fullmatch(r"driver-\d{14}-\d{4}", done["submission_id"])

        lost = submit(runs, notes, "", str(lost_ticks), at_most_once=True)
        here.until(lost_ticks.exists)
        here.worker.kill()
        assert here.until_ended(lost).outcome == "outcome_unknown"
        here.until_still(lost_ticks)
