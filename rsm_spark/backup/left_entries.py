"""Search for entries of a log whose chain is gone: how far they go, and whether they say that a snapshot is right."""

from __future__ import annotations

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError
from rsm_spark.core.envelope import decode_envelope
from rsm_spark.core.kernel_tables import peek_checkpoint
from rsm_spark.core.seal import KeyRing, check_seal
from rsm_spark.errors import CorruptLogError
from rsm_spark.log.remains import ledgers_of
from rsm_spark.snapshots.manifest import SnapshotManifest

_ENTRIES_MAX = 64


class LeftEntries(msgspec.Struct, frozen=True):
    """Entries of a log that can still be read, though no chain names them.

    Attributes:
        ledger_ids: Ledgers that say that they are of the log, ascending.
        last_revision: Highest one that was read; 0 = none.
        is_vouched: A checkpoint among them names the state that was asked for; in a log with a key, a sealed one.
        error: Why not all of them could be read; "" = they could.

    """

    ledger_ids: tuple[int, ...]
    last_revision: int = 0
    is_vouched: bool = False
    error: str = ""


async def left_entries(client: LedgerClient, snapshot: SnapshotManifest, keys: KeyRing | None) -> LeftEntries:
    """Read what comes after a snapshot in ledgers that no chain names.

    Args:
        client: Connected ledger client.
        snapshot: The state that is asked for.
        keys: Of the log: only an entry that one of them has sealed vouches for the state.

    Raises:
        MetadataError: The metadata store cannot be asked.

    """
    ledger_ids = tuple(await ledgers_of(client, snapshot.log_id))
    search = _Search(client, snapshot, keys)
    for ledger_id in reversed(ledger_ids):
        try:
            if await search.look(ledger_id):
                break
        except (LedgerError, CorruptLogError) as error:
            search.error = search.error or f"ledger {ledger_id}: {error}"
    return LeftEntries(ledger_ids, search.last_revision, search.is_vouched, search.error)


class _Search:
    def __init__(self, client: LedgerClient, snapshot: SnapshotManifest, keys: KeyRing | None) -> None:
        self.last_revision = 0
        self.is_vouched = False
        self.error = ""
        self._client = client
        self._snapshot = snapshot
        self._keys = keys
        self._log_id = bytes.fromhex(snapshot.log_id)

    async def look(self, ledger_id: int) -> bool:
        """Read one ledger; return whether those before it have nothing that is after the snapshot."""
        handle = await self._client.open_no_recovery(ledger_id, password=None)
        is_first, begins = True, False
        try:
            last = handle.metadata.last_entry_id if handle.is_closed else (await handle.read_lac()).last_add_confirmed
            for first in range(0, last + 1, _ENTRIES_MAX):
                for entry in await handle.read(first, min(last, first + _ENTRIES_MAX - 1)):
                    payload = bytes(entry.payload)
                    begins = begins or (is_first and self._begins_before(payload))
                    is_first = False
                    self._judge(payload)
        finally:
            await handle.close()
        return begins

    def _begins_before(self, payload: bytes) -> bool:
        return decode_envelope(payload).first_revision <= self._snapshot.revision

    def _judge(self, payload: bytes) -> None:
        envelope, snapshot = decode_envelope(payload), self._snapshot
        if envelope.log_id != self._log_id:
            return
        if self._keys is not None:
            if not envelope.key_id:
                return  # Anybody could have written it.
            check_seal(payload, envelope, self._keys, self._log_id)
        self.last_revision = max(self.last_revision, envelope.last_revision)
        if snapshot.sealed and self._keys is None:
            return
        found = peek_checkpoint(payload) if envelope.first_revision == snapshot.revision + 1 else None
        if found is not None:
            named = (found.revision, found.digest.hex(), found.row_count, found.prefix_hash.hex())
            said = (snapshot.revision, snapshot.digest, snapshot.row_count, snapshot.prefix_hash)
            self.is_vouched = self.is_vouched or named == said
