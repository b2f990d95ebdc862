"""Carries out an `EntryCopy`: reads with the digest checked, recovery adds, a limit on bytes a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ledger.client.answers import Answered, AnswerQueue, read_answer
from ledger.client.pool import ConnectionPool
from ledger.core.entry import Answer
from ledger.core.metadata import LedgerMetadata
from ledger.core.reader import ReadEntry
from ledger.replication.core.entry_copy import CopyEffect, EntryCopy
from ledger.replication.settings import ReplicationSettings
from ledger.wire.codes import PRIORITY_RECOVERY
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest, ReadRequest


async def copy_entries(
    pool: ConnectionPool,
    ledger_id: int,
    metadata: LedgerMetadata,
    entry_ids: Iterable[int],
    target: str,
    *,
    settings: ReplicationSettings,
    last_asked: Iterable[str] = (),
    go_on: Callable[[], Awaitable[bool]],
) -> EntryCopy:
    """Copy entries to a bookie and return how that went.

    Args:
        pool: Connections.
        ledger_id: The ledger.
        metadata: They name the replicas to read from.
        entry_ids: What to copy, ascending.
        target: Where to.
        settings: Window and rate.
        last_asked: Replicas that are asked last, beside those whose connection failed lately.
        go_on: Asked between batches; False ends the copy, incomplete.

    """
    copy = EntryCopy(
        ledger_id,
        metadata,
        entry_ids,
        target,
        last_asked=frozenset((*last_asked, *pool.suspects())),
        window_bytes=settings.window_bytes,
    )
    await _Run(pool, copy, metadata, settings.copy_bytes_per_s).run(go_on)
    return copy


class _Run:
    """Requests and answers of one copy. The token of a request is (is it a read, entry id)."""

    def __init__(self, pool: ConnectionPool, copy: EntryCopy, metadata: LedgerMetadata, bytes_per_s: int) -> None:
        self._pool = pool
        self._copy = copy
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        self._bytes_per_s = bytes_per_s
        self._answers = AnswerQueue()

    async def run(self, go_on: Callable[[], Awaitable[bool]]) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        effects = self._copy.start()
        while True:
            for effect in effects:
                self._send(effect)
            if self._copy.is_over:
                return
            effects = self._take(await self._answers.next_batch())
            if not await go_on():
                return
            if self._bytes_per_s:
                ahead_s = self._copy.stored_bytes / self._bytes_per_s - (loop.time() - started_s)
                if ahead_s > 0:
                    await asyncio.sleep(ahead_s)

    def _send(self, effect: CopyEffect) -> None:
        ledger_id = self._copy.ledger_id
        txn = self._pool.take_txns(1)
        if isinstance(effect, ReadEntry):
            read = ReadRequest(txn, ledger_id, effect.entry_id)
            self._pool.ask(effect.bookie_id, read, (self._answers, (True, effect.entry_id)))
            return
        entry = effect.entry
        # What was read, sealed again, gives the bytes that were read: nothing in an entry depends on the replica.
        body = seal(ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length, entry.payload, self._digest)
        add = AddRequest(
            txn, ledger_id, entry.entry_id, self._master_key, body, is_recovery=True, priority=PRIORITY_RECOVERY
        )
        self._pool.ask(self._copy.target, add, (self._answers, (False, entry.entry_id)))

    def _take(self, batch: list[Answered]) -> list[CopyEffect]:
        reads = [(a.bookie_id, a.token[1], self._read(a)) for a in batch if a.token[0]]
        effects = self._copy.on_answers(reads)
        stored: list[int] = []
        for answered in batch:
            is_read, entry_id = answered.token
            if is_read:
                continue
            if answered.is_stored:
                stored.append(entry_id)
            else:
                self._copy.on_store_failed(answered.reason)
        return effects + self._copy.on_stored(stored)

    def _read(self, answered: Answered) -> Answer:
        return read_answer(answered, self._digest, self._copy.ledger_id, answered.token[1])
