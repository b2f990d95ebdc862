"""Puts together what a replica says of itself."""

from __future__ import annotations

from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.snapshotting import Snapshotter
from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus


def describe_replica(
    context: ReplicaContext,
    snapshotter: Snapshotter,
    *,
    leader_address: str,
    leader_epoch: int,
    digest: int,
    queued: int,
    failure: str,
) -> ReplicaStatus:
    """Return the status of a replica as it is now.

    Args:
        context: Of the replica.
        snapshotter: Of its local snapshots.
        leader_address: As far as known.
        leader_epoch: Of the last entry applied, or of the own claim.
        digest: State digest at the confirmed revision.
        queued: Requests that wait for their batch.
        failure: Why it stopped; "" while it runs.

    """
    tip, machine, logged = context.tip, context.machine.description, context.state.description
    return ReplicaStatus(
        log=context.log,
        log_id=context.log_id,
        replica_id=context.me.replica_id,
        incarnation=context.me.incarnation,
        role=context.role,
        phase=str(context.phase),
        leader=context.leader.replica_id if context.leader is not None else "",
        leader_address=leader_address,
        leader_epoch=leader_epoch,
        revision=tip.revision,
        digest=f"{digest:032x}",
        prefix_hash=tip.prefix_hash.hex(),
        position=context.position,
        row_count=context.state.row_count,
        session_count=len(context.state.sessions),
        logged_ms=tip.logged_ms,
        lag_ms=0 if context.role is ReplicaRole.LEADER else max(0, context.clock_ms() - tip.logged_ms),
        queued=queued,
        snapshot_revision=snapshotter.revision,
        snapshot_ms=snapshotter.taken_ms,
        known_revision=max(tip.revision, context.known_revision),
        verified={place: proof.revision for place, proof in context.state.verified.items()},
        trim=context.trim,
        alarms=tuple(context.alarms.values()),
        failure=failure,
        machine=machine.name,
        machine_version=machine.version,
        log_version=0 if logged is None else logged.version,
        metadata_session=context.client.store.session_state.value,
        reads_by_check=context.reads_by_check,
        reads_by_lease=context.reads_by_lease,
        reads_by_entry=context.reads_by_entry,
        reads_by_index=context.reads_by_index,
        entries_told=context.entries_told,
        entries_read=context.entries_read,
        lapsed_consumers=context.lapsed_consumers,
    )
