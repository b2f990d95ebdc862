"""Deleted ledgers go, and only on the word of the metadata store itself (safety 26)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ledger.bookie.collector import Collector
from ledger.errors import LedgerError, MetadataUnavailableError, NoSuchLedgerError
from ledger.wire.codes import Status
from tests.unit.ledger.bookie.bookie_bench import OK, Bench, LoopExecutor, add, read


class Metadata:
    """The few calls that a collector makes, with listings that may be stale."""

    root = "/ledgers"

    def __init__(self, existing, listed=None) -> None:
        self.existing, self.listed = existing, existing if listed is None else listed
        self.error: LedgerError | None = None
        self.store = self

    async def sync(self, path) -> None:
        pass

    async def list(self) -> list[int]:
        return self.listed

    async def read(self, ledger_id, *, sync):
        assert sync
        if self.error is not None:
            raise self.error
        if ledger_id not in self.existing:
            raise NoSuchLedgerError("gone", ledger_id=ledger_id)


async def bookie_with_two_ledgers():
    bench = Bench()
    client = await bench.start()
    await client.ask(add(1, 0), add(2, 0, txn=1))
    return bench, await bench.start()


def collector(bench: Bench, metadata: Metadata) -> Collector:
    executor = LoopExecutor(bench)
    return Collector(bench.server.store, cast("Any", metadata), submit=executor.submit, now_ms=lambda: 99)


def test_a_deleted_ledger_is_dropped_and_its_segment_with_the_last_one() -> None:
    async def run() -> None:
        bench, client = await bookie_with_two_ledgers()
        dropped = await collector(bench, Metadata([2])).collect()
        assert (dropped.ledger_ids, dropped.segment_ids) == ([1], [])
        assert (await client.ask_one(read(1, 0))).status == Status.ENOLEDGER
        assert (await client.ask_one(add(1, 1))).status == Status.EFENCED, "a stale writer brought it back"
        assert (await client.ask_one(read(2, 0))).status == OK
        assert len((await collector(bench, Metadata([])).collect()).segment_ids) == 1
        assert not [name for name in bench.disk.files() if name.endswith(".seg")]

    asyncio.run(run())


def test_a_stale_listing_deletes_nothing() -> None:
    async def run() -> None:
        bench, client = await bookie_with_two_ledgers()
        dropped = await collector(bench, Metadata([1, 2], listed=[])).collect()
        assert dropped.ledger_ids == []
        assert (await client.ask_one(read(1, 0))).status == OK

    asyncio.run(run())


def test_an_error_ends_the_round_before_anything_is_deleted() -> None:
    async def run() -> None:
        bench, client = await bookie_with_two_ledgers()
        metadata = Metadata([])
        metadata.error = MetadataUnavailableError("no reply")
        with pytest.raises(MetadataUnavailableError):
            await collector(bench, metadata).collect()
        assert (await client.ask_one(read(1, 0))).status == OK

    asyncio.run(run())
