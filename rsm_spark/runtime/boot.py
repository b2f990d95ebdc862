"""How a replica gets a state to begin with: local snapshot, then the lake's, then the whole log from its beginning."""

from __future__ import annotations

import logging

from rsm_spark.core.chain import LogChain
from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import ReplicatedState, StateTip
from rsm_spark.errors import CorruptSnapshotError, ForkedLogError, MissingLogError, SnapshotError
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore

__all__ = ["boot"]

_logger = logging.getLogger(__name__)


async def boot(context: ReplicaContext) -> int:
    """Load the newest state from which the log can be continued into the context.

    Returns:
        Revision of the snapshot used; 0 if the log is read from its beginning.

    Raises:
        ForkedLogError: The local snapshots are of another log than the one that has this name now.
        NoSuchLogError: There are local snapshots, but the log is gone.
        MissingLogError: There is no such state, and the log does not begin with its first ledger any more.
        MetadataError: The metadata store cannot be asked.

    """
    chain = await _chain(context)
    context.log_id = chain.log_id
    for name, store in (("local", context.snapshots), ("lake", context.lake)):
        if store is None:
            continue
        manifests: list[SnapshotManifest] = await context.run_blocking(store.manifests)
        for manifest in manifests:
            if not _continues(context, chain, manifest, name):
                continue
            state = await _restore(context, store, manifest)
            if state is None:
                continue
            position = LogPosition(manifest.ledger_id, manifest.entry_id) if manifest.entry_id >= 0 else None
            context.adopt(state, position)
            _logger.info("booted from a %s snapshot", name, extra=context.log_extra)
            return manifest.revision
    _begin_empty(context, chain)
    return 0


async def _chain(context: ReplicaContext) -> LogChain:
    """Return the chain; create the log if nothing says that there was one before."""
    local: list[SnapshotManifest] = await context.run_blocking(context.snapshots.manifests)
    if not local:
        return await context.chains.ensure(context.rng.randbytes(16).hex())
    chain, _ = await context.chains.read()
    if all(manifest.log_id != chain.log_id for manifest in local):
        raise ForkedLogError(
            f"log {context.log}: the local snapshots are of log {local[0].log_id}, the metadata store has log "
            f"{chain.log_id} under this name: its data were lost or replaced. Check the metadata URI; to serve the "
            "present log start with an empty data directory"
        )
    return chain


def _continues(context: ReplicaContext, chain: LogChain, manifest: SnapshotManifest, name: str) -> bool:
    """Return whether the log still holds what comes after this snapshot."""
    reason = ""
    if manifest.log_id != chain.log_id:
        reason = f"it is of log {manifest.log_id}, this is log {chain.log_id}"
    elif manifest.entry_id >= 0 and manifest.ledger_id not in [ledger.ledger_id for ledger in chain.ledgers]:
        reason = f"its ledger {manifest.ledger_id} has left the log"
    if reason:
        _logger.warning(
            "%s snapshot of revision %d is of no use: %s",
            name,
            manifest.revision,
            reason,
            extra=context.log_extra,
        )
    return not reason


async def _restore(context: ReplicaContext, store: SnapshotStore, manifest: SnapshotManifest) -> ReplicatedState | None:
    """Return the snapshot's state, or None if its files are not what its manifest says."""
    state = ReplicatedState(context.machine, bytes.fromhex(manifest.log_id))
    tip = StateTip(manifest.revision, bytes.fromhex(manifest.prefix_hash), manifest.leader_epoch, manifest.logged_ms)

    def _load() -> None:
        state.restore(store.read(manifest), tip, manifest.machine)
        found = (f"{state.digest:032x}", state.row_count)
        if found != (manifest.digest, manifest.row_count):
            raise CorruptSnapshotError(
                f"snapshot of revision {manifest.revision}: its rows come to digest {found[0]}, {found[1]} rows; its "
                f"manifest says {manifest.digest}, {manifest.row_count} rows"
            )

    try:
        await context.run_blocking(_load)
    except SnapshotError as error:
        _logger.warning("snapshot passed over: %s", error, extra=context.log_extra)
        return None
    return state


def _begin_empty(context: ReplicaContext, chain: LogChain) -> None:
    ledgers = chain.ledgers
    if (ledgers and ledgers[0].ledger_id != chain.first_ledger_id) or chain.base is not None:
        last = ledgers[0].first_revision - 1 if ledgers else None
        raise MissingLogError(
            f"log {context.log}: revisions 1 to {last} have left the log and no usable snapshot was found: copy a "
            "snapshot of another replica, or name the lake that holds one",
            first_revision=1,
            last_revision=last,
        )
    context.machine.restore(())
    context.adopt(ReplicatedState(context.machine, bytes.fromhex(chain.log_id)), None)
