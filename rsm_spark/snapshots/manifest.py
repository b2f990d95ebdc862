"""Manifest of a snapshot, and the port of a place that keeps snapshots.

A snapshot is the state right after one entry of the log, as rows `(table_name, key, row, revision)`; the rows of
the client sessions are among them. Its manifest names the place (log, revision, position, prefix hash), what the
rows must sum up to (digest, count) and the machine's self-description, so that it can be read, checked and continued
without the service's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from ledger.decoding import json_decoder
from rsm_spark.core.machine import MachineDescription, Row
from rsm_spark.core.row_tables import RowTables
from rsm_spark.errors import CorruptSnapshotError

MANIFEST_FORMAT = 1


class SnapshotFile(msgspec.Struct, frozen=True):
    """One file of a snapshot.

    Attributes:
        name: Relative to the manifest.
        table: The one table whose rows it holds.
        rows: How many.
        bytes: Size of the file.
        sha256: Of the whole file, hex.

    """

    name: str
    table: str
    rows: int
    bytes: int
    sha256: str


class SnapshotManifest(msgspec.Struct, frozen=True):
    """Everything that is known of a snapshot besides its rows.

    Attributes:
        log_name: Log that the state was folded from.
        log_id: Its uuid, 32 hex digits.
        revision: Of the last record in the state.
        ledger_id: Ledger of the last entry in the state; -1 for an empty log.
        entry_id: That entry; -1 for an empty log.
        prefix_hash: Hash after that entry, 64 hex digits: a replica goes on only where the next entry names it.
        digest: State digest over all rows, 32 hex digits.
        row_count: Rows in all files.
        leader_epoch: Of the last entry.
        logged_ms: Logged time of the last entry.
        created_ms: Wall clock at the writer.
        machine: Self-description of the state machine.
        files: One or more per table; a store fills this in. Empty in stores that keep no files.
        format: Of this manifest.
        contradiction: Of evidence: what says that this state is wrong; "" = it is a snapshot.
        written_by: Replica id, or name of a job: somebody else has to verify it. "" = not known.
        sealed: The last entry was sealed with the log's key: no entry without a seal may follow.

    """

    log_name: str
    log_id: str
    revision: int
    ledger_id: int
    entry_id: int
    prefix_hash: str
    digest: str
    row_count: int
    leader_epoch: int
    logged_ms: int
    created_ms: int
    machine: MachineDescription
    files: tuple[SnapshotFile, ...] = ()
    format: int = MANIFEST_FORMAT
    contradiction: str = ""
    written_by: str = ""
    sealed: bool = False


class SnapshotDamage(msgspec.Struct, frozen=True):
    """A snapshot that must not be used.

    Attributes:
        place: Where it lies.
        reason: What was found, in one line.

    """

    place: str
    reason: str


class SnapshotStore(Protocol):
    """A place that keeps snapshots of one log. All calls block: the kernel makes them through its executor port."""

    def write(self, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
        """Keep a snapshot; whatever happens meanwhile, it is either there and whole or not there.

        Args:
            manifest: Without `files`; its `digest` and `row_count` are what the rows must come to.
            rows: Consumed once, from any thread.

        Returns:
            The manifest as kept.

        Raises:
            SnapshotError: It could not be written, or the rows are not what the manifest says.

        """
        ...

    def manifests(self) -> list[SnapshotManifest]:
        """Return the whole snapshots, newest first; damaged ones are left out and told by `damaged`."""
        ...

    def damaged(self) -> list[SnapshotDamage]:
        """Return what was found damaged so far."""
        ...

    def protect(self, revisions: frozenset[int]) -> None:
        """Keep the snapshots of these revisions, whatever newer ones come; replaces what was named before."""
        ...

    def protected_manifests(self) -> list[SnapshotManifest]:
        """Return the whole snapshots that are protected: each stays until `protect` names it no more."""
        ...

    def scrub(self, manifest: SnapshotManifest) -> SnapshotDamage | None:
        """Read a snapshot again, whatever was found before; return the damage, if there is any."""
        ...

    def condemn(self, manifest: SnapshotManifest, reason: str) -> None:
        """Note that the rows of a snapshot are wrong: it is damaged from now on."""
        ...

    def read(self, manifest: SnapshotManifest, *, is_summed: bool = True) -> Iterator[Row]:
        """Iterate over a snapshot's rows.

        Args:
            manifest: Of the snapshot.
            is_summed: Compare what the rows come to with the manifest, at their end. Who does so itself says False,
                which takes a quarter off the time, and calls `condemn` if they differ.

        Raises:
            CorruptSnapshotError: They are not what the manifest says; possibly only after the last row: what was
                made of them must then be thrown away.

        """
        ...


class TableStore(Protocol):
    """A place that keeps the typed tables of one log's state. All calls block."""

    def newest_revision(self) -> int:
        """Return the revision that the tables are of; -1 = there are none.

        Raises:
            SnapshotError: The lake cannot be read.

        """
        ...

    def write(
        self, manifest: SnapshotManifest, rows: Callable[[], Iterable[Row]], tables: RowTables
    ) -> Sequence[TableState]:
        """Make the tables those of a snapshot.

        Args:
            manifest: Of the snapshot.
            rows: Returns its rows, in the same order each time, those of a table one behind the other. They are asked
                for on any thread.
            tables: Which tables they are, not yet known.

        Returns:
            The tables at this revision; none if the place has a newer one.

        Raises:
            SnapshotError: The place has tables of another log, the rows are no snapshot, or it could not be written;
                readers go on seeing what they saw before.

        """
        ...


class TableState(Protocol):
    """A typed table at a revision."""

    @property
    def table(self) -> str:
        """Name of the table."""
        ...

    @property
    def problem(self) -> str:
        """Reason why it could not be written; "" = it was."""
        ...


@runtime_checkable
class TabledStore(Protocol):
    """A store of snapshots that keeps typed tables beside them."""

    @property
    def tables(self) -> TableStore:
        """The tables."""
        ...


class LakeStore(SnapshotStore, Protocol):
    """A place in a lake that keeps snapshots of one log: it can be rid of them, and knows former names of the log."""

    def follow(self, log_id: str, former_names: Sequence[str]) -> None:
        """Go on where the newest snapshot of a log lies: below its name, or below one that it had.

        Args:
            log_id: Its uuid, 32 hex digits: what lies below a name may be of another log.
            former_names: Of the log.

        Raises:
            SnapshotError: The lake cannot be read.

        """
        ...

    def remove(self, log_id: str) -> None:
        """Remove all that the place holds, if all of it is of this log.

        Raises:
            SnapshotError: It cannot be read, or not be removed.

        """
        ...


def encode_manifest(manifest: SnapshotManifest) -> bytes:
    """Return the JSON of a manifest; equal manifests have equal bytes."""
    return msgspec.json.encode(manifest)


def decode_manifest(text: bytes, *, place: str) -> SnapshotManifest:
    """Read a manifest.

    Args:
        text: What `encode_manifest` returned.
        place: Where it came from, for the error.

    Raises:
        CorruptSnapshotError: It is none, or of a format that this version cannot read.

    """
    try:
        manifest = json_decoder(SnapshotManifest).decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptSnapshotError(f"{place}: no snapshot manifest: {error}") from error
    if manifest.format != MANIFEST_FORMAT:
        raise CorruptSnapshotError(
            f"{place}: manifest has format {manifest.format}, this version reads {MANIFEST_FORMAT}: upgrade"
        )
    return manifest
