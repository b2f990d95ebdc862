"""BookKeeper's HTTP API, call by call: a bookie of ours and one of BookKeeper's on one cluster are asked the same."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.dev.ports import HOST, choose_port
from ledger.wire.metadata_format import Cookie
from ledger.zookeeper import session
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import create_cookie
from tests.compat.bookies import Bookies
from tests.integration.test_watched_bookies import until
from tests.unit.rsm_spark.transport.rights_stand import principals, token_of
from tools.fetch_bookkeeper import BOOKKEEPER_HTTP_LOCK, ensure_jars

pytestmark = pytest.mark.compat

_LEDGER = 7
_PASSWORD = "of-the-ledger"
_DEAD = ("127.0.0.1:1", "127.0.0.1:2")
_V1 = "/api/v1"


class Answer(NamedTuple):
    status: int
    text: str

    @property
    def shape(self) -> Any:
        """Keys and types of JSON, or the text."""
        try:
            return _shape(json.loads(self.text))
        except ValueError:
            return self.text.strip()


class Pair(NamedTuple):
    """HTTP addresses of the two bookies."""

    ours: str
    java: str

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[Answer, Answer]:
        return _ask(self.ours, method, path, body), _ask(self.java, method, path, body)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shape(one) for one in value[:1]]
    return type(value).__name__


def _ask(address: str, method: str, path: str, body: str | None) -> Answer:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body=body, headers={"Authorization": f"Bearer {token_of('operator')}"})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def pair(java_bookkeeper: Callable[..., Bookies], tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("http-api")
    users = folder / "users"
    users.write_text("digest:w1:secret\n")
    users.chmod(0o600)
    port = choose_port(taken=())
    pair = Pair(f"{HOST}:{choose_port(taken={port})}", f"{HOST}:{port}")
    ours = ("--http-port", pair.ours.rpartition(":")[2], "--principals", principals(folder), "--auth-file", str(users))
    bookies = java_bookkeeper(
        "java",
        "ours",
        our_arguments=["--autorecovery", *ours],
        java_lines=[
            "httpServerEnabled=true",
            "httpServerClass=org.apache.bookkeeper.http.vertx.VertxHttpServer",
            f"httpServerHost={HOST}",
            f"httpServerPort={port}",
        ],
        java_more_jars=ensure_jars(BOOKKEEPER_HTTP_LOCK),
    )
    asyncio.run(_fill(bookies))
    until(lambda: _has_begun(pair), "one of them does not answer, or there is no auditor")
    return pair


def _has_begun(pair: Pair) -> bool:
    try:
        ours, java = pair.ask("GET", f"{_V1}/autorecovery/who_is_auditor")
    except ConnectionRefusedError:  # They are registered before they answer HTTP.
        return False
    return (ours.status, java.status) == (200, 200)


async def _fill(bookies: Bookies) -> None:
    """Add a closed ledger without entries, and cookies of bookies that do not serve."""
    store = await session.connect([bookies.zookeeper])
    try:
        ledgers = LedgerStore(store, bookies.root)
        ensemble = tuple(bookies.ids)
        segments = (Segment(0, ensemble),)
        metadata = LedgerMetadata(
            QuorumConfig(2, 2, 2),
            LedgerState.CLOSED,
            segments,
            DigestType.CRC32C,
            _PASSWORD.encode(),
            created_ms=1_700_000_000_000,
        )
        await ledgers.create(_LEDGER, metadata)
        for one in _DEAD:
            await create_cookie(store, bookies.root, one, Cookie(one, "/journal", ("/ledgers",), None))
    finally:
        await store.close()


Call = tuple[str, str, str | None]

_DECOMMISSION = f"{_V1}/autorecovery/decommission"
_RECOVER = f"{_V1}/autorecovery/bookie"
_DELAY = f"{_V1}/autorecovery/lost_bookie_recovery_delay"
_READ_ONLY = f"{_V1}/bookie/state/readonly"

_SAME: list[Call] = [
    ("GET", "/heartbeat", None),
    ("GET", f"{_V1}/bookie/is_ready", None),
    ("GET", f"{_V1}/bookie/info", None),
    ("GET", f"{_V1}/bookie/state", None),
    ("GET", _READ_ONLY, None),
    ("PUT", _READ_ONLY, '{"readOnly": true}'),
    ("GET", _READ_ONLY, None),
    ("PUT", _READ_ONLY, '{"readOnly": false}'),
    ("GET", f"{_V1}/bookie/gc", None),
    ("PUT", f"{_V1}/bookie/gc", None),
    ("PUT", f"{_V1}/bookie/gc", '{"forceMajor": true, "forceMinor": false}'),
    ("GET", f"{_V1}/bookie/list_disk_file", None),
    ("GET", f"{_V1}/bookie/list_disk_file?file_type=journal", None),
    ("GET", f"{_V1}/bookie/list_disk_file?file_type=entrylog", None),
    ("GET", f"{_V1}/bookie/list_disk_file?file_type=index", None),
    ("GET", f"{_V1}/bookie/list_bookies", None),
    ("GET", f"{_V1}/bookie/list_bookies?type=rw&print_hostnames=true", None),
    ("GET", f"{_V1}/bookie/list_bookies?type=ro", None),
    ("GET", f"{_V1}/bookie/cluster_info", None),
    ("GET", f"{_V1}/ledger/list", None),
    ("GET", f"{_V1}/autorecovery/list_under_replicated_ledger", None),
    ("GET", f"{_V1}/autorecovery/list_under_replicated_ledger?printmissingreplica=true", None),
    ("GET", f"{_V1}/autorecovery/who_is_auditor", None),
    ("PUT", _DELAY, '{"delay_seconds": 30}'),
    ("GET", _DELAY, None),
    ("PUT", f"{_V1}/autorecovery/trigger_audit", None),
    ("PUT", _DECOMMISSION, f'{{"bookie_src": "{_DEAD[0]}"}}'),
    ("PUT", _RECOVER, f'{{"bookie_src": ["{_DEAD[1]}"], "delete_cookie": false}}'),
]

# What is meant to differ, with our status and BookKeeper's: a call that it has for other methods alone is 405 here, a
# request that nobody could obey is 400 and says what is expected, and nothing is promised about what is not there.
_DIFFERENT: list[tuple[int, int, Call]] = [
    (405, 404, ("GET", f"{_V1}/bookie/expand_storage", None)),
    (405, 404, ("GET", f"{_V1}/autorecovery/trigger_audit", None)),
    (405, 404, ("GET", _DECOMMISSION, None)),
    (405, 404, ("GET", _RECOVER, None)),
    (405, 404, ("PUT", f"{_V1}/bookie/info", None)),
    (501, 200, ("PUT", f"{_V1}/bookie/expand_storage", None)),  # BookKeeper's has nothing to do, and says success.
    (400, 200, ("GET", f"{_V1}/bookie/list_disk_file?file_type=wrong", None)),
    (400, 404, ("GET", f"{_V1}/ledger/metadata", None)),
    (400, 500, ("GET", f"{_V1}/ledger/metadata?ledger_id=x", None)),
    (404, 500, ("GET", f"{_V1}/ledger/metadata?ledger_id=9", None)),
    (400, 500, ("PUT", _READ_ONLY, "[")),
    (200, 500, ("PUT", _READ_ONLY, None)),  # As if it said {}, which both take.
    (400, 500, ("PUT", _DELAY, '{"delay_seconds": "x"}')),
    (400, 404, ("PUT", _DELAY, "{}")),
    (400, 404, ("PUT", _DELAY, None)),
    (400, 404, ("PUT", _DECOMMISSION, None)),
    (400, 404, ("PUT", _DECOMMISSION, "{}")),
    (400, 500, ("PUT", _DECOMMISSION, "[")),
    (400, 404, ("PUT", _DECOMMISSION, '{"bookie_src": "a/b"}')),
    (404, 200, ("PUT", _DECOMMISSION, '{"bookie_src": "127.0.0.1:9"}')),  # There is none.
    (400, 404, ("PUT", _RECOVER, None)),
    (400, 500, ("PUT", _RECOVER, "{}")),
    (400, 404, ("PUT", _RECOVER, "[")),
    (400, 404, ("PUT", _RECOVER, '{"bookie_src": []}')),
    (400, 404, ("PUT", _RECOVER, f'{{"bookie_src": ["{_DEAD[1]}"], "bookie_dest": ["127.0.0.1:9"]}}')),
    (404, 200, ("PUT", _RECOVER, '{"bookie_src": ["127.0.0.1:9"]}')),  # There is none.
    (404, 200, ("GET", f"{_V1}/config/server_config", None)),  # It may hold passwords.
    (404, 200, ("GET", f"{_V1}/bookie/list_bookie_info", None)),
    (404, 200, ("GET", f"{_V1}/bookie/last_log_mark", None)),
    (404, 200, ("GET", f"{_V1}/bookie/gc/suspend_compaction", None)),
    (404, 200, ("GET", f"{_V1}/bookie/entry_location_compact", None)),
    (404, 200, ("GET", f"{_V1}/autorecovery/status", None)),
]


def test_both_answer_with_one_status_and_one_shape(pair: Pair) -> None:
    for call in _SAME:
        ours, java = pair.ask(*call)
        assert (ours.status, ours.shape) == (java.status, java.shape), call
        assert ours.status in {200, 404}, (call, ours)


def test_what_differs_is_what_the_table_says(pair: Pair) -> None:
    found = []
    for _, _, call in _DIFFERENT:
        ours, java = pair.ask(*call)
        found.append((ours.status, java.status, call))
        assert ours.status == 200 or len(ours.text.splitlines()) == 1, (call, ours)
    assert found == _DIFFERENT


def test_metadata_are_told_without_the_password_and_as_objects_in_lists_too(pair: Pair) -> None:
    ours, java = pair.ask("GET", f"{_V1}/ledger/metadata?ledger_id={_LEDGER}")
    told = json.loads(java.text)
    assert told[str(_LEDGER)].pop("password")
    assert json.loads(ours.text) == told
    ours, java = pair.ask("GET", f"{_V1}/ledger/list?print_metadata=true&page=1")
    assert json.loads(ours.text) == told
    assert _PASSWORD in json.loads(java.text)[str(_LEDGER)]
    assert _PASSWORD not in ours.text


def test_collections_are_those_of_bookkeepers_but_for_its_index(pair: Pair) -> None:
    ours, java = pair.ask("GET", f"{_V1}/bookie/gc_details")
    (mine,), (theirs,) = ours.shape, java.shape
    assert {key: theirs[key] for key in mine} == mine
    assert set(theirs) - set(mine) == {"lastEntryLocationCompactionTime", "entryLocationCompactionCounter"}
