"""A replica whose state differs from what the log says: it answers nothing more, keeps its evidence, tells the leader.

The state is written aside as a snapshot in the quarantine, a store of its own that nothing boots from and nothing
prunes; its manifest says what contradicts it. Whoever is wrong, this replica or the leader, can then be found out row
by row.
"""

from __future__ import annotations

import asyncio
import logging

from ledger.errors import LedgerError
from rsm_spark.core.commands import AnswerStatus, ReportDiverged
from rsm_spark.core.digest import digest_bytes
from rsm_spark.errors import ConnectionLostError, SnapshotError, StateDivergedError
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.snapshots.manifest import SnapshotManifest

_LOGGER = logging.getLogger(__name__)
_TELL_S_MAX = 30.0
"""Longer than a failover: the leader may be changing just now."""


async def keep_evidence(context: ReplicaContext, error: StateDivergedError) -> SnapshotManifest | None:
    """Write the state aside, as it is; return what was kept, or None if it could not be.

    Args:
        context: Of the replica; its state is that before the checkpoint which contradicts it.
        error: What was found.

    """
    context.has_state = False
    quarantine, position = context.quarantine, context.position
    if quarantine is None or position is None:
        _LOGGER.error("no evidence is kept: this replica has no quarantine", extra=context.log_extra)
        return None
    state = context.state
    manifest = SnapshotManifest(
        log_name=context.log,
        log_id=context.log_id,
        revision=context.tip.revision,
        ledger_id=position.ledger_id,
        entry_id=position.entry_id,
        prefix_hash=context.tip.prefix_hash.hex(),
        digest=digest_bytes(state.digest).hex(),
        row_count=state.row_count,
        leader_epoch=context.tip.leader_epoch,
        logged_ms=context.tip.logged_ms,
        created_ms=context.clock_ms(),
        machine=state.description or context.machine.description,
        contradiction=str(error),
        sealed=context.tip.is_sealed,
    )
    rows = state.rows()
    try:
        kept: SnapshotManifest = await context.run_blocking(lambda: quarantine.write(manifest, rows))
    except SnapshotError as failure:
        _LOGGER.error("no evidence is kept: %s", failure, extra=context.log_extra)
        return None
    _LOGGER.error("the state of revision %d is kept as evidence", kept.revision, extra=context.log_extra)
    return kept


async def tell_leader(context: ReplicaContext, error: StateDivergedError) -> bool:
    """Report to whoever leads, for a while; return whether it was taken."""
    peers = context.peers
    if peers is None or not error.own_digest:
        return False  # It led itself, and others contradict it.
    report = ReportDiverged(error.revision, error.own_digest, context.me.replica_id)
    try:
        async with asyncio.timeout(_TELL_S_MAX):
            while True:
                try:
                    answer = await peers.report(report)
                except (ConnectionLostError, LedgerError) as failure:
                    _LOGGER.info("the divergence is not told yet: %s", failure, extra=context.log_extra)
                else:
                    if answer.status is AnswerStatus.OK:
                        return True
                    reason = answer.payload.decode() or answer.status.name
                    _LOGGER.warning("the divergence was not taken: %s", reason, extra=context.log_extra)
                    if answer.status is AnswerStatus.REFUSED:
                        return False
                await asyncio.sleep(context.settings.retry_s)
    except TimeoutError:
        return False
