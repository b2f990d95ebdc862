"""Closing and recovering ledgers: carries out what `Recovery` decides, and settles who has closed by CAS.

A ledger is closed once. Whoever loses the compare-and-set reads again: CLOSED is adopted whoever wrote it;
IN_RECOVERY is recovered like by anybody else, never closed over with the own end.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

import msgspec

from ledger.client.answers import Answered, AnswerQueue, read_answer
from ledger.client.pool import ConnectionPool
from ledger.core.entry import Answer
from ledger.core.metadata import NO_ENTRY, LedgerMetadata, LedgerState
from ledger.core.recovery import CloseLedger, Effect, FailRecovery, FenceRead, Recovery, ReplaceBookie, WriteBack
from ledger.errors import (
    BadVersionError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    QuorumLostError,
    WrongPasswordError,
)
from ledger.wire.codes import PRIORITY_RECOVERY
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest, ReadRequest
from ledger.zk.ledgers import LedgerStore

__all__ = ["LedgerCloser", "check_password"]

_log = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 5
_ATTEMPT_DELAY_S: Final = 0.2

_UNSETTLED: Final = (BadVersionError, MetadataUnavailableError, MetadataSessionLostError)
"""After these a write was refused or may have been applied: read again and compare."""


def check_password(ledger_id: int, metadata: LedgerMetadata, password: bytes) -> None:
    """Refuse a wrong password before anything is sent to a bookie.

    Raises:
        WrongPasswordError: It is not the ledger's.

    """
    if metadata.password != password:
        raise WrongPasswordError(
            f"the password given for ledger {ledger_id} is not the one it was created with; nothing was changed",
            ledger_id=ledger_id,
        )


class LedgerCloser:
    """Closes ledgers, as their writer or as somebody who recovers them."""

    def __init__(self, ledgers: LedgerStore, pool: ConnectionPool, rng: random.Random) -> None:
        self._ledgers = ledgers
        self._pool = pool
        self._rng = rng

    async def close(
        self, ledger_id: int, metadata: LedgerMetadata, last_entry_id: int, length: int, version: int
    ) -> LedgerMetadata:
        """Close as the writer, at its last confirmed entry, and return the metadata that then stand.

        Raises:
            MetadataUnavailableError: The store does not answer; the end is not known.
            QuorumLostError: Somebody has begun to recover it, and too few bookies answer to finish that.

        """
        base = metadata
        for _ in range(_ATTEMPTS_MAX):
            closed = _closed(base, last_entry_id, length)
            try:
                await self._ledgers.write(ledger_id, closed, version)
            except _UNSETTLED as error:
                _log.info("close is unsettled", extra={"ledger_id": ledger_id, "error": str(error)})
            else:
                return closed
            base, version = await self._ledgers.read(ledger_id, sync=True)
            if base.is_closed:
                return base
            if base.state == LedgerState.IN_RECOVERY:
                return await self.recover(ledger_id, metadata.password)
        raise MetadataUnavailableError(
            f"could not close ledger {ledger_id} in {_ATTEMPTS_MAX} attempts: other writes came first or the "
            "metadata store did not answer; try again",
            ledger_id=ledger_id,
        )

    async def recover(self, ledger_id: int, password: bytes) -> LedgerMetadata:
        """Fence and close a ledger whoever writes it, and return its CLOSED metadata.

        Raises:
            WrongPasswordError: Nothing was changed.
            NoSuchLedgerError: It does not exist.
            QuorumLostError: Too few bookies answer to know the end; nothing was cut off.
            MetadataUnavailableError: The store does not answer.

        """
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(_ATTEMPT_DELAY_S * 2**attempt * self._rng.uniform(0.5, 1.0))
            metadata, version = await self._ledgers.read(ledger_id, sync=True)
            check_password(ledger_id, metadata, password)
            if metadata.is_closed:
                return metadata
            if metadata.state == LedgerState.OPEN:
                metadata = msgspec.structs.replace(metadata, state=LedgerState.IN_RECOVERY)
                try:
                    version = await self._ledgers.write(ledger_id, metadata, version)
                except _UNSETTLED:
                    continue
            try:
                end = await self._find_end(ledger_id, metadata)
            except QuorumLostError:
                if attempt == _ATTEMPTS_MAX - 1:
                    raise
                continue
            closed = await self._publish(ledger_id, metadata, version, end)
            if closed is not None:
                return closed
        raise MetadataUnavailableError(
            f"could not close ledger {ledger_id} after recovering it {_ATTEMPTS_MAX} times: other writes came first "
            "or the metadata store did not answer; try again",
            ledger_id=ledger_id,
        )

    async def _publish(
        self, ledger_id: int, held: LedgerMetadata, version: int, end: CloseLedger
    ) -> LedgerMetadata | None:
        """Write the recovered end; None if the metadata are not those that the recovery began with."""
        closed = msgspec.structs.replace(_closed(held, end.last_entry_id, end.length), segments=end.segments)
        for _ in range(_ATTEMPTS_MAX):
            try:
                await self._ledgers.write(ledger_id, closed, version)
            except _UNSETTLED as error:
                _log.info("close after recovery is unsettled", extra={"ledger_id": ledger_id, "error": str(error)})
            else:
                return closed
            current, version = await self._ledgers.read(ledger_id, sync=True)
            if current.is_closed:
                return current
            if current != held:
                return None
        return None

    async def _find_end(self, ledger_id: int, metadata: LedgerMetadata) -> CloseLedger:
        core = Recovery(ledger_id, metadata)
        run = _Run(ledger_id, metadata, self._pool)
        effects = core.start()
        while True:
            spares: list[ReplaceBookie] = []
            for effect in effects:
                if isinstance(effect, CloseLedger):
                    return effect
                if isinstance(effect, FailRecovery):
                    raise effect.error
                if isinstance(effect, ReplaceBookie):
                    spares.append(effect)
                else:
                    run.send(effect)
            if spares:
                effects = []
                for replace in spares:
                    effects += core.on_replacement(replace.bookie_id, await self._spare(replace))
            else:
                effects = await run.next_effects(core)

    async def _spare(self, replace: ReplaceBookie) -> str | None:
        spares = [b for b in await self._ledgers.writable_bookies() if b not in replace.excluded]
        return self._rng.choice(spares) if spares else None


class _Run:
    """Requests and answers of one recovery. The token of a request is (is it a read, entry id)."""

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, pool: ConnectionPool) -> None:
        self._ledger_id = ledger_id
        self._pool = pool
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        self._answers = AnswerQueue()

    def send(self, effect: Effect) -> None:
        """Carry out a read or a write."""
        txn = self._pool.take_txns(1)
        if isinstance(effect, FenceRead):
            read = ReadRequest(
                txn, self._ledger_id, effect.entry_id, self._master_key, is_fencing=True, priority=PRIORITY_RECOVERY
            )
            self._pool.ask(effect.bookie_id, read, (self._answers, (True, effect.entry_id)))
        elif isinstance(effect, WriteBack):
            entry = effect.entry
            body = seal(
                self._ledger_id, entry.entry_id, effect.last_add_confirmed, entry.length, entry.payload, self._digest
            )
            add = AddRequest(
                txn,
                self._ledger_id,
                entry.entry_id,
                self._master_key,
                body,
                is_recovery=True,
                priority=PRIORITY_RECOVERY,
            )
            self._pool.ask(effect.bookie_id, add, (self._answers, (False, entry.entry_id)))

    async def next_effects(self, core: Recovery) -> list[Effect]:
        """Wait for answers and return what follows from them."""
        batch = await self._answers.next_batch()
        effects = core.on_answers(
            [(answered.bookie_id, answered.token[1], self._read(answered)) for answered in batch if answered.token[0]]
        )
        for answered in batch:
            is_read, entry_id = answered.token
            if is_read:
                continue
            if answered.is_stored:
                effects += core.on_stored(answered.bookie_id, (entry_id,))
            else:
                effects += core.on_store_failed(answered.bookie_id, answered.reason)
        return effects

    def _read(self, answered: Answered) -> Answer:
        entry_id = answered.token[1]
        wanted = None if entry_id == NO_ENTRY else entry_id
        return read_answer(answered, self._digest, self._ledger_id, wanted)


def _closed(metadata: LedgerMetadata, last_entry_id: int, length: int) -> LedgerMetadata:
    return msgspec.structs.replace(metadata, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)
