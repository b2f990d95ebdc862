"""Ledger metadata and bookies as BookKeeper keeps them: hierarchical layout, CAS on every change."""

from __future__ import annotations

import builtins
import contextlib
from typing import Final

from ledger.core.metadata import LedgerMetadata
from ledger.errors import (
    BookieUnavailableError,
    MetadataError,
    NodeExistsError,
    NoNodeError,
    NoSuchClusterError,
    NoSuchLedgerError,
)
from ledger.ports import MetadataStore, Watcher
from ledger.wire import paths
from ledger.wire.metadata_format import (
    LAYOUT,
    decode_bookie_service_info,
    decode_layout,
    decode_metadata,
    encode_metadata,
)
from ledger.wire.paths import Layout
from ledger.zookeeper.ledger_ids import LedgerIds

_UNDERREPLICATION_LAYOUT: Final = b'type: "BASIC"\nversion: 1\n'
_READ_ONLY: Final = "readonly"
_CREATE_ATTEMPTS_MAX: Final = 5


class LedgerStore:
    """The ledgers and the bookies of one cluster.

    Args:
        store: Where the nodes are.
        root: BookKeeper's root node.

    """

    def __init__(self, store: MetadataStore, root: str = "/ledgers") -> None:
        self.store = store
        self.root = root
        self._ids = LedgerIds(store, root)
        self._layout: Layout | None = None

    async def ensure_layout(self, instance_id: str) -> str:
        """Create the nodes that every BookKeeper tool expects, where they are missing.

        Args:
            instance_id: uuid text for a cluster that has none yet.

        Returns:
            The cluster's instance id.

        Raises:
            CorruptMetadataError: The cluster keeps its ledgers in a way that is not known here.

        """
        root = self.root
        layout = paths.layout_path(root)
        try:
            self._layout = decode_layout((await self.store.get(layout)).value)
        except NoNodeError:
            await self._create_if_missing(layout, LAYOUT)
        underreplication = paths.underreplication_path(root)
        for path, value in (
            (paths.available_path(root), b""),
            (f"{paths.available_path(root)}/{_READ_ONLY}", b""),
            (paths.cookie_path(root), b""),
            (paths.instance_id_path(root), instance_id.encode()),
            (paths.id_generator_path(root).rpartition("/")[0], b""),
            (f"{underreplication}/ledgers", b""),
            (f"{underreplication}/locks", b""),
            (f"{underreplication}/LAYOUT", _UNDERREPLICATION_LAYOUT),
        ):
            await self._create_if_missing(path, value)
        return (await self.store.get(paths.instance_id_path(root))).value.decode()

    async def instance_id(self) -> str:
        """Return the cluster's instance id.

        Raises:
            NoNodeError: The cluster has never been set up.

        """
        return (await self.store.get(paths.instance_id_path(self.root))).value.decode()

    async def new_ledger_id(self) -> int:
        """Draw an id that no ledger has had: one of 31 bits while there are any, then one of 63.

        Raises:
            CorruptMetadataError: All ids have been given out.

        """
        return await self._ids.draw()

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> int:
        """Create a ledger's node; return its version.

        Raises:
            NodeExistsError: The id is taken.

        """
        path = await self._path(ledger_id)
        value = encode_metadata(metadata)
        for attempt in range(1, _CREATE_ATTEMPTS_MAX + 1):
            try:
                await self.store.create(path, value, parents=True)
            except NoNodeError:  # Who deleted another ledger removed the emptied branch just now.
                if attempt == _CREATE_ATTEMPTS_MAX:
                    raise
            else:
                break
        return 0

    async def read(
        self, ledger_id: int, *, watch: Watcher | None = None, sync: bool = False
    ) -> tuple[LedgerMetadata, int]:
        """Return a ledger's metadata and their version.

        Args:
            ledger_id: The ledger.
            watch: Called once when they may have changed.
            sync: Ask the server to catch up first, for decisions that must not rest on stale metadata.

        Raises:
            NoSuchLedgerError: There is no such ledger.
            CorruptMetadataError: The node cannot be read by this version.

        """
        path = await self._path(ledger_id)
        if sync:
            await self.store.sync(path)
        try:
            value, version = await self.store.get(path, watch=watch)
        except NoNodeError:
            raise NoSuchLedgerError(f"ledger {ledger_id}: no such ledger in {self.root}", ledger_id=ledger_id) from None
        return decode_metadata(value, ledger_id=ledger_id), version

    async def write(self, ledger_id: int, metadata: LedgerMetadata, version: int) -> int:
        """Compare-and-set a ledger's metadata; return the new version.

        Raises:
            BadVersionError: Somebody else changed them.
            NoSuchLedgerError: The ledger has been deleted.

        """
        try:
            return await self.store.set(await self._path(ledger_id), encode_metadata(metadata), version)
        except NoNodeError:
            raise NoSuchLedgerError(f"ledger {ledger_id}: deleted meanwhile", ledger_id=ledger_id) from None

    async def delete(self, ledger_id: int, version: int) -> None:
        """Delete a ledger's node and the branch that it leaves empty; bookies drop its entries when they next look.

        Raises:
            BadVersionError: Somebody else changed it.
            NoSuchLedgerError: There is no such ledger.

        """
        path = await self._path(ledger_id)
        try:
            await self.store.delete(path, version)
        except NoNodeError:
            raise NoSuchLedgerError(f"ledger {ledger_id}: no such ledger", ledger_id=ledger_id) from None
        branch = path.rpartition("/")[0]
        with contextlib.suppress(MetadataError):  # It has other ledgers; or somebody else does it, next time.
            while branch != self.root:
                await self.store.delete(branch)
                branch = branch.rpartition("/")[0]

    async def list(self) -> list[int]:
        """Return the ids of all ledgers, ascending.

        Raises:
            MetadataError: The tree could not be read in full: never a part of the list.

        """
        found: builtins.list[int] = []
        await self._walk(self.root, 0, found)
        return sorted(dict.fromkeys(found))

    async def _path(self, ledger_id: int) -> str:
        """Return a ledger's node; the layout is read once.

        Raises:
            CorruptMetadataError: The cluster keeps its ledgers in a way that is not known here.

        """
        if self._layout is None:
            try:
                self._layout = decode_layout((await self.store.get(paths.layout_path(self.root))).value)
            except NoNodeError:  # No cluster yet, or a server that lags.
                return paths.ledger_path(self.root, ledger_id)
        return paths.ledger_path(self.root, ledger_id, self._layout)

    async def _walk(self, path: str, depth: int, found: builtins.list[int]) -> None:
        try:
            names = await self.store.children(path)
        except NoNodeError:
            if depth == 0:
                raise
            return  # an emptied branch was removed meanwhile
        for name in names:
            child = f"{path}/{name}"
            ledger_id = paths.ledger_id_of(child, self.root)
            if ledger_id is not None:
                found.append(ledger_id)
            elif paths.is_ledger_branch(name, depth):
                await self._walk(child, depth + 1, found)

    async def writable_bookies(self, *, watch: Watcher | None = None) -> builtins.list[str]:
        """Return the ids of the bookies that take entries, sorted.

        Raises:
            NoSuchClusterError: No cluster has been set up under this root.

        """
        try:
            names = await self.store.children(paths.available_path(self.root), watch=watch)
        except NoNodeError:
            raise NoSuchClusterError(
                f"there is no BookKeeper cluster under {self.root}: check the path of the metadata URI, or start a "
                "bookie, which sets one up"
            ) from None
        return [name for name in names if name != _READ_ONLY]

    async def read_only_bookies(self, *, watch: Watcher | None = None) -> builtins.list[str]:
        """Return the ids of the bookies that only serve reads, sorted."""
        try:
            return await self.store.children(f"{paths.available_path(self.root)}/{_READ_ONLY}", watch=watch)
        except NoNodeError:
            return []

    async def bookie_address(self, bookie_id: str) -> tuple[str, int]:
        """Return where a bookie listens: what it registered, else what its id says.

        An address that the id does not say is one at which others may listen later: it is read after a `sync`.

        Raises:
            BookieUnavailableError: It is not registered, and its id says no address.
            CorruptMetadataError: Its registration is damaged.

        """
        address = await self._registered_address(bookie_id)
        if address is not None and "{}:{}".format(*address) != bookie_id:
            await self.store.sync(paths.available_path(self.root))
            address = await self._registered_address(bookie_id)
        if address is not None:
            return address
        host, separator, port = bookie_id.rpartition(":")
        if not separator or not port.isdigit():
            raise BookieUnavailableError(f"bookie {bookie_id} is not registered, and its id is no host:port")
        return host, int(port)

    async def _registered_address(self, bookie_id: str) -> tuple[str, int] | None:
        for path in (paths.available_path(self.root, bookie_id), paths.read_only_path(self.root, bookie_id)):
            try:
                address = decode_bookie_service_info((await self.store.get(path)).value)
            except NoNodeError:
                continue
            if address is not None:
                return address
        return None

    async def _create_if_missing(self, path: str, value: bytes) -> None:
        try:
            await self.store.create(path, value, parents=True)
        except NodeExistsError:
            return
