"""Bugs for the simulation of the file store with contents in ledgers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rsm_spark.core.contents import CONTENTS_TABLE, FileContent, digest_of
from rsm_spark.files import cleaning
from rsm_spark.files.cleaning import FileCleaner
from rsm_spark.files.commands import FindNameless, ListFreed, NamelessLedgers
from rsm_spark.files.content_ledgers import ContentWriter
from rsm_spark.files.draft import FileDraft
from rsm_spark.files.machine import FileMachine
from rsm_spark.files.records import ENTERED
from rsm_spark.files.uploads import FileUploads

Patch = pytest.MonkeyPatch


def deletes_a_ledger_that_a_snapshot_names(patch: Patch) -> None:
    freed = FileMachine._freed
    patch.setattr(FileMachine, "_freed", lambda self, query: freed(self, ListFreed("/", query.limit, 1 << 60)))
    patch.setattr(cleaning, "is_due", lambda _freed, _chain: True)


def takes_the_ledger_of_a_writer_that_still_writes(patch: Patch) -> None:
    def _nameless(self: FileMachine, query: FindNameless, _revision: int) -> NamelessLedgers:
        named = {row[0] for _, row in self.items(CONTENTS_TABLE)}
        return NamelessLedgers(tuple(ledger for ledger, _ in query.ledgers if ledger not in named))

    patch.setattr(FileMachine, "_nameless", _nameless)


def does_not_check_what_it_reads(patch: Patch) -> None:
    patch.setattr(FileContent, "fault_of_chunk", lambda *_: "")


def loses_what_is_renamed_over_a_file(patch: Patch) -> None:
    move = FileDraft._move

    def _move(self: FileDraft, names: Any, to: Any, node: Any, *, is_overwriting: bool) -> None:
        replaces = self._tree.find(to) is not None
        move(self, names, to, node, is_overwriting=is_overwriting)
        if replaces:
            self.records = [one for one in self.records if one[0] != ENTERED]

    patch.setattr(FileDraft, "_move", _move)


def never_gives_up_a_silent_upload(patch: Patch) -> None:
    patch.setattr(FileUploads, "overdue", lambda *_: None)
    patch.setattr(FileUploads, "next_due_ms", lambda *_: None)


def shows_a_file_before_its_ledger_is_closed(patch: Patch) -> None:
    close = ContentWriter.close

    async def _close(self: ContentWriter) -> FileContent:
        self.closing = asyncio.get_running_loop().create_task(close(self))  # type: ignore[attr-defined]
        self.closing.add_done_callback(lambda task: task.cancelled() or task.exception())  # type: ignore[attr-defined]
        return FileContent(self.ledger, self.size, len(self._digests), digest_of(b"".join(self._digests)))

    patch.setattr(ContentWriter, "close", _close)


def looks_once_for_ledgers_of_dead_servers(patch: Patch) -> None:
    sweep = FileCleaner.sweep

    async def _sweep(self: FileCleaner) -> None:
        if self not in swept:
            await sweep(self)
            swept.append(self)

    swept: list[FileCleaner] = []
    patch.setattr(FileCleaner, "sweep", _sweep)


def never_looks_for_ledgers_of_dead_servers(patch: Patch) -> None:
    async def _sweep(_self: FileCleaner) -> None:
        return

    patch.setattr(FileCleaner, "sweep", _sweep)
