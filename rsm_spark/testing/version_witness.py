"""A witness of the versions of a machine on a simulated log: who runs which, and what the log is of.

* `version-monotonic`  the version that the log is described with never falls
* `raised-by-all`      unless somebody forced it, no leader raises it past a replica that was live all the time it led
* `no-old-leader`      nobody leads a log of a newer version than its own
* `described`          whoever folds the log by its descriptions alone has the rows of the replicas; where a version is
                       raised, the description stands before the first record of its ledger
* `acked-is-durable`   an operator who was told that it is raised finds it raised
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledger.testing.metadata import SimMetadata
from ledger.testing.metadata_tree import ChangeKind, TreeWrite
from rsm_spark.core.chain import chain_path, decode_chain, members_path
from rsm_spark.core.envelope import Envelope, body_of
from rsm_spark.core.machine import MachineDescription, decode_description
from rsm_spark.core.records import MACHINE_TYPE_FIRST, KernelRecord, Record, decode_records
from rsm_spark.log.member import Member, decode_member
from rsm_spark.testing.checking import fold_row
from rsm_spark.testing.cluster import LOG, ReplicaCluster
from rsm_spark.testing.ledger_world import LedgerWorld

_Live = Mapping[tuple[str, int], Member]
"""Live replicas by their node, and how often it was created."""


class VersionWitness:
    """Judges every entry of the log.

    Args:
        cluster: The replicas; their ghosts are told of what is broken.
        metadata: The store.
        world: The twin of the ledger, if there is one.

    Attributes:
        version: That the log is of; 0 before it is described.
        is_forced: Somebody has ordered to raise it whoever is behind.
        on_raise: Called when it is of a later version.
        rows: That the log has made, by table and key.

    """

    def __init__(self, cluster: ReplicaCluster, metadata: SimMetadata, world: LedgerWorld | None) -> None:
        self.is_forced = False
        self.on_raise: Callable[[], None] = lambda: None
        self._cluster, self._world = cluster, world
        self._fail = cluster.ghosts.fail
        self._description: MachineDescription | None = None
        self.rows: dict[tuple[str, bytes], bytes] = {}
        self._of_process: dict[str, int] = {}
        self._of_leader: dict[int, int] = {}
        self._live: dict[tuple[str, int], Member] = {}
        self._created: dict[str, int] = {}
        self._epoch = 0
        self._live_at_claim: dict[int, _Live] = {}
        cluster.ghosts.on_commit.append(self._on_commit)
        cluster.listeners.append(self._on_replica)
        metadata.on_change.append(self._on_change)

    @property
    def version(self) -> int:
        """Return the version that the log is of; 0 before it is described."""
        return 0 if self._description is None else self._description.version

    def _on_replica(self, name: str, _who: str, what: Any) -> None:
        if name == "made":
            self._of_process[what.incarnation] = what._context.machine.description.version

    def _on_change(self, change: TreeWrite) -> None:
        """Note who is live, and who was when the log was claimed."""
        path = change.path
        if path == chain_path(LOG) and change.node is not None:
            epoch = decode_chain(change.node.value, log_name=LOG).leader_epoch
            if epoch != self._epoch:
                self._epoch = epoch
                self._live_at_claim[epoch] = dict(self._live)
        elif path.startswith(f"{members_path(LOG)}/"):
            if change.kind is ChangeKind.CREATED:
                self._created[path] = self._created.get(path, 0) + 1
            at = path, self._created[path]
            member = None if change.node is None else decode_member(change.node.value)
            if member is None:
                self._live.pop(at, None)
            else:
                self._live[at] = member

    def _on_commit(self, envelope: Envelope, records: list[Record]) -> None:
        before, epoch = self.version, envelope.leader_epoch
        for record in records:
            if record.type == KernelRecord.LEADER_STARTED:
                self._of_leader[epoch] = self._of_process[record.fields[1]]
            elif record.type == KernelRecord.MACHINE_DESCRIBED:
                self._on_description(decode_description(record.fields[0]), epoch)
            elif record.type >= MACHINE_TYPE_FIRST:
                assert self._description is not None
                try:
                    fold_row(self.rows, self._description, record.type, record.fields)
                except AssertionError as error:
                    self._fail("described", str(error))
        runs = self._of_leader.get(epoch, before)
        if runs < before:
            self._fail("no-old-leader", f"epoch {epoch} is led by version {runs}, the log is of version {before}")

    def _on_description(self, description: MachineDescription, epoch: int) -> None:
        before, now = self.version, description.version
        if now < before:
            self._fail("version-monotonic", f"epoch {epoch} describes version {now} after version {before}")
        if before and now > before and not self.is_forced:
            at_claim = self._live_at_claim[epoch]
            behind = [one for at, one in self._live.items() if at in at_claim and one.machine_version < now]
            if behind:
                said = ", ".join(f"{one.replica_id} runs version {one.machine_version}" for one in behind)
                self._fail("raised-by-all", f"epoch {epoch} raises the log to version {now}, and {said}")
        self._description = description
        if before and now > before:
            self.on_raise()

    def told(self, version: int) -> None:
        """Note that an operator was told that the log is of a version now."""
        if self.version < version:
            self._fail("acked-is-durable", f"version {version} is said to be raised, the log is of {self.version}")

    def judge(self) -> None:
        """Compare replicas that have applied everything with the fold by descriptions; look at how ledgers begin."""
        for name, replica in self._cluster.replicas.items():
            machine = replica._context.machine
            rows = {(row.table, row.key): row.row for row in machine.rows()}
            if rows != self.rows:
                differing = sorted(key for key in {**rows, **self.rows} if rows.get(key) != self.rows.get(key))
                self._fail("described", f"{name} has other rows than its log says: {differing[:3]}")
        if self._world is not None:
            self._judge_ledgers(self._world)

    def _judge_ledgers(self, world: LedgerWorld) -> None:
        """Look how ledgers begin: readers take the description from there, so their records must be of that one."""
        version = 0
        for ledger_id in sorted(world.ledgers):
            is_begun = False
            for entry in world.ledgers[ledger_id].entries:
                for record in decode_records(body_of(entry.payload)):
                    if record.type >= MACHINE_TYPE_FIRST:
                        is_begun = True
                    elif record.type == KernelRecord.MACHINE_DESCRIBED:
                        now = decode_description(record.fields[0]).version
                        if version and now > version and is_begun:
                            self._fail("described", f"ledger {ledger_id} becomes one of version {now} amid its records")
                        version = max(version, now)
