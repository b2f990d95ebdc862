"""Applications as tasks: drivers on the worker's machine, with real brokers, workers and Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import BrokerClient
from ledger.dev import DevCluster
from tests.integration.broker_processes import brokers
from tests.spark.submitting import APPLICATIONS, NAMES, Submitting, all_gone, submitting

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def broker(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[tuple[BrokerClient, tuple[str, ...]]]:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    with (
        brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2")) as (process,),
        BrokerClient.connect([process.url], tenant="acme") as client,
    ):
        client.deploy_code(APPLICATIONS, entries=NAMES, name="applications")
        yield client, found


def _dots(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def test_an_application_tells_what_it_does_and_ends_with_its_task_or_its_worker(
    broker: tuple[BrokerClient, tuple[str, ...]], tmp_path: Path
) -> None:
    client, found = broker
    opened = tmp_path / "opened"
    opened.mkdir()
    for name in ("works.py", "counts.py"):
        (opened / name).write_text((APPLICATIONS / name).read_text())
    options = ("--submit-applications", str(opened), "--threads", "5")
    with submitting(tmp_path, client, "local[2]", *found, *options) as here:
        words = ["--master", "local[7]", "--conf", "spark.driver.extraJavaOptions=-Dx=y", "a b", "$(id)", "'\"\\"]
        own = {"application": f"{opened}/works.py", "args": [str(tmp_path / "own")]}
        first = here.submit("counts.py", *words, conf={"spark.sql.shuffle.partitions": 5})
        bad = here.submit("fails.py")
        lost = [
            client.submit("spark_submit", json.dumps(own), at_most_once=True),
            here.submit("works.py", "/tmp/dots", at_most_once=True, max_attempts=None),
        ]
        said = here.result(first)
        told = json.loads(said["output"])
        assert told["args"] == words, "arguments are the application's, whatever they look like"
        assert (told["count"], told["partitions"], told["task"]) == (100, "5", str(first))
        assert (told["master"], "-Dx" in told["options"]) == ("local[2]", False)
        assert (said["application_id"] or told["id"], said["submission_id"]) == (told["id"], "")
        error = here.until_ended(bad)
        assert error.status == "error"
        assert "ValueError: the day has no flights" in error.error
        assert len(error.error) < 5_000

        here.until(lambda: _dots(tmp_path / "own") and len(here.jvms()) == 2)
        pids = here.jvms()
        _is_cancelled(here, here.submit("works.py", "/tmp/dots"), beside=pids)
        here.worker.kill()
        here.until(lambda: all_gone(pids))
        here.until_still(tmp_path / "own")
        assert [here.until_ended(one).outcome for one in lost] == ["outcome_unknown"] * 2


def _is_cancelled(here: Submitting, task_id: int, *, beside: list[int]) -> None:
    """Look at a task that works until it has told how far it is, and cancel it."""
    message = here.until(lambda: " of 200 tasks" in client_message(here, task_id) and client_message(here, task_id))
    assert message.startswith("local-")
    assert " · http://" in message
    assert 0 <= here.client.get(task_id).progress < 1
    pids = [pid for pid in here.jvms() if pid not in beside]
    assert pids
    here.client.cancel(task_id)
    assert here.until_ended(task_id).status == "cancelled"
    assert all_gone(pids), "the broker hears of the end when the driver is gone"


def client_message(here: Submitting, task_id: int) -> str:
    return here.client.get(task_id).progress_message or ""
