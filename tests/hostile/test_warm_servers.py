"""A hostile tenant beside another one's warm server: it knows all but the token, and comes no further."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from broker.client import BrokerClient
from ledger.dev import DevCluster
from tests.integration.broker_processes import brokers
from tests.spark.pool_processes import descendants
from tests.spark.submitting import APPLICATIONS, submitting

pytestmark = pytest.mark.timeout(1800)

_NAMES = ("asks.py", "asks_for_ever.py", "spies.py")


def _shown_session(message: str) -> tuple[str, str]:
    """Return user and session of a run, as the pages of its server show them to whoever asks."""
    found = re.match(r"(local-\d+) · session [0-9a-f-]+ · http://[^ ]+:(\d+) ", message)
    assert found is not None, message
    address = f"http://127.0.0.1:{found[2]}/api/v1/applications/{found[1]}/jobs"
    with urllib.request.urlopen(address, timeout=60) as answer:
        tags = re.search(r"_User_(task-\d+-\d+)_Session_([0-9a-f-]{36})_", answer.read().decode())
    assert tags is not None
    return tags[1], tags[2]


def test_a_tenant_reaches_no_warm_server_of_another_one(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    found = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    with (
        brokers(tmp_path, "a", options=(*found, "--bookies", "3/3/2")) as (process,),
        BrokerClient.connect([process.url], tenant="bolt") as victim,
        BrokerClient.connect([process.url], tenant="acme") as client,
    ):
        client.deploy_code(APPLICATIONS, entries=_NAMES, name="applications")
        options = ("--submit-deploy-mode", "connect", "--threads", "4")
        with submitting(tmp_path, client, "local[2]", *found, *options) as here:
            asked = victim.submit("spark_submit", "{}", code="applications", mode="asks.py")
            address = json.loads(json.loads(victim.result(asked, timeout_s=600))["output"])["address"]
            works = victim.submit("spark_submit", "{}", code="applications", mode="asks_for_ever.py")
            here.until(lambda: " of 200 tasks" in (victim.get(works).progress_message or ""))
            pids, servers = sorted(descendants(here.worker.process.pid)), here.jvms()
            session = _shown_session(victim.get(works).progress_message or "")

            seen = json.loads(here.result(here.submit("spies.py", address, *session, *map(str, pids)))["output"])
            assert seen["own"] == 3
            for how in ("with_own_token", "with_a_session_of_its_own", "without_token"):
                assert "UNAUTHENTICATED" in seen[how] or "Invalid" in seen[how], (how, seen)
            assert seen["environments"] == 0
            assert all(re.match("ProcessLookupError|PermissionError", one) for one in seen["signal"]), seen
            assert "OSError" in seen["listens"], seen

            assert victim.get(works).status == "running"
            assert len(servers) == 1
            assert set(servers) < set(here.jvms()), "each tenant has its own, and the victim's is the one it had"
            told = json.loads(here.result(here.submit("asks.py"))["output"])
            assert told["before"] == [-1, False]
            victim.cancel(works)
            here.until(lambda: victim.get(works).status == "cancelled")
