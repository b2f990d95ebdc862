"""Contents beside a log, for a fork of it: their ledgers are shared as the closed ones of its entries are, or copied.

Which contents the fork's last state names is not looked at: they are among all that are closed and were begun by then.
They are noted once the fork has its last entry, then the origin's chain is read again. As long as that begins no later
than the ledger in which the fork ends, the origin has let go of none that the fork's last state names.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from ledger.client.client import LedgerClient
from ledger.core.metadata import LedgerMetadata
from ledger.errors import NoSuchLedgerError
from rsm_spark.backup.fork_snapshots import ForkRequest
from rsm_spark.backup.made_contents import MadeContents
from rsm_spark.backup.manifest import BackupError
from rsm_spark.core.chain import ChainLedger, LogChain
from rsm_spark.core.contents import DIGEST_BYTES, FileContent, KnownContent, digest_of
from rsm_spark.core.orphans import content_number, maker_of
from rsm_spark.errors import DamagedContentError, LogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.contents import ContentPlace, has_contents, note_places, read_places
from rsm_spark.log.deletion import contents_path, delete_tree
from rsm_spark.log.remains import ledgers_of
from rsm_spark.log.sharing import SharedLedgers

_CHUNKS_AT_ONCE = 4
SHARED_MAX = 50_000
"""Contents that a fork shares: the node that names them must hold them."""


class _Held(msgspec.Struct, frozen=True):
    place: ContentPlace
    owner: str
    metadata: LedgerMetadata


class ForkContents:
    """Contents of one fork.

    Args:
        client: Connected ledger client.
        target: What is to become of it.
        log_id: Of the fork.
        sharing: What the fork shares.

    Attributes:
        count: How many it has.
        shared: Ledgers that it shares.

    """

    def __init__(self, client: LedgerClient, target: ForkRequest, log_id: str, sharing: SharedLedgers) -> None:
        self.count = 0
        self.shared: tuple[int, ...] = ()
        self._client = client
        self._target = target
        self._log_id = log_id
        self._sharing = sharing
        self._made: MadeContents | None = None

    async def take(self, chain: LogChain, last: ChainLedger, revision: int) -> None:
        """Have the contents of the origin.

        Args:
            chain: Of the origin.
            last: Ledger of it in which the fork ends.
            revision: With which the fork ends.

        Raises:
            BackupError: There are too many to be shared.
            DamagedContentError: One that is to be copied is not what was written.
            LogError: The origin was trimmed meanwhile.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked.

        """
        target, store = self._target, self._client.store
        if not await has_contents(store, chain.log_id, target.rsm_root):
            return
        moved = await read_places(store, chain.log_id, target.rsm_root)
        held = await self._held(chain, moved, revision)
        self.count = len(held)
        if target.is_independent:
            await self._copy(chain, held)
            return
        if len(held) > SHARED_MAX:
            raise BackupError(
                f"log {target.log}: {len(held):,} ledgers hold contents of its files, a fork shares {SHARED_MAX:,} at "
                "most: copy everything (--independent)"
            )
        owners: dict[str, list[int]] = {}
        for one in held:
            owners.setdefault(one.owner, []).append(one.place.ledger)
        self.shared = tuple(one.place.ledger for one in held)
        await self._sharing.use(target.name, owners)
        again, _ = await ChainStore(store, target.log, target.rsm_root).read()
        begin = again.ledgers[0].first_revision if again.ledgers else revision + 1
        if again.log_id != chain.log_id or begin > last.first_revision:
            raise LogError(f"log {target.log}: it was trimmed just now: make the fork once more")
        await note_places(
            store, self._log_id, [one.place for one in held if one.place.number in moved], target.rsm_root
        )

    async def _held(self, chain: LogChain, moved: dict[int, ContentPlace], revision: int) -> list[_Held]:
        """Return the closed contents that were begun by a revision: the origin's own, and those that it shares."""
        known = await ledgers_of(self._client, chain.log_id)
        for ledger in await SharedLedgers(self._client, chain.log_id, self._target.rsm_root).used():
            with contextlib.suppress(NoSuchLedgerError):  # It is just let go of.
                known[ledger] = await self._client.metadata(ledger)
        found: list[_Held] = []
        for ledger, metadata in known.items():
            number = content_number(metadata.custom)
            if number is not None and number <= revision and metadata.is_closed:
                logged = moved[number].logged if number in moved else ledger
                found.append(_Held(ContentPlace(number, logged, ledger), maker_of(metadata.custom), metadata))
        return found

    async def _copy(self, chain: LogChain, held: list[_Held]) -> None:
        target = self._target
        password = target.password
        if chain.key_id:
            assert target.keys is not None, "checked before"
            password = target.keys.password(chain.key_id, self._log_id)
        self._made = made = MadeContents(
            self._client, target.name, self._log_id, password=password, quorum=target.quorum
        )
        for one in held:
            known = _known(one)
            async with aclosing(self._chunks(known, one.place.ledger)) as chunks:
                await made.write(known, chunks)
        await note_places(self._client.store, self._log_id, made.places, target.rsm_root)

    async def _chunks(self, known: KnownContent, ledger: int) -> AsyncGenerator[bytes]:
        """Iterate over the chunks of a content, each as its index says; whether that is right, readers find out."""
        count = known.content.chunk_count
        handle = await self._client.open_no_recovery(ledger, password=None)
        try:
            (entry,) = await handle.read(count, count)
            index = bytes(entry.payload)
            for first in range(0, count, _CHUNKS_AT_ONCE):
                for entry in await handle.read(first, min(first + _CHUNKS_AT_ONCE, count) - 1):
                    at = entry.entry_id * DIGEST_BYTES
                    if digest_of(entry.payload) != index[at : at + DIGEST_BYTES]:
                        raise DamagedContentError(
                            f"ledger {ledger}, a content of log {self._target.log}: chunk {entry.entry_id} is not what "
                            "was written. Delete the file, or write it anew, and make the fork once more"
                        )
                    yield entry.payload
        finally:
            await handle.close()

    async def forget(self) -> bool:
        """Delete what was copied, for a fork that does not come to be; return whether all of it is gone."""
        await delete_tree(self._client.store, contents_path(self._log_id, self._target.rsm_root))
        return self._made is None or await self._made.forget()


def _known(held: _Held) -> KnownContent:
    """Return what a ledger says of the content that it holds: its last entry is the index."""
    count = held.metadata.last_entry_id
    content = FileContent(held.place.logged, held.metadata.length - count * DIGEST_BYTES, count, b"")
    return KnownContent(held.place.number, content, held.place.number)
