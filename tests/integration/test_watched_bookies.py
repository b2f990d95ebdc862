"""HTTP of bookies and of auto-recovery: real processes, asked as Prometheus, a supervisor or an operator would."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger.zookeeper import session
from ledger.zookeeper.ledgers import LedgerStore
from tests.integration.bookie_process import Bookie, Client, add
from tests.integration.test_auto_recovery import auto_recovery
from tests.unit.rsm_spark.transport.rights_stand import principals, token_of

# What a bookie of Apache BookKeeper 4.17.3 has answered; tests/compat/test_http_api.py asks one that runs.
JAVA_ANSWERS: dict[str, Any] = {
    "/api/v1/bookie/info": {"freeSpace": 77156753408, "totalSpace": 270553174016},
    "/api/v1/bookie/state": {
        "running": True,
        "readOnly": False,
        "shuttingDown": False,
        "availableForHighPriorityWrites": True,
    },
    "/api/v1/bookie/state/readonly": {"readOnly": False},
    "/api/v1/bookie/gc": {"is_in_force_gc": "false"},
    "/api/v1/bookie/list_disk_file": {"index files": "", "journal files": "1a20e64360e.txn\t", "entrylog files": ""},
    "/api/v1/bookie/list_disk_file?file_type=journal": {"journal files": "1a20e64360e.txn\t"},
    "/api/v1/bookie/cluster_info": {
        "auditorElected": True,
        "auditorId": "127.0.0.1:43815",
        "clusterUnderReplicated": False,
        "ledgerReplicationEnabled": True,
        "totalBookiesCount": 3,
        "writableBookiesCount": 3,
        "readonlyBookiesCount": 0,
        "unavailableBookiesCount": 0,
    },
}
_LIMIT_S = 60.0


def ask(address: str, path: str, *, method: str = "GET", body: str = "", token: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body=body or None, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def metrics(address: str, token: str = "") -> dict[str, float]:
    """Return the samples, those of one name added up; the parser has every counter end in `_total`."""
    status, text = ask(address, "/metrics", token=token)
    assert status == 200, text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"after {_LIMIT_S:.0f} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def bookie(zookeeper: str, tmp_path: Path, unique_name: str) -> Iterator[Bookie]:
    made = Bookie(zookeeper, tmp_path / "bookie", root=f"/{unique_name}")
    yield made
    made.kill()


def test_a_bookie_tells_prometheus_what_it_has_done(bookie: Bookie) -> None:
    address = bookie.start("--http-port", "0")["http_address"]

    async def write() -> None:
        client = await Client.connect(bookie.port)
        answers = await client.ask(*[add(7, entry_id, txn=entry_id) for entry_id in range(200)])
        assert len(answers) == 200

    asyncio.run(write())
    found = metrics(address)
    assert found["bookkeeper_server_ADD_ENTRY_REQUEST_count"] == 200
    assert found["bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES_sum"] == 201  # One tells that the ledger began.
    assert found["bookie_journal_JOURNAL_WRITE_BYTES_total"] > 200_000
    assert found["rsm_bookie_journal_sync_seconds_count"] == found["bookie_journal_JOURNAL_SYNC_count"] >= 1
    assert (found["bookie_SERVER_STATUS"], found["rsm_bookie_ready"], found["rsm_metadata_session"]) == (1, 1, 1)
    assert found["rsm_bookie_disk_free_bytes"] > 0
    assert ask(address, "/healthz") == (200, "ok\n")
    assert ask(address, "/readyz") == (200, "ready\n")
    assert json.loads(ask(address, "/status")[1])["counts"]["adds"] == 200


def test_answers_have_the_shape_of_bookkeepers(bookie: Bookie) -> None:
    address = bookie.start("--http-port", "0")["http_address"]
    for path, java in JAVA_ANSWERS.items():
        status, text = ask(address, path)
        assert status == 200, (path, text)
        ours = json.loads(text)
        assert {key: type(value) for key, value in ours.items()} == {key: type(value) for key, value in java.items()}
    assert ask(address, "/heartbeat") == (200, "OK\n")
    assert ask(address, "/api/v1/bookie/is_ready") == (200, "OK\n")
    bookies = json.loads(ask(address, "/api/v1/bookie/list_bookies?type=rw&print_hostnames=true")[1])
    assert bookies == {f"127.0.0.1:{bookie.port}": "127.0.0.1"}
    assert json.loads(ask(address, "/api/v1/bookie/list_bookies?type=ro")[1]) == {}
    assert ask(address, "/api/v1/autorecovery/list_under_replicated_ledger")[0] == 404
    assert ask(address, "/api/v1/autorecovery/who_is_auditor") == (404, "No auditor elected\n")
    assert ask(address, "/api/v1/ledger/metadata?ledger_id=9")[0] == 404


def test_an_operator_takes_a_bookie_out_of_writing_and_nobody_else_does(bookie: Bookie, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("digest:w1:secret\n")
    users.chmod(0o600)
    address = bookie.start(
        "--http-port", "0", "--principals", principals(tmp_path), "--auth-file", str(users), "--audit-file",
        str(tmp_path / "audit"),
    )["http_address"]  # fmt: skip
    path, wish = "/api/v1/bookie/state/readonly", '{"readOnly": true}'
    assert ask(address, path, method="PUT", body=wish)[0] == 401
    for role in ("replica", "auditor", "client", "worker", "tenant"):
        assert ask(address, path, method="PUT", body=wish, token=token_of(role))[0] == 403, role
    operator = token_of("operator")
    assert ask(address, path, method="PUT", body="[]", token=operator)[0] == 400
    status, text = ask(address, path, method="PUT", body=wish, token=operator)
    assert (status, json.loads(text)) == (200, {"readOnly": True})
    until(lambda: _registered(bookie)[1] == [f"127.0.0.1:{bookie.port}"], "it is not registered as read-only")
    assert ask(address, "/readyz", token=operator)[0] == 503
    assert metrics(address, operator)["bookie_SERVER_STATUS"] == 0
    assert ask(address, path, method="PUT", body='{"readOnly": false}', token=operator)[0] == 200
    until(lambda: _registered(bookie)[0] == [f"127.0.0.1:{bookie.port}"], "it is not registered as writable")
    assert ask(address, "/api/v1/bookie/gc", method="PUT", token=operator)[0] == 200
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    done = [line for line in lines if line["outcome"] == "done"]
    assert [(line["principal"], line["action"]) for line in done] == [
        ("operator", f"PUT {path}"), ("operator", f"PUT {path}"), ("operator", "PUT /api/v1/bookie/gc")
    ]  # fmt: skip


def _registered(bookie: Bookie) -> tuple[list[str], list[str]]:
    async def look() -> tuple[list[str], list[str]]:
        hosts, _, root = bookie.uri.removeprefix("zk+hierarchical://").partition("/")
        store = await session.connect((hosts,))
        try:
            ledgers = LedgerStore(store, f"/{root}")
            return await ledgers.writable_bookies(), await ledgers.read_only_bookies()
        finally:
            await store.close()

    return asyncio.run(look())


def test_auto_recovery_tells_that_it_is_the_auditor(bookie: Bookie, tmp_path: Path) -> None:
    bookie.start()
    with auto_recovery(bookie.uri, tmp_path / "log", "--http-port", "0") as (_, notice):
        address = notice["http_address"]
        until(lambda: metrics(address)["rsm_auditor"] == 1, "it is not the auditor")
        until(lambda: "rsm_audited_ledgers" in metrics(address), "it has not audited")
        assert metrics(address)["rsm_under_replicated_ledgers"] == 0
        assert ask(address, "/readyz") == (200, "ready\n")
        owner = json.loads(ask(address, "/status")[1])["owner"]
        assert ask(address, "/api/v1/autorecovery/who_is_auditor") == (200, f"Auditor: {owner}\n")
        assert ask(address, "/api/v1/autorecovery/trigger_audit", method="PUT")[0] == 403
