"""Applications with sessions of a warm server: what they are told, what they leave behind, how they and it end."""

from __future__ import annotations

import json
import os
import re
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import BrokerClient
from broker.worker.submit.pages import driver_state
from ledger.dev import DevCluster
from tests.integration.broker_processes import brokers
from tests.spark.submitting import APPLICATIONS, Submitting, all_gone, submitting

pytestmark = pytest.mark.timeout(1800)

_NAMES = ("asks.py", "asks_for_ever.py", "fails.py")
_JAR = "some.jar#org.example.Main"


@pytest.fixture
def broker(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[tuple[BrokerClient, tuple[str, ...]]]:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    code = tmp_path / "code"
    code.mkdir()
    for name in _NAMES:
        (code / name).write_text((APPLICATIONS / name).read_text())
    with zipfile.ZipFile(code / "some.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    with (
        brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2")) as (process,),
        BrokerClient.connect([process.url], tenant="acme") as client,
    ):
        client.deploy_code(code, entries=[*_NAMES, _JAR], name="applications")
        yield client, (*found, "--submit-deploy-mode", "connect", "--threads", "5")


def _works(here: Submitting, task_id: int) -> re.Match[str]:
    """Wait until a task has told how far it is; return the address of its server's pages."""
    found = here.until(
        lambda: re.fullmatch(
            r"(?P<id>local-\d+) · session (?P<session>[0-9a-f-]{36}) · http://[^ ]+:(?P<port>\d+) · "
            r"(?P<jobs>\d+) jobs?, \d+ of (?P<tasks>\d+) tasks",
            here.client.get(task_id).progress_message or "",
        )
    )
    assert found["tasks"] == "200", "of its own jobs alone"
    return found


def test_applications_of_a_tenant_have_sessions_of_one_server(
    broker: tuple[BrokerClient, tuple[str, ...]], tmp_path: Path
) -> None:
    client, options = broker
    with submitting(tmp_path, client, "local[2]", *options) as here:
        words = ["--master", "local[7]", "a b", "$(id)"]
        first = here.submit("asks.py", *words, conf={"spark.sql.shuffle.partitions": 5})
        said = here.result(first)
        told = json.loads(said["output"])
        assert told["args"] == words
        assert (told["count"], told["partitions"], told["task"]) == (4950, "5", str(first))
        assert told["run"][0] == told["run"][1]
        assert told["kind"] == "pyspark.sql.connect.session"
        assert (said["session_id"], said["log"]) == (told["session"], "that was all\n")
        assert (told["before"], told["after"]) == ([-1, False], [7])

        servers = here.jvms()
        second = here.result(here.submit("asks.py"))
        again = json.loads(second["output"])
        assert (second["application_id"], here.jvms()) == (said["application_id"], servers)
        assert len(servers) == 1
        assert (again["before"], again["partitions"]) == ([-1, False], "3"), "nothing is left of the first one"

        error = here.until_ended(here.submit("fails.py"))
        assert "ValueError: the day has no flights" in error.error
        bad = here.until_ended(here.submit("asks.py", conf={"spark.default.parallelism": 3}))
        assert "conf 'spark.default.parallelism' is of a whole driver" in bad.error
        assert "a warm server runs programs in Python" in here.until_ended(here.submit(_JAR)).error
        assert here.jvms() == servers, "none of these has harmed it"


def test_what_an_application_computes_ends_with_it_and_it_with_its_server_or_worker(
    broker: tuple[BrokerClient, tuple[str, ...]], tmp_path: Path
) -> None:
    client, options = broker
    with submitting(tmp_path, client, "local[2]", *options) as here:
        cancelled = here.submit("asks_for_ever.py", "besides")
        pages = ("127.0.0.1", int(_works(here, cancelled)["port"]))
        here.until(lambda: (state := driver_state(*pages)) and state.jobs > 1)
        client.cancel(cancelled)
        assert here.until_ended(cancelled).status == "cancelled"
        # Also those of sessions that it has opened besides. Executors notice it a moment later.
        state = here.until(lambda: (state := driver_state(*pages)) and not state.jobs and state)

        (server,) = here.jvms()
        retried = here.submit("asks_for_ever.py", max_attempts=2)
        lost = here.submit("asks_for_ever.py")
        for one in (retried, lost):
            assert _works(here, one)["id"] == state.application_id
        os.kill(server, signal.SIGKILL)
        assert "the warm server of this tenant has ended" in here.until_ended(lost).error
        said = here.result(retried)
        assert said["output"] == "7\n"
        assert said["application_id"] != state.application_id

        left = here.submit("asks_for_ever.py", at_most_once=True, max_attempts=None)
        _works(here, left)
        pids = here.jvms()
        here.worker.kill()
        here.until(lambda: all_gone(pids))
        assert here.until_ended(left).outcome == "outcome_unknown"
