"""Bugs to plant into bookies: the simulation must find each (`test_ledger_bugs`)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledger.bookie import disk_age, handlers, identity
from ledger.bookie.collector import Collector
from ledger.bookie.handlers import Handlers
from ledger.bookie.writes import Writes
from ledger.storage import entry_store, journal_format, recovery, segment_format
from ledger.storage import flush as conversion
from ledger.storage.bookie_ledger import NO_LIMBO, BookieLedger, missing_ledger_status
from ledger.storage.index_memory import MemoryIndex
from ledger.storage.index_rows import IndexTable
from ledger.storage.journal import Journal
from ledger.storage.journal_format import scan_file
from ledger.storage.read_queue import ReadQueue
from ledger.storage.recovery import recover
from ledger.storage.tail import JournalPlace
from ledger.testing import SimDisk, current_process
from ledger.wire.codes import Status
from ledger.wire.packets import AddResponse

__all__ = [
    "acknowledge_what_is_held",
    "believe_any_age",
    "believe_the_index",
    "forget_what_cannot_be_read",
    "forget_which_files_there_were",
    "take_any_size_of_journal",
    "check_the_fence_before_a_queue",
    "ack_before_sync",
    "check_no_sums",
    "collect_by_a_stale_list",
    "deny_what_cannot_be_read",
    "go_on_after_a_failed_sync",
    "ignore_fences",
    "keep_fences_in_memory",
    "limit_limbo_to_known_ledgers",
    "start_new_disks_without_limbo",
    "trust_the_page_cache",
]

_QUEUE_S = 0.05


def ack_before_sync(patch: pytest.MonkeyPatch) -> None:
    write = Journal._write

    def write_without_sync(self: Journal, generation: Any, sealed: Any, items: Any, now_s: float) -> int:
        disk, self._disk = self._disk, _NoSync(self._disk)
        try:
            return write(self, generation, sealed, items, now_s)
        finally:
            self._disk = disk

    patch.setattr(Journal, "_write", write_without_sync)


class _NoSync:
    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def fdatasync(self, handle: int) -> None:
        pass


def ignore_fences(patch: pytest.MonkeyPatch) -> None:
    def refuse_add(self: BookieLedger, master_key: bytes, *, is_recovery: bool) -> Status | None:
        return None if self.has_key(master_key) else Status.EUA

    patch.setattr(BookieLedger, "refuse_add", refuse_add)


def keep_fences_in_memory(patch: pytest.MonkeyPatch) -> None:
    fence = Handlers._fence

    def fence_without_record(self: Handlers, request: Any) -> Any:
        ledger = self._store.ledgers.get(request.ledger_id)
        if ledger is None:
            return fence(self, request)
        refused = ledger.refuse_fence(request.master_key)
        if refused is None:
            ledger.is_fenced = ledger.is_fence_durable = True
            self.polls.wake(ledger, all_of_them=True)
        return refused

    patch.setattr(Handlers, "_fence", fence_without_record)


def go_on_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """What PostgreSQL did until 2018: a second sync of dropped pages succeeds."""
    sync = SimDisk.fdatasync

    def sync_again(self: SimDisk, handle: int) -> None:
        try:
            sync(self, handle)
        except OSError:
            sync_again(self, handle)

    patch.setattr(SimDisk, "fdatasync", sync_again)


def trust_the_page_cache(patch: pytest.MonkeyPatch) -> None:
    """A restart that takes for durable what it can read."""

    def recover_without_sync(disk: Any, *arguments: Any) -> Any:
        disk.fdatasync = disk.fsync_dir = lambda _: None
        try:
            return recover(disk, *arguments)
        finally:
            del disk.fdatasync, disk.fsync_dir

    patch.setattr(entry_store, "recover", recover_without_sync)


def check_no_sums(patch: pytest.MonkeyPatch) -> None:
    """Storage without checksums; those of the entries themselves still keep clients from wrong data."""
    for module in (journal_format, segment_format):
        patch.setattr(module, "_crc", lambda _content, _before=0: 0)


def deny_what_cannot_be_read(patch: pytest.MonkeyPatch) -> None:
    """BookKeeper's #2908: a damaged file is answered with "no such entry"."""
    read = ReadQueue._read_all

    def read_or_deny(self: ReadQueue, lookups: Any) -> Any:
        return [None if isinstance(found, Exception) else found for found in read(self, lookups)]

    patch.setattr(ReadQueue, "_read_all", read_or_deny)


def take_any_size_of_journal(patch: pytest.MonkeyPatch) -> None:
    """A file that was cut short is taken for one that never held more."""

    def scan_any(window: Any, journal_id: int, *, has_successor: bool, **_size_and_mark: Any) -> Any:
        return scan_file(window, journal_id, has_successor=has_successor)

    patch.setattr(conversion, "scan_file", scan_any)


