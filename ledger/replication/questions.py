"""Asking bookies what they hold and the metadata store what ledgers are, for all who audit and repair."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

from ledger.client.answers import Answered, AnswerQueue, read_answer
from ledger.client.pool import ConnectionPool
from ledger.core.entry import Miss
from ledger.core.metadata import LedgerMetadata
from ledger.errors import DigestError, MetadataUnavailableError, NoSuchLedgerError, RemoteProtocolError
from ledger.replication.core.fragments import fragments_of, share_of
from ledger.replication.core.held_entries import NOTHING_HELD, HeldEntries, unpack_held_entries
from ledger.wire.codes import INFO_FLAG_FREE_DISK, INFO_FLAG_TOTAL_DISK, Status
from ledger.wire.digests import Digest
from ledger.wire.entry import unseal, unseal_lac
from ledger.wire.packets import (
    InfoRequest,
    InfoResponse,
    ListRequest,
    ListResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    Request,
)
from ledger.zookeeper.ledgers import LedgerStore

_ATTEMPTS_MAX: Final = 5
_ATTEMPT_DELAY_S: Final = 0.5

_KNOWS_NOTHING = (Status.ENOLEDGER, Status.ENOENTRY, Status.EUNKNOWNLEDGERSTATE)
"""Answers that no entry is held; the last one says that it may have been lost: sending it again does no harm."""


async def ask_all(pool: ConnectionPool, questions: Sequence[tuple[str, Request]]) -> list[Answered]:
    """Send requests to bookies and wait for all answers; the order is that of the questions."""
    queue = AnswerQueue()
    for number, (bookie_id, request) in enumerate(questions):
        pool.ask(bookie_id, request, (queue, number))
    answers: dict[int, Answered] = {}
    while len(answers) < len(questions):
        for answered in await queue.next_batch():
            answers[answered.token] = answered
    return [answers[number] for number in range(len(questions))]


async def list_entries(pool: ConnectionPool, ledger_id: int, bookie_ids: Iterable[str]) -> dict[str, HeldEntries | str]:
    """Ask bookies which entries of a ledger they hold.

    Returns:
        By bookie, what it holds, or the reason why it did not tell.

    """
    asked = list(bookie_ids)
    answers = await ask_all(pool, [(bookie, ListRequest(pool.take_txns(1), ledger_id)) for bookie in asked])
    return {bookie_id: _held(answered) for bookie_id, answered in zip(asked, answers, strict=True)}


def _held(answered: Answered) -> HeldEntries | str:
    response = answered.response
    if not isinstance(response, ListResponse):
        return answered.reason
    if response.status in _KNOWS_NOTHING:
        return NOTHING_HELD
    if response.status != Status.EOK or response.availability is None:
        return answered.reason
    try:
        return unpack_held_entries(bytes(response.availability))
    except RemoteProtocolError as error:
        return str(error)


async def ask_lacs(
    pool: ConnectionPool, ledger_id: int, metadata: LedgerMetadata, bookie_ids: Iterable[str]
) -> list[int]:
    """Return how far a ledger is confirmed as bookies have it from the writer; nothing of one that cannot tell.

    Nothing is fenced. What the writer did not seal is passed over.
    """
    digest = Digest(metadata.digest_type, metadata.password)
    questions = [(bookie_id, ReadLacRequest(pool.take_txns(1), ledger_id)) for bookie_id in bookie_ids]
    lacs: list[int] = []
    for answered in await ask_all(pool, questions):
        response = answered.response
        if not isinstance(response, ReadLacResponse) or response.status != Status.EOK:
            continue
        with contextlib.suppress(DigestError):
            if response.last_entry_body:
                entry = unseal(response.last_entry_body, digest, ledger_id=ledger_id, entry_id=None)
                lacs.append(entry.last_add_confirmed)
            if response.lac_body:
                lacs.append(unseal_lac(response.lac_body, digest, ledger_id=ledger_id))
    return lacs


async def disk_space(pool: ConnectionPool, bookie_ids: Iterable[str]) -> dict[str, InfoResponse | str]:
    """Ask bookies how much room they have.

    Returns:
        By bookie, its answer, or the reason why it did not tell.

    """
    asked = list(bookie_ids)
    wanted = INFO_FLAG_TOTAL_DISK | INFO_FLAG_FREE_DISK
    answers = await ask_all(pool, [(bookie, InfoRequest(pool.take_txns(1), wanted)) for bookie in asked])
    return {bookie_id: _room(answered) for bookie_id, answered in zip(asked, answers, strict=True)}


def _room(answered: Answered) -> InfoResponse | str:
    response = answered.response
    if isinstance(response, InfoResponse) and response.status == Status.EOK:
        return response
    return answered.reason


def ends_of(metadata: LedgerMetadata, bookie_id: str) -> list[int]:
    """Return the first and the last entry of each share that a bookie has in the settled fragments, ascending."""
    ends: list[int] = []
    for fragment in fragments_of(metadata):
        if fragment.is_settled:
            for position, named in enumerate(fragment.bookies):
                if named == bookie_id:
                    ends += share_of(fragment, position, metadata.quorum).ends()
    return ends


async def read_bad_entries(
    pool: ConnectionPool, ledger_id: int, metadata: LedgerMetadata, wanted: Sequence[tuple[str, int]]
) -> dict[str, list[int]]:
    """Read entries at the bookies that should hold them.

    Returns:
        By bookie, the entries that it answered and could not give in good order. Those of a bookie that does not
        answer are not among them.

    """
    digest = Digest(metadata.digest_type, metadata.password)
    questions = [(bookie, ReadRequest(pool.take_txns(1), ledger_id, entry_id)) for bookie, entry_id in wanted]
    bad: dict[str, list[int]] = {}
    for (bookie_id, entry_id), answered in zip(wanted, await ask_all(pool, questions), strict=True):
        if answered.response is None or answered.response.status == Status.ETOOMANYREQUESTS:
            continue
        if isinstance(read_answer(answered, digest, ledger_id, entry_id), Miss):
            bad.setdefault(bookie_id, []).append(entry_id)
    return bad


async def read_patiently(ledgers: LedgerStore, ledger_id: int) -> LedgerMetadata | None:
    """Return a ledger's metadata, or None if there is no such ledger.

    Who looks at a million ledgers must not begin anew because one reply was lost: such a read is tried again.

    Raises:
        CorruptMetadataError: They cannot be read by this version.
        MetadataError: The metadata store does not answer.

    """
    for attempt in range(_ATTEMPTS_MAX):
        try:
            metadata, _ = await ledgers.read(ledger_id)
        except NoSuchLedgerError:
            return None
        except MetadataUnavailableError:
            if attempt == _ATTEMPTS_MAX - 1:
                raise
            await asyncio.sleep(_ATTEMPT_DELAY_S * (attempt + 1))
        else:
            return metadata
    return None
