"""Callers of the JSON gateway that ask for very much: callers of the gRPC port are served beside them."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from tests.hostile.test_etcd_port import attacking
from tests.hostile.victim import Victim, Work, resident_mib
from tests.integration.etcd_calls import EtcdCalls, EtcdFailure
from tests.integration.etcd_json_calls import EtcdJsonCalls, b64
from tests.integration.store_processes import stores
from tests.integration.test_etcd_api import TOKENS, principals_of, until

pytestmark = pytest.mark.asyncio

_CALLS, _UNITS = 10, 40
_UNITS_A_CALL = 240
_GROWTH_MIB_MAX = 400


def _asks(path: str, document: object) -> Callable[[str, Work], None]:
    """Ask the same on one connection, as quickly as it is answered."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()

    def attack(address: str, work: Work) -> None:
        with EtcdJsonCalls(address, TOKENS["owner"]) as calls, contextlib.suppress(OSError, http.client.HTTPException):
            for _ in range(20):
                calls.post(path, body)
                work.add()

    return attack


def _watches(address: str, work: Work) -> None:
    """Open streams of a thousand watches of the whole history, and read nothing."""
    create = json.dumps({"create_request": {"key": b64(b"own/"), "range_end": b64(b"own0"), "start_revision": "1"}})
    calls = [EtcdJsonCalls(address, TOKENS["owner"]) for _ in range(20)]
    for one in calls:
        with contextlib.suppress(OSError):
            one.connection.request("POST", "/v3/watch", create * 1_000, {"Authorization": TOKENS["owner"]})
            work.add()
    for one in calls:
        with contextlib.suppress(OSError, http.client.HTTPException):
            one.connection.getresponse().readline()
        one.connection.close()
        work.add()


def _halves(address: str, work: Work) -> None:
    """Say that much comes, send a little of it, and wait."""
    host, port = address.rsplit(":", 1)
    sockets = []
    for _ in range(50):
        with contextlib.suppress(OSError):
            one = socket.create_connection((host, int(port)), timeout=5)
            head = f"POST /v3/kv/put HTTP/1.1\r\nHost: {address}\r\nAuthorization: {TOKENS['owner']}\r\n"
            one.sendall(head.encode() + b"Content-Length: 5000000\r\n\r\n" + b"x" * 100_000)
            sockets.append(one)
            work.add()
    for one in sockets:
        one.close()


_NESTED = {"success": [{"request_range": {"key": "b3duL2E="}} for _ in range(120)]}
_ATTACKS: dict[str, Callable[[str, Work], None]] = {
    "puts": _asks("kv/put", {"key": b64(b"own/a"), "value": b64(b"v" * 500_000)}),
    "ranges": _asks("kv/range", {"key": b64(b"own/"), "range_end": b64(b"own0")}),
    "transactions": _asks("kv/txn", _NESTED),
    "garbage": _asks("kv/txn", b'{"success":[' + b"{}," * 1_000_000 + b"{}]}"),
    "deep": _asks("kv/txn", b'{"success":[{"request_txn":' * 4_000),
    "watches": _watches,
    "halves": _halves,
}


@pytest.mark.parametrize("name", _ATTACKS)
async def test_others_are_served_beside_who_asks_the_gateway_for_very_much(
    name: str, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        options = ("--etcd-port", "0", "--etcd-json-port", "0", *principals_of(tmp_path))
        ready = replicas.start("a", *options).ready
        with EtcdCalls(ready["etcd_address"], TOKENS["replica"]) as calls:

            def fill() -> None:
                for n in range(200):
                    until(lambda n=n: calls.put(b"own/%03d" % n, b"v" * 1_000))

            await asyncio.to_thread(fill)

            def ask() -> None:
                answer = calls.put(b"victim", b"v")
                assert not isinstance(answer, EtcdFailure), answer
                (kv,) = calls.get(b"victim").kvs
                assert kv.value == b"v"

            pid = replicas.alive["a"].process.pid
            work, victim = Work(), Victim(lambda: asyncio.to_thread(ask), servers=[pid])
            quiet = await victim.run(_CALLS)
            before = resident_mib(pid)
            with attacking(_ATTACKS[name], ready["etcd_json_address"], work):
                attacked = await victim.run(_CALLS, beside=work, units=_UNITS)
                grown = resident_mib(pid) - before
            print(f"{name}: grown by {grown:.0f} MiB")
            attacked.assert_goes_on_like(quiet, units_per_call=_UNITS_A_CALL, cpu=2_000.0)
            assert grown < _GROWTH_MIB_MAX
            assert replicas.alive["a"].process.poll() is None
