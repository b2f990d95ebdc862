"""The map as it was at a revision: from the nearest snapshot at or below it and the log behind that. Reads only.

    rows = await rows_at(client, "orders", 1_000_000, prefix, prefix_end(prefix), stores=[LocalSnapshots(folder)])

Nobody's state is touched: snapshots and ledgers are read here, and only rows in the range asked for are kept. Every
entry is checked to continue the snapshot, or the beginning of the log; a snapshot to be what its manifest says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ledger.client.client import LedgerClient
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, LogChain
from rsm_spark.core.envelope import body_of, entry_hash, root_hash
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import decode_records, pack
from rsm_spark.errors import CorruptSnapshotError, ForkedLogError, InvalidCommandError, MissingLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.map.queries import KeyValue
from rsm_spark.map.records import DELETED, EXPIRED, MAP_TABLE, PUT
from rsm_spark.map.rows import MapEntry, columns_of, entry_of, value_of
from rsm_spark.runtime.past_rows import reachable_snapshots
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore

_WAIT_S = 1.0
_WAITS_MAX = 3

Rows = dict[bytes, MapEntry]


async def rows_at(
    client: LedgerClient,
    log: str,
    revision: int,
    start: bytes = b"",
    end: bytes | None = None,
    *,
    stores: Sequence[SnapshotStore] = (),
    rsm_root: str = DEFAULT_RSM_ROOT,
    password: bytes = b"",
) -> list[KeyValue]:
    """Return the rows with start <= key < end right after the record of a revision, in order.

    Args:
        client: Connected ledger client.
        log: Name of the log.
        revision: 0 = the empty map.
        start: First key.
        end: Exclusive; None = to the last.
        stores: Where snapshots may lie; damaged ones are passed over.
        rsm_root: Root of the logs.
        password: Of the log's ledgers.

    Raises:
        MissingLogError: No snapshot at or below the revision reaches what is left of the log.
        InvalidCommandError: The log does not have that revision yet.
        LogError, LedgerError, MetadataError: The log cannot be read, or is damaged.

    """
    chains = ChainStore(client.store, log, rsm_root)
    chain, _ = await chains.read()
    past = _Past(revision, start, end)
    for store, manifest in await _candidates(stores, chain, revision):
        try:
            await asyncio.to_thread(past.load, store, manifest)
        except CorruptSnapshotError:
            continue
        place = LogPosition(manifest.ledger_id, manifest.entry_id) if manifest.entry_id >= 0 else None
        break
    else:
        past.begin(chain, log)
        place = None
    if past.revision < revision:
        reader = LogReader(client, chains, password=password, position=place, revision=past.revision)
        try:
            await past.replay(reader, log)
        finally:
            await reader.close()
    return [KeyValue(key, *columns_of(past.rows[key], counts=True)) for key in sorted(past.rows)]


async def _candidates(
    stores: Sequence[SnapshotStore], chain: LogChain, revision: int
) -> list[tuple[SnapshotStore, SnapshotManifest]]:
    """Return the snapshots from which the revision can be reached, newest first."""
    known = [(store, manifest) for store in stores for manifest in await asyncio.to_thread(store.manifests)]
    return reachable_snapshots(known, chain, revision)


class _Past:
    """Rows of a range, moving forward to a revision."""

    def __init__(self, wanted: int, start: bytes, end: bytes | None) -> None:
        self.rows: Rows = {}
        self.revision = 0
        self._wanted = wanted
        self._start = start
        self._end = end
        self._prefix_hash = b""

    def _is_inside(self, key: bytes) -> bool:
        return key >= self._start and (self._end is None or key < self._end)

    def begin(self, chain: LogChain, log: str) -> None:
        """Begin with the empty map.

        Raises:
            MissingLogError: The log does not begin with its first ledger any more.

        """
        ledgers = chain.ledgers
        if not chain.is_whole:
            first = ledgers[0].first_revision if ledgers else None
            raise MissingLogError(
                f"log {log}: revision {self._wanted} cannot be reached: the log begins with revision {first} now, and "
                "no snapshot given is at or below the one wanted and reaches it. Name the folders of replicas "
                "(--data-dir), or the lake (--lake)",
                first_revision=1,
                last_revision=None if first is None else first - 1,
            )
        self.rows, self.revision = {}, 0
        self._prefix_hash = root_hash(chain.ancestry.root)

    def load(self, store: SnapshotStore, manifest: SnapshotManifest) -> None:
        """Begin with a snapshot; blocks.

        Raises:
            CorruptSnapshotError: It is not what its manifest says.

        """
        rows: Rows = {}
        for row in store.read(manifest):
            if row.table == MAP_TABLE and self._is_inside(key := value_of(row.key)):
                rows[key] = entry_of(row.row, row.revision)
        self.rows, self.revision = rows, manifest.revision
        self._prefix_hash = bytes.fromhex(manifest.prefix_hash)

    async def replay(self, reader: LogReader, log: str) -> None:
        """Read the log up to the revision wanted.

        Raises:
            InvalidCommandError: It ends before.

        """
        waits = 0
        while self.revision < self._wanted:
            entries = await reader.read()
            for entry in entries:
                self._fold(entry, log)
                if self.revision >= self._wanted:
                    return
            if entries or reader.ledgers_ahead:
                continue
            # What was confirmed last is named by the leader's next entry.
            if waits == _WAITS_MAX:
                raise InvalidCommandError(
                    f"log {log}: there is no revision {self._wanted} yet, the last one is {self.revision}"
                )
            waits += 1
            await reader.wait(_WAIT_S)

    def _fold(self, entry: LogEntry, log: str) -> None:
        if entry.envelope.prefix_hash != self._prefix_hash:
            raise ForkedLogError(
                f"log {log}: the entry of revision {entry.envelope.first_revision} does not continue revision "
                f"{self.revision}: the snapshot is of another history"
            )
        for record in decode_records(body_of(entry.payload)):
            if self.revision >= self._wanted:
                return
            self.revision += 1
            if record.type == PUT:
                key, *columns = record.fields
                if self._is_inside(key):
                    self.rows[key] = entry_of(pack(columns), self.revision)
            elif record.type in {DELETED, EXPIRED}:
                self.rows.pop(record.fields[0], None)
        self._prefix_hash = entry_hash(entry.payload)
