"""A log of the map that is raised from version 2 to 3 to 4 while it is written, and what a replica makes of it."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from rsm_spark.core.digest import digest_bytes
from rsm_spark.core.machine import MachineDescription, Row, encode_description
from rsm_spark.core.records import KernelRecord, Record
from rsm_spark.core.state import ReplicatedState
from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import MAP_DESCRIPTION
from rsm_spark.map.rows import value_of
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.manifest import SnapshotManifest
from tests.spark.conftest import WrittenLog
from tests.unit.rsm_spark.map.map_of_before import SECOND, THIRD

__all__ = ["RELEASES", "RaisedLog"]

RELEASES = (SECOND, THIRD, MAP_DESCRIPTION)
_KEYS = [b"key-%02d" % number for number in range(24)]
_SOME = 6
"""Keys of the first releases alone: rows of every width stay to the end."""


class RaisedLog:
    """See the module.

    Args:
        log: Empty but for a description of version 2.
        rng: Decides what is written.

    Attributes:
        machine: As it is now.
        described: As the log describes it now.

    """

    def __init__(self, log: WrittenLog, rng: random.Random) -> None:
        self.log = log
        self.machine = MapMachine()
        self.described: MachineDescription = SECOND
        self._rng = rng
        self._state = ReplicatedState(self.machine, log.log_id)
        for _, _, payload in log.entries:
            self._state.apply_entry(payload)

    @property
    def revision(self) -> int:
        return self._state.revision

    @property
    def digest(self) -> str:
        return digest_bytes(self._state.digest).hex()

    @property
    def source(self) -> dict[str, str]:
        return {"metadataUri": self.log.metadata_uri}

    def raise_to(self, described: MachineDescription) -> None:
        """Describe the machine anew."""
        self.described = described
        self.roll()

    def roll(self) -> None:
        """Begin the next ledger, as a leader does: its first record describes the machine, then comes a checkpoint."""
        self.log.roll()
        self._append([Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(self.described),))])
        self.check()

    def check(self) -> None:
        """Log a checkpoint."""
        said = (self.revision, digest_bytes(self._state.digest), self._state.row_count)
        self._append([Record(KernelRecord.CHECKPOINT_LOGGED, None, said)])

    def work(self, count: int) -> None:
        """Run commands; those of a release leave some keys of the releases before it alone."""
        spared = _SOME * RELEASES.index(self.described)
        keys = _KEYS[spared:]
        for number in range(count):
            one, other, third = self._rng.sample(keys, 3)
            value = b"%d/%d" % (self.described.version, number)
            self.run(self._rng.choice([
                m.Put(one, value),
                m.MapTransaction([], [m.Put(one, value), m.Put(other, value), m.Delete(third)], []),
                m.MapTransaction([], [m.Put(one, value), m.Increment(b"count"), m.Put(one, value + b"+")], []),
                m.PutExpiring(one, value, 60_000),
                m.DeleteRange(one, one + b"\0"),
            ]))  # fmt: skip

    def run(self, command: Any) -> None:
        decided = self.machine.decide(m.encode(command), self.revision + 1, 1_000)
        if decided.records:
            self._append([Record(kind, None, fields) for kind, fields in decided.records])

    def _append(self, records: list[Record]) -> None:
        self.log.append(records)
        self._state.apply_entry(self.log.entries[-1][2])

    def map_rows(self) -> list[Row]:
        return [row for row in self._state.rows() if row.table == "map"]

    def shown(self) -> dict[bytes, tuple[Any, ...]]:
        """Return the rows of the map by key as Spark and Delta show them, each with its revision last."""
        found: dict[bytes, tuple[Any, ...]] = {}
        for row in self.map_rows():
            columns: list[Any] = msgspec.msgpack.decode(row.row)
            found[value_of(row.key)] = (*columns, *[None] * (4 - len(columns)), row.revision)
        return found

    def widths(self) -> set[int]:
        """Return how many columns rows of the map have."""
        return {len(msgspec.msgpack.decode(row.row)) for row in self.map_rows()}

    def snapshot(self, lake: str) -> None:
        """Write a snapshot of the present into a lake."""
        ledger_id, entry_id, _ = self.log.entries[-1]
        manifest = SnapshotManifest(
            log_name=self.log.name,
            log_id=self.log.log_id.hex(),
            revision=self.revision,
            ledger_id=ledger_id,
            entry_id=entry_id,
            prefix_hash=self.log.hash.hex(),
            digest=self.digest,
            row_count=self._state.row_count,
            leader_epoch=1,
            logged_ms=self.log.logged_ms,
            created_ms=1,
            machine=self.described,
        )
        LakeSnapshots(lake_place(lake, self.log.name)).write(manifest, self._state.rows())
