"""Sources of `rsm snapshot`: a folder, a lake, or the replicas that run."""

from __future__ import annotations

import asyncio
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import UsageError
from rsm_spark.core.kernel_tables import Checkpoint, peek_checkpoint
from rsm_spark.errors import ConnectionLostError, CorruptSnapshotError, MissingLogError, SnapshotError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.described_records import reader_from
from rsm_spark.log.discovery import Discovery
from rsm_spark.object_stores.storage_options import checked_uri, read_storage_options, shown_uri
from rsm_spark.runtime.lake_names import follow_renames
from rsm_spark.server.replica_server import SNAPSHOTS_FOLDER
from rsm_spark.snapshots.checks import snapshot_name
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotFile, SnapshotManifest, SnapshotStore
from rsm_spark.snapshots.pace import no_pace
from rsm_spark.transport.peer_client import GrpcPeers
from rsm_spark.transport.security import Security

if TYPE_CHECKING:
    # deltalake is loaded only where it is used.
    from rsm_spark.snapshots.lake import LakeSnapshots


class Holding(NamedTuple):
    """Snapshots of one place.

    Attributes:
        place: A folder, a lake, "replica:<replica id>".
        manifests: Whole snapshots, newest first.
        damaged: One line each.
        error: Why the place could not be asked; "" = it was.

    """

    place: str
    manifests: list[SnapshotManifest]
    damaged: list[str]
    error: str = ""


class SnapshotSource(ABC):
    """Snapshots of one log, in one place or at several replicas."""

    @abstractmethod
    async def holdings(self) -> list[Holding]:
        """Return what is there, place by place."""

    @abstractmethod
    async def read_back(self, place: str, manifest: SnapshotManifest) -> None:
        """Read every byte and every row of a snapshot.

        Raises:
            CorruptSnapshotError: They are not what the manifest says.
            ConnectionLostError, SnapshotError: It cannot be read.

        """

    @abstractmethod
    async def copy(self, place: str, manifest: SnapshotManifest, folder: Path) -> tuple[SnapshotManifest, Path]:
        """Copy a snapshot into a folder, read back; return its manifest with its files, and where they lie.

        Raises:
            As `read_back`.

        """


class CopiedSource:
    """Snapshots for a backup, from any source.

    Replicas write the same rows, but each its own files: a manifest is of use only where it was found.
    """

    def __init__(self, source: SnapshotSource) -> None:
        self._source = source
        self._places: dict[tuple[int, str, tuple[SnapshotFile, ...]], str] = {}

    async def manifests(self) -> list[SnapshotManifest]:
        """Return the snapshots of all places."""
        found: list[SnapshotManifest] = []
        for holding in await self._source.holdings():
            for manifest in holding.manifests:
                self._places[manifest.revision, manifest.prefix_hash, manifest.files] = holding.place
                found.append(manifest)
        return found

    async def copy(self, manifest: SnapshotManifest, folder: Path) -> tuple[SnapshotManifest, Path]:
        """Copy one of them into a folder."""
        place = self._places[manifest.revision, manifest.prefix_hash, manifest.files]
        return await self._source.copy(place, manifest, folder)


class _Store(SnapshotSource):
    def __init__(self, place: str, store: SnapshotStore) -> None:
        self._place = place
        self._store = store

    async def holdings(self) -> list[Holding]:
        manifests = self._store.manifests()
        return [Holding(self._place, manifests, [f"{one.place}: {one.reason}" for one in self._store.damaged()])]

    async def read_back(self, place: str, manifest: SnapshotManifest) -> None:
        del place
        damage = self._store.scrub(manifest)
        if damage is not None:
            raise CorruptSnapshotError(f"{damage.place}: {damage.reason}")
        for _ in self._store.read(manifest):
            pass

    async def copy(self, place: str, manifest: SnapshotManifest, folder: Path) -> tuple[SnapshotManifest, Path]:
        del place
        copies = LocalSnapshots(folder, pace=lambda: no_pace)
        bare = msgspec.structs.replace(manifest, files=())
        whole = await asyncio.to_thread(lambda: copies.write(bare, self._store.read(manifest)))
        return whole, folder / snapshot_name(whole)


class _Replicas(SnapshotSource):
    def __init__(self, discovery: Discovery, log: str, only: str | None, folder: Path) -> None:
        self._discovery = discovery
        self._only = only
        self._folder = folder
        self._store = LocalSnapshots(folder, pace=lambda: no_pace)
        self._peers = GrpcPeers(log, discovery, self._store, Security.from_environment())

    async def holdings(self) -> list[Holding]:
        members = [one for one in await self._discovery.members() if self._only in (None, one.replica_id)]
        found: list[Holding] = []
        for member in members:
            place = f"replica:{member.replica_id}"
            try:
                said = await self._peers.list(member.replica_id)
                found.append(Holding(place, list(said.manifests), list(said.damaged)))
            except ConnectionLostError as error:
                found.append(Holding(place, [], [], str(error)))
        return found

    async def read_back(self, place: str, manifest: SnapshotManifest) -> None:
        await self._peers.download(place.removeprefix("replica:"), manifest, read_back=True)

    async def copy(self, place: str, manifest: SnapshotManifest, folder: Path) -> tuple[SnapshotManifest, Path]:
        del folder  # The own one ends with this source.
        whole = await self._peers.download(place.removeprefix("replica:"), manifest, read_back=True)
        return whole, self._folder / snapshot_name(whole)


