"""Explicit entry ids, deferred sync and striping on real bookies, through the blocking client, in both protocols."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

import pytest

from ledger import BlockingLedgerClient, ClientSettings, LedgerClient
from ledger.dev import DevCluster
from ledger.errors import UsageError


@pytest.fixture(params=["v2", "v3"])
def client(cluster: DevCluster, request: pytest.FixtureRequest) -> Iterator[BlockingLedgerClient]:
    protocol: Literal["v2", "v3"] = request.param
    with BlockingLedgerClient(cluster.metadata_uri, settings=ClientSettings(protocol=protocol)) as client:
        yield client


def payloads_of(client: BlockingLedgerClient, ledger_id: int, last: int) -> list[bytes]:
    reader = client.open(ledger_id)
    assert reader.last_add_confirmed == last
    return [entry.payload for entry in reader.read(0, last)]


def test_entries_under_explicit_ids_in_any_order_are_read_in_order(client: BlockingLedgerClient) -> None:
    writer = client.create_adv(ensemble_size=3, write_quorum=2, ack_quorum=2)
    ids = list(range(500))
    random.Random(1).shuffle(ids)
    futures = [writer.append_at(entry_id, b"entry %d" % entry_id) for entry_id in ids]
    assert [future.result(timeout=60) for future in futures] == ids
    with pytest.raises(UsageError, match="given once"):
        writer.append_at(7, b"again")
    assert writer.close() == 499
    assert payloads_of(client, writer.ledger_id, 499) == [b"entry %d" % entry_id for entry_id in range(500)]
    assert client.metadata(writer.ledger_id).length == sum(len(b"entry %d" % entry_id) for entry_id in range(500))


def test_a_ledger_under_an_id_of_ones_own(client: BlockingLedgerClient, unique_name: str) -> None:
    ledger_id = 2**33 + int(unique_name.rpartition("-")[2])
    writer = client.create_adv(ledger_id=ledger_id)
    assert writer.append_at(0, b"x").result(timeout=60) == 0
    with pytest.raises(UsageError, match="exists"):
        client.create_adv(ledger_id=ledger_id)
    assert writer.close() == 0
    assert ledger_id in client.list()
    assert payloads_of(client, ledger_id, 0) == [b"x"]
    client.delete(ledger_id)


def test_recovery_of_explicit_ids_ends_below_the_gap(client: BlockingLedgerClient) -> None:
    writer = client.create_adv()
    below = [writer.append_at(entry_id, b"x") for entry_id in (1, 0)]
    writer.append_at(3, b"above the gap")
    assert [future.result(timeout=60) for future in below] == [1, 0]
    assert payloads_of(client, writer.ledger_id, 1) == [b"x", b"x"]


def test_with_deferred_sync_entries_are_confirmed_by_a_force(client: BlockingLedgerClient) -> None:
    writer = client.create(deferred_sync=True)
    assert writer.append_many([b"x"] * 100) == 99
    assert writer.last_add_confirmed == -1
    assert writer.force() == 99
    assert writer.last_add_confirmed == 99
    reader = client.open_no_recovery(writer.ledger_id)
    assert writer.append(b"y") == 100
    writer.write_lac()
    assert reader.read_lac().last_add_confirmed == 99
    assert writer.close() == 100
    assert payloads_of(client, writer.ledger_id, 100) == [b"x"] * 100 + [b"y"]


def test_appends_that_are_not_waited_for_one_by_one(client: BlockingLedgerClient) -> None:
    writer = client.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
    futures = [writer.append_soon([b"%d" % number]) for number in range(300)]
    writer.flush()
    assert [future.result(timeout=0) for future in futures] == list(range(300))
    assert writer.close() == 299


def test_the_blocking_twin_has_every_call_of_the_client() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert calls(LedgerClient) - calls(BlockingLedgerClient) <= {"ledgers", "store", "settings"}