def forget_which_files_there_were(patch: pytest.MonkeyPatch) -> None:
    """Files that are there are taken for all that were."""
    patch.setattr(recovery, "missing_journals", lambda *_: [])


def believe_any_age(patch: pytest.MonkeyPatch) -> None:
    """A data folder that is an older copy of itself is served as it is."""
    patch.setattr(disk_age, "find_rolled_back", lambda _held, _registered: "")


def forget_what_cannot_be_read(patch: pytest.MonkeyPatch) -> None:
    """Places of a journal file that the device cannot read count as empty space."""
    load = conversion.JournalFile.__init__

    def load_and_forget(self: conversion.JournalFile, *arguments: Any, **options: Any) -> None:
        load(self, *arguments, **options)
        self.unreadable = []

    patch.setattr(conversion.JournalFile, "__init__", load_and_forget)


def believe_the_index(patch: pytest.MonkeyPatch) -> None:
    """Rows that vanished with a page are entries that never were."""

    def check_the_sums_of_rows(self: MemoryIndex) -> None:
        for table in IndexTable:
            for key, value in self._rows.ascend(table, b""):
                self._open(key, value)

    patch.setattr(MemoryIndex, "check", check_the_sums_of_rows)


def limit_limbo_to_known_ledgers(patch: pytest.MonkeyPatch) -> None:
    """safety.md 24: a ledger of which a bookie lost everything is not in its limbo."""
    patch.setattr(
        handlers, "missing_ledger_status", lambda ledger_id, _limbo: missing_ledger_status(ledger_id, NO_LIMBO)
    )


def start_new_disks_without_limbo(patch: pytest.MonkeyPatch) -> None:
    """safety.md 25: a new cookie for an id that ledgers still name."""

    async def nobody_names_it(_ledgers: Any, _bookie_id: str) -> int:
        return -1

    patch.setattr(identity, "still_named_up_to", nobody_names_it)


def collect_by_a_stale_list(patch: pytest.MonkeyPatch) -> None:
    """safety.md 26: what a listing does not show is deleted, without a sync and a look at the ledger itself."""
    collect = Collector.collect

    async def collect_by_list(self: Collector) -> Any:
        sync = self._ledgers.store.sync
        self._ledgers.store.sync = _do_nothing  # type: ignore[assignment, method-assign]
        try:
            return await collect(self)
        finally:
            self._ledgers.store.sync = sync

    async def is_gone(_self: Collector, _ledger_id: int) -> bool:
        return True

    patch.setattr(Collector, "collect", collect_by_list)
    patch.setattr(Collector, "_is_gone", is_gone)


async def _do_nothing(_path: str) -> None:
    pass


def check_the_fence_before_a_queue(patch: pytest.MonkeyPatch) -> None:
    """safety.md 22: an add that passed the check waits in a queue of up to 50 ms before it can be read."""
    fenced_at: dict[tuple[str, int], float] = {}
    take_fence, refuse_add = BookieLedger.take_fence, BookieLedger.refuse_add

    def place(ledger: BookieLedger) -> tuple[str, int]:
        process = current_process()
        return (process.name if process else ""), ledger.ledger_id

    def note_fence(self: BookieLedger) -> bool:
        fenced_at.setdefault(place(self), asyncio.get_running_loop().time())
        return take_fence(self)

    def refuse_late(self: BookieLedger, master_key: bytes, *, is_recovery: bool) -> Status | None:
        refused = refuse_add(self, master_key, is_recovery=is_recovery)
        since_s = asyncio.get_running_loop().time() - fenced_at.get(place(self), -1.0)
        return None if refused is Status.EFENCED and since_s < _QUEUE_S and not self.is_deleted else refused

    patch.setattr(BookieLedger, "take_fence", note_fence)
    patch.setattr(BookieLedger, "refuse_add", refuse_late)


def acknowledge_what_is_held(patch: pytest.MonkeyPatch) -> None:
    """safety.md 23: an add of what is held, but not synced yet, is acknowledged at once."""
    add = Writes.add

    def add_or_answer(self: Writes, connection: Any, request: Any) -> bool:
        found = self._store.find(request.ledger_id, request.entry_id)
        if found is not None and not isinstance(found, JournalPlace) and self._refuse_add(request) is None:
            connection.answer(AddResponse(request.txn_id, Status.EOK, request.ledger_id, request.entry_id))
            return True
        return add(self, connection, request)

    patch.setattr(Writes, "add", add_or_answer)