async def find_store(
    client: LedgerClient,
    rsm_root: str,
    data_dir: Path | None,
    lake: str | None,
    log: str,
    storage_options_file: Path | None,
) -> SnapshotSource:
    """Return the snapshots in a folder or in a lake, also below a former name of a log that the metadata store knows.

    Args:
        client: Connected ledger client.
        rsm_root: Where logs live.
        data_dir: As `open_store` takes it, and the others too.
        lake: Likewise.
        log: Likewise.
        storage_options_file: Likewise.

    Raises:
        UsageError: See `open_store`.
        SnapshotError: The lake cannot be read.

    """
    if data_dir is not None or lake is None:
        return open_store(data_dir, lake, log, storage_options_file)
    found = _lake(lake, log, storage_options_file)
    await follow_renames(found, client.store, log, rsm_root)
    return _Store(shown_uri(found.place), found)


def open_store(
    data_dir: Path | None, lake: str | None, log: str | None, storage_options_file: Path | None = None
) -> SnapshotSource:
    """Return the snapshots in a folder or in a lake.

    Args:
        data_dir: Of a replica, or its folder of snapshots.
        lake: Folder or URI that holds the snapshot tables of logs.
        log: Name of the log; needed for a lake.
        storage_options_file: JSON file with options for a lake in an object store; None = the environment says all.

    Raises:
        UsageError: The folder does not exist, no log is named, the file cannot be used, or the lake's address holds a
            secret.

    """
    if data_dir is not None:
        folder = data_dir / SNAPSHOTS_FOLDER if (data_dir / SNAPSHOTS_FOLDER).is_dir() else data_dir
        if not folder.is_dir():
            raise UsageError(f"--data-dir {data_dir}: there is no such folder")
        return _Store(str(folder), LocalSnapshots(folder, pace=lambda: no_pace))
    if lake is None or log is None:
        raise UsageError("--lake needs --log: a lake holds the snapshots of many logs")
    found = _lake(lake, log, storage_options_file)
    return _Store(shown_uri(found.place), found)


def _lake(lake: str, log: str, storage_options_file: Path | None) -> LakeSnapshots:
    from rsm_spark.snapshots.lake import LakeSnapshots, lake_place  # noqa: PLC0415 - deltalake only where it is used

    place, options = lake_place(checked_uri(lake), log), read_storage_options(storage_options_file)
    return LakeSnapshots(place, storage_options=options, pace=lambda: no_pace)


@asynccontextmanager
async def open_replicas(
    client: LedgerClient, log: str, rsm_root: str, only: str | None
) -> AsyncIterator[SnapshotSource]:
    """Yield the snapshots of the replicas that run; what is read back is copied to a temporary folder meanwhile.

    Args:
        client: Connected ledger client.
        log: Name of the log.
        rsm_root: Where logs and services live.
        only: One replica; None = all.

    """
    with tempfile.TemporaryDirectory(prefix="rsm-snapshot-") as folder:
        yield _Replicas(Discovery(client.store, log, rsm_root), log, only, Path(folder))


async def logged_checkpoint(client: LedgerClient, log: str, rsm_root: str, revision: int) -> Checkpoint | None:
    """Return the checkpoint that the log holds for a revision; None if there is none.

    Raises:
        MissingLogError: That part of the log has been trimmed.
        NoSuchLogError: There is no such log.
        SnapshotError: The log does not go that far.

    """
    chains = ChainStore(client.store, log, rsm_root)
    chain, _ = await chains.read()
    if chain.ledgers and chain.ledgers[0].first_revision > revision + 1:
        first = chain.ledgers[0].first_revision
        raise MissingLogError(
            f"log {log}: revision {revision + 1} has left the log, which begins with revision {first} now",
            first_revision=revision + 1,
            last_revision=first - 1,
        )
    reader = reader_from(client, chains, chain, revision + 1)
    last = 0
    try:
        while entries := await reader.read():
            for entry in entries:
                if entry.envelope.first_revision > revision + 1:
                    return None
                checkpoint = peek_checkpoint(entry.payload)
                if checkpoint is not None and checkpoint.revision == revision:
                    return checkpoint
                last = entry.envelope.last_revision
    finally:
        await reader.close()
    if last < revision:
        raise SnapshotError(f"log {log} ends with revision {last}: it never had revision {revision}")
    return None
