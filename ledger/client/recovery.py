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

from ledger.client.answers import AnswerQueue, read_answer
from ledger.client.placement import Placement
from ledger.client.pool import ConnectionPool
from ledger.client.silence import SilenceTimer
from ledger.core.entry import Answer, Entry
from ledger.core.metadata import NO_ENTRY, LedgerMetadata, LedgerState
from ledger.core.quorum import QuorumConfig
from ledger.core.recovery import (
    CloseLedger,
    Effect,
    FenceRead,
    Recovery,
    ReplaceBookie,
    WriteBack,
    closed_metadata,
)
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
from ledger.wire.packets import AddRequest, ReadRequest, Request
from ledger.zookeeper.ledgers import LedgerStore

_LOGGER = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 5
_ATTEMPT_DELAY_S: Final = 0.2
_ATTEMPT_DELAY_S_MAX: Final = 0.5
"""A service stands still meanwhile: bookies that are back are to be found soon."""

_UNSETTLED: Final = (BadVersionError, MetadataUnavailableError, MetadataSessionLostError)
"""After these a write was refused or may have been applied: read again and compare."""


def check_password(ledger_id: int, metadata: LedgerMetadata, password: bytes | None) -> None:
    """Refuse a wrong password before anything is sent to a bookie; None is taken for the one that the metadata hold.

    Raises:
        WrongPasswordError: It is not the ledger's.

    """
    if password is not None and metadata.password != password:
        raise WrongPasswordError(
            f"the password given for ledger {ledger_id} is not the one it was created with; nothing was changed",
            ledger_id=ledger_id,
        )


class LedgerCloser:
    """Closes ledgers, as their writer or as somebody who recovers them."""

    def __init__(self, ledgers: LedgerStore, pool: ConnectionPool, rng: random.Random, placement: Placement) -> None:
        self._ledgers = ledgers
        self._pool = pool
        self._rng = rng
        self._placement = placement

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
                _LOGGER.info(
                    "it is not known whether the close was written", extra={"ledger": ledger_id, "error": str(error)}
                )
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
                delay_s = min(_ATTEMPT_DELAY_S * 2.0**attempt, _ATTEMPT_DELAY_S_MAX)
                await asyncio.sleep(delay_s * self._rng.uniform(0.5, 1.0))
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
        current = held
        for _ in range(_ATTEMPTS_MAX):
            closed = closed_metadata(held, current, end)
            if closed is None:
                return None
            try:
                await self._ledgers.write(ledger_id, closed, version)
            except _UNSETTLED as error:
                _LOGGER.info(
                    "it is not known whether the close after the recovery was written",
                    extra={"ledger": ledger_id, "error": str(error)},
                )
            else:
                return closed
            current, version = await self._ledgers.read(ledger_id, sync=True)
            if current.is_closed:
                return current
        return None

    async def _find_end(self, ledger_id: int, metadata: LedgerMetadata) -> CloseLedger:
        core = Recovery(ledger_id, metadata)
        run = _Run(ledger_id, metadata, self._pool)
        with SilenceTimer(run._answers, self._pool.settings.speculative_read_s) as silence:
            return await self._carry_out(core, run, silence, metadata.quorum)

    async def _carry_out(self, core: Recovery, run: _Run, silence: SilenceTimer, quorum: QuorumConfig) -> CloseLedger:
        effects = core.start()
        while True:
            spares: list[ReplaceBookie] = []
            for effect in effects:
                if isinstance(effect, FenceRead | WriteBack):
                    run.send(effect)
                elif isinstance(effect, ReplaceBookie):
                    spares.append(effect)
                elif isinstance(effect, CloseLedger):
                    return effect
                else:
                    raise effect.error
            if spares:
                effects = []
                for replace in spares:
                    if core.is_silent(replace.bookie_id):
                        self._placement.suspect(replace.bookie_id)
                    effects += core.on_replacement(replace.bookie_id, await self._spare(replace, quorum))
            else:
                silence.start()
                effects = await run.next_effects(core)
                if silence.take():
                    effects += core.on_silence()

    async def _spare(self, replace: ReplaceBookie, quorum: QuorumConfig) -> str | None:
        return await self._placement.replacement(
            replace.position, replace.ensemble, replace.excluded, quorum.write_quorum
        )


class _Run:
    """Requests and answers of one recovery. The token of a request is (is it a read, entry id).

    What is sent in one turn of the loop leaves in one write per bookie: the connections see to that.
    """

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, pool: ConnectionPool) -> None:
        self._ledger_id = ledger_id
        self._pool = pool
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        self._answers = AnswerQueue()
        # The entry sealed last: it goes to several bookies in a row.
        self._sealed_entry: Entry | None = None
        self._sealed = b""

    def send(self, effect: FenceRead | WriteBack) -> None:
        """Carry out a read or a write."""
        txn = self._pool.take_txns(1)
        request: Request
        if isinstance(effect, FenceRead):
            entry_id = effect.entry_id
            request = ReadRequest(
                txn, self._ledger_id, entry_id, self._master_key, is_fencing=True, priority=PRIORITY_RECOVERY
            )
            self._pool.ask(effect.bookie_id, request, (self._answers, (True, entry_id)))
            return
        entry = effect.entry
        if entry is not self._sealed_entry:
            self._sealed_entry = entry
            self._sealed = seal(
                self._ledger_id, entry.entry_id, effect.last_add_confirmed, entry.length, entry.payload, self._digest
            )
        request = AddRequest(
            txn,
            self._ledger_id,
            entry.entry_id,
            self._master_key,
            self._sealed,
            is_recovery=True,
            priority=PRIORITY_RECOVERY,
        )
        self._pool.ask(effect.bookie_id, request, (self._answers, (False, entry.entry_id)))

    async def next_effects(self, core: Recovery) -> list[Effect]:
        """Wait for answers and return what follows from them."""
        reads: list[tuple[str, int, Answer]] = []
        stored: dict[str, list[int]] = {}
        failed: dict[str, str] = {}
        found: set[int] = set()  # for look-ups only
        for answered in await self._answers.next_batch():
            is_read, entry_id = answered.token
            if not is_read and answered.is_stored:
                stored.setdefault(answered.bookie_id, []).append(entry_id)
            elif not is_read:
                failed[answered.bookie_id] = answered.reason
            elif entry_id == NO_ENTRY:
                reads.append((answered.bookie_id, entry_id, read_answer(answered, self._digest, self._ledger_id, None)))
            elif entry_id not in found and core.wants(entry_id):
                answer = read_answer(answered, self._digest, self._ledger_id, entry_id)
                reads.append((answered.bookie_id, entry_id, answer))
                if isinstance(answer, Entry):
                    found.add(entry_id)
        effects = core.on_answers(reads) if reads else []
        for bookie_id, entry_ids in stored.items():
            effects += core.on_stored(bookie_id, entry_ids)
        for bookie_id, reason in failed.items():
            effects += core.on_store_failed(bookie_id, reason)
        return effects


def _closed(metadata: LedgerMetadata, last_entry_id: int, length: int) -> LedgerMetadata:
    return msgspec.structs.replace(metadata, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)
