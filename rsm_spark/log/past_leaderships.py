"""Leaderships of a log, epoch by epoch: from its chain, its ledgers, and the first record of each leadership.

Why one ended stands in the metadata of the next one's ledgers, or in the leader's own note
(`rsm_spark.core.leadership_ends`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from itertools import groupby

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import NoSuchLedgerError
from rsm_spark.core.chain import ChainLedger, Leadership
from rsm_spark.core.envelope import body_of
from rsm_spark.core.leadership_ends import EndedLeadership, LeaderEnd, end_of, finding_of
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.log.ended_leaderships import noted_ends

_BEGINS_WITHIN = 3
"""Entries of a leadership: what failed ledgers left over may stand before its first record."""


class LeaderChange(StrEnum):
    """Kind of a change of leaders: who leads, seen from the leadership before."""

    FIRST = "first"
    """Nobody led before it."""
    OTHER_REPLICA = "another-replica"
    NEW_PROCESS = "same-replica-restarted"
    """The same replica, as another process."""
    SAME_PROCESS = "same-process-again"
    """It had lost the log, or given it up, and claimed it once more."""
    UNKNOWN = "unknown"
    """Not known: the record that tells who led has been trimmed, or was never written."""


class PastLeadership(msgspec.Struct, frozen=True):
    """One leadership of a log, as far as the log still holds it.

    Attributes:
        epoch: Of its claim. Numbers that are left out are claims that wrote nothing, or orders of operators.
        replica_id: Who led; None = not known.
        incarnation: Which process of it, 32 hex digits; None = not known.
        since_ms: When its first ledger that is still there was made, by the wall clock of its leader.
        is_beginning: Whether that is its first ledger. If not, it led before `since_ms` already.
        last_entry_ms: Logged time of its last entry; None = it leads, or nobody has closed its last ledger yet.
        first_revision: Of the records that are still there.
        last_revision: The same; None as above.
        ledger_count: Ledgers that are still there.
        change: Who it is, seen from the leadership before.
        before_ended: How the leadership before ended; None = there was none.
        before_said: Why, in words, where somebody said so; else "".
        log_id: Of the log that it led, if another one than this: an origin; else "".

    """

    epoch: int
    replica_id: str | None
    incarnation: str | None
    since_ms: int
    is_beginning: bool
    last_entry_ms: int | None
    first_revision: int
    last_revision: int | None
    ledger_count: int
    change: LeaderChange
    before_ended: LeaderEnd | None
    before_said: str
    log_id: str = ""


async def past_leaderships(
    client: LedgerClient, log: str, rsm_root: str, limit: int | None = None
) -> AsyncIterator[PastLeadership]:
    """Yield the leaderships of a log that its chain still holds, oldest first.

    Args:
        client: Connected.
        log: Name of the log.
        rsm_root: Where logs are registered.
        limit: Only so many, the newest; None = all.

    Raises:
        NoSuchLogError: There is no such log.
        MissingLogError: The log was trimmed meanwhile.

    """
    chains = ChainStore(client.store, log, rsm_root)
    chain, _ = await chains.read()
    groups = [list(group) for _, group in groupby(chain.ledgers, lambda one: (one.log_id, one.leader_epoch))]
    skipped = 0 if limit is None else max(0, len(groups) - limit)
    noted = await noted_ends(client.store, log, rsm_root)
    before = await _began(client, chains, groups[skipped - 1][0]) if skipped else None
    for place, ledgers in enumerate(groups[skipped:], skipped):
        epoch, is_last = ledgers[0].leader_epoch, place == len(groups) - 1
        led = await _began(client, chains, ledgers[0])
        is_beginning = led is not None or place > 0 or chain.is_whole
        if led is None and is_last and not ledgers[0].log_id and epoch == chain.leader_epoch:
            led = chain.leader
        end = ledgers[-1].closed
        is_first = place == 0 and chain.is_whole
        note = None if place == 0 else noted.get(groups[place - 1][0].leader_epoch)
        ended = (None, "") if is_first else await _end_before(client, ledgers[0], before, note)
        yield PastLeadership(
            epoch=epoch,
            replica_id=None if led is None else led.replica_id,
            incarnation=None if led is None else led.incarnation,
            since_ms=ledgers[0].created_ms,
            is_beginning=is_beginning,
            last_entry_ms=None if end is None else end.last_entry_ms,
            first_revision=ledgers[0].first_revision,
            last_revision=None if end is None else end.last_revision,
            ledger_count=len(ledgers),
            change=LeaderChange.FIRST if is_first else _change(before, led),
            before_ended=ended[0],
            before_said=ended[1],
            log_id=ledgers[0].log_id,
        )
        before = led


def _change(before: Leadership | None, after: Leadership | None) -> LeaderChange:
    if before is None or after is None:
        return LeaderChange.UNKNOWN
    if before.replica_id != after.replica_id:
        return LeaderChange.OTHER_REPLICA
    return LeaderChange.SAME_PROCESS if before == after else LeaderChange.NEW_PROCESS


async def _end_before(
    client: LedgerClient, ledger: ChainLedger, before: Leadership | None, note: EndedLeadership | None
) -> tuple[LeaderEnd, str]:
    """Return how the leadership before the one of this ledger ended, and why in words."""
    try:
        finding = finding_of((await client.metadata(ledger.ledger_id)).custom)
    except NoSuchLedgerError:  # It has been trimmed since.
        finding = None
    return end_of(None if before is None else before.incarnation, note, finding)


async def _began(client: LedgerClient, chains: ChainStore, ledger: ChainLedger) -> Leadership | None:
    """Return who began a leadership with this ledger; None if its first record is not there."""
    reader = LogReader(
        client, chains, position=LogPosition(ledger.ledger_id, -1), revision=ledger.first_revision - 1,
        password=None, entries_max=_BEGINS_WITHIN,
    )  # fmt: skip
    try:
        while not (entries := await reader.read()) and reader.ledgers_ahead:
            pass
        for entry in entries[:_BEGINS_WITHIN]:
            if entry.envelope.leader_epoch != ledger.leader_epoch:
                continue
            for record in decode_records(body_of(entry.payload)):
                if record.type == KernelRecord.LEADER_STARTED:
                    replica_id, incarnation = record.fields
                    return Leadership(str(replica_id), str(incarnation))
    finally:
        await reader.close()
    return None
