"""A log of random happenings in a shop, on real bookies, beside what a replica makes of it after every record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rsm_spark.core.envelope import decode_envelope
from rsm_spark.core.machine import encode_description
from rsm_spark.core.records import KernelRecord, Record
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.manifest import SnapshotManifest
from tests.unit.connectors.state.histories import Reference, Shop

__all__ = ["ShopLog"]


class ShopLog:
    """Writes entries to both.

    Args:
        make_log: The fixture.
        seed: Of what happens.

    """

    def __init__(self, make_log: Callable[..., Any], seed: int) -> None:
        self.log = make_log(machine=Shop.description)
        self.reference = Reference(seed, log_id=self.log.log_id)
        first = Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(Shop.description),))
        self.reference.take([first], self.log.entries[0])

    @property
    def name(self) -> str:
        """Name of the log."""
        return str(self.log.name)

    @property
    def source(self) -> dict[str, str]:
        """Options of the source, without the log's name."""
        return {"metadataUri": self.log.metadata_uri}

    def grow(self, entry_count: int, *, is_rolled: bool = False) -> None:
        """Append entries; then roll if asked to."""
        for _ in range(entry_count):
            records = self.reference.next_records()
            self.log.append(records)
            self.reference.take(records, self.log.entries[-1])
        if is_rolled:
            self.log.roll()

    def snapshot(self, lake: str, entry_number: int = -1) -> SnapshotManifest:
        """Write the state after an entry to the lake, as a replica does."""
        ledger, entry, payload = self.reference.entries[entry_number]
        envelope = decode_envelope(payload)
        digest, count = self.reference.sums[envelope.last_revision]
        after = self.reference.entries[entry_number + 1][2][64:96] if entry_number != -1 else self.log.hash
        manifest = SnapshotManifest(
            self.name,
            self.log.log_id.hex(),
            envelope.last_revision,
            ledger,
            entry,
            after.hex(),
            digest,
            count,
            1,
            envelope.logged_ms,
            1,
            Shop.description,
        )
        store = LakeSnapshots(lake_place(lake, self.name), keep=100)
        return store.write(manifest, sorted(self.reference.rows[envelope.last_revision]))
