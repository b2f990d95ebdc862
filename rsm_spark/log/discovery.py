"""Discovery of a log's leader: the chain names it, its member node gives the address."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ledger.errors import BadVersionError, MetadataError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore, SessionState, Watcher
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, Leadership, members_path
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.member import Member, decode_member, encode_member

_LOGGER = logging.getLogger(__name__)


class Discovery:
    """Finds replicas of one log.

    Args:
        store: Session with the metadata store.
        log_name: Name of the log.
        rsm_root: Where logs and services live.

    """

    def __init__(self, store: MetadataStore, log_name: str, rsm_root: str = DEFAULT_RSM_ROOT) -> None:
        self._store = store
        self._chains = ChainStore(store, log_name, rsm_root)
        self._members = members_path(log_name, rsm_root)

    async def leader(self, *, watch: Watcher | None = None) -> tuple[Leadership, Member | None] | None:
        """Return who claimed the log last, and its member node if it is alive; None if nobody ever did.

        Args:
            watch: Called once when another claim may have come.

        Raises:
            NoSuchLogError: There is no log of this name.
            MetadataError: The metadata store cannot be asked.

        """
        chain, _ = await self._chains.read(watch=watch, sync=False)
        if chain.leader is None:
            return None
        member = await self.member(chain.leader.replica_id)
        if member is not None and member.incarnation != chain.leader.incarnation:
            member = None  # The same replica id, but another process: it did not claim.
        return chain.leader, member

    async def member(self, replica_id: str) -> Member | None:
        """Return a live replica by its id, or None."""
        try:
            return decode_member((await self._store.get(f"{self._members}/{replica_id}")).value)
        except NoNodeError:
            return None

    async def members(self, *, watch: Watcher | None = None) -> list[Member]:
        """Return all live replicas, by id.

        Args:
            watch: Called once when one may have come or gone.

        Raises:
            MetadataError: The metadata store cannot be asked.

        """
        try:
            names = await self._store.children(self._members, watch=watch)
        except NoNodeError:
            return []
        found = [await self.member(name) for name in names]
        return [member for member in found if member is not None]


class MemberKeeper:
    """Keeps the own member node in place, over lost sessions and beside a former process of the same replica.

    Args:
        store: Session with the metadata store.
        log_name: Name of the log.
        member: What the node says.
        rsm_root: Where services live.
        poll_s: How often it is checked.

    """

    def __init__(
        self,
        store: MetadataStore,
        log_name: str,
        member: Member,
        *,
        rsm_root: str = DEFAULT_RSM_ROOT,
        poll_s: float = 1.0,
    ) -> None:
        self._store = store
        self._path = f"{members_path(log_name, rsm_root)}/{member.replica_id}"
        self._member = member
        self._poll_s = poll_s
        self._changed = asyncio.Event()
        self._is_outdated = False  # The node says something else than `_member`.

    @property
    def member(self) -> Member:
        """Content of the node, now or with the next write."""
        return self._member

    def tell(self, member: Member) -> None:
        """Have the node say something else."""
        self._member = member
        self._is_outdated = True
        self._changed.set()

    async def appear(self) -> None:
        """Create the node now, if the metadata store answers; `run` keeps it."""
        with contextlib.suppress(MetadataError):
            await self._put(asyncio.Event())

    async def touch(self) -> int | None:
        """Write the node anew; return when that was, by the metadata store's clock. None = it is not there, or not own.

        Raises:
            MetadataError: The metadata store cannot be asked.

        """
        if not await self._rewrite():
            return None
        with contextlib.suppress(NoNodeError):
            return await self._store.modified_ms(self._path)
        return None

    async def run(self) -> None:
        """Create the node whenever it is missing; until cancelled."""
        changed = self._changed

        def _on_state(_state: SessionState) -> None:
            changed.set()

        unsubscribe = self._store.on_session_state(_on_state)
        try:
            while True:
                changed.clear()
                try:
                    await self._put(changed)
                except MetadataError as error:
                    _LOGGER.info("member node is waiting", extra={"path": self._path, "reason": str(error)})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await changed.wait()
        finally:
            unsubscribe()

    async def remove(self) -> None:
        """Delete the own node; best effort."""
        with contextlib.suppress(MetadataError):
            await self._store.sync(self._path)  # It may have been created a moment ago.
            found = await self._store.get(self._path)
            own = decode_member(found.value)
            if own is not None and own.incarnation == self._member.incarnation:
                await self._store.delete(self._path, found.version)

    async def _put(self, changed: asyncio.Event) -> None:
        """Create the node if it is missing. One of a former process is waited out: its session may still live."""
        if await self._store.exists(self._path, watch=changed.set) is not None:
            if self._is_outdated:
                await self._rewrite()
            return
        with contextlib.suppress(NodeExistsError):
            await self._store.create(self._path, encode_member(self._member), ephemeral=True, parents=True)

    async def _rewrite(self) -> bool:
        """Write the node anew, if it is this process's own; return whether it was written."""
        member, is_written = self._member, False
        with contextlib.suppress(NoNodeError, BadVersionError):
            found = await self._store.get(self._path)
            own = decode_member(found.value)
            if own is None or own.incarnation != member.incarnation:
                return False
            await self._store.set(self._path, encode_member(member), found.version)
            is_written = True
        self._is_outdated = self._member != member
        return is_written
