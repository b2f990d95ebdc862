"""Facts of a log and its replicas, gathered by a replica for queries that name system tables.

The other replicas are asked for their status, ZooKeeper for the chain and the newest ledgers. Queries that come
together ask once, and what is not older than a second is not asked again: any number of readers costs the cluster one
question a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError, NoSuchLedgerError
from rsm_spark.errors import ConnectionLostError, RsmError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.member import Member
from rsm_spark.sql.messages import SqlValue
from rsm_spark.sql.system_tables import (
    LEDGERS,
    LOCKS,
    NODES,
    SNAPSHOTS,
    HeldCommit,
    SystemAsker,
    SystemRows,
    ledger_rows,
    lock_rows,
    node_rows,
    snapshot_rows,
)
from rsm_spark.transport.channel import ReplicaChannel
from rsm_spark.transport.security import Security

NODES_MAX: Final = 64
"""Replicas that are asked; a log has a handful."""
LOOKED_UP_MAX: Final = 100
"""Newest ledgers whose bookies are looked up."""
_AGE_S: Final = 1.0
_REPLICA_S: Final = 2.0
_ANSWER_S: Final = 5.0

T = TypeVar("T")
Status = Mapping[str, Any]


class _SharedAnswer(Generic[T]):
    """Something that is asked for once, whoever wants it meanwhile and shortly after.

    Args:
        ask: For it.

    """

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._found: asyncio.Task[T] | None = None
        self._until_s = 0.0

    async def get(self) -> T:
        """Return it.

        Raises:
            RsmError: It cannot be had now.

        """
        loop = asyncio.get_running_loop()
        if self._found is None or (self._found.done() and loop.time() >= self._until_s):
            self._found = loop.create_task(self._bounded())
            self._found.add_done_callback(_heard)
        # Who is cancelled leaves the others what they wait for.
        return await asyncio.shield(self._found)

    def close(self) -> None:
        """Give up what is under way."""
        if self._found is not None:
            self._found.cancel()

    async def _bounded(self) -> T:
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._ask()
        except TimeoutError:
            raise RsmError(f"system tables: the metadata store has not answered within {_ANSWER_S:g} s") from None
        except LedgerError as error:
            raise RsmError(f"system tables: {error}") from error
        finally:
            self._until_s = asyncio.get_running_loop().time() + _AGE_S


def _heard(done: asyncio.Task[Any]) -> None:
    """Take note of a fault that nobody waits for any more."""
    if not done.cancelled():
        done.exception()


class SystemDesk:
    """See the module. For one event loop.

    Args:
        client: Of the ledgers.
        discovery: Of the log.
        chains: Of the log.
        replica_id: Of this replica.
        security: With which the others are asked.
        own_status: What this replica says of itself, as JSON.
        holds: Open transactions and results of this replica.
        clock_ms: Wall clock.

    """

    def __init__(
        self,
        client: LedgerClient,
        discovery: Discovery,
        chains: ChainStore,
        replica_id: str,
        security: Security,
        own_status: Callable[[], bytes],
        holds: Callable[[], Iterable[HeldCommit]],
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._client = client
        self._discovery = discovery
        self._chains = chains
        self._replica_id = replica_id
        self._security = security
        self._own_status = own_status
        self._holds = holds
        self._clock_ms = clock_ms
        self._statuses: _SharedAnswer[list[Status]] = _SharedAnswer(self._ask_replicas)
        self._ledgers: _SharedAnswer[list[tuple[SqlValue, ...]]] = _SharedAnswer(self._look_up_ledgers)

    async def rows(self, names: Iterable[str], asker: SystemAsker) -> SystemRows:
        """Return the rows of system tables but `rsm_sessions`, which the tables' file has.

        Raises:
            RsmError: The metadata store cannot be asked.

        """
        found: dict[str, list[tuple[SqlValue, ...]]] = {}
        for name in names:
            if name == NODES:
                found[name] = node_rows(await self._statuses.get())
            elif name == SNAPSHOTS:
                found[name] = snapshot_rows(await self._statuses.get())
            elif name == LEDGERS:
                found[name] = await self._ledgers.get()
            elif name == LOCKS:
                now_s = asyncio.get_running_loop().time()
                found[name] = lock_rows(self._holds(), asker, now_s, self._clock_ms())
        return found

    def close(self) -> None:
        """Give up what is under way."""
        self._statuses.close()
        self._ledgers.close()

    async def _ask_replicas(self) -> list[Status]:
        members = (await self._discovery.members())[:NODES_MAX]
        return list(await asyncio.gather(*map(self._ask_replica, members)))

    async def _ask_replica(self, member: Member) -> Status:
        known = {"replica_id": member.replica_id, "address": member.address}
        if member.replica_id == self._replica_id:
            return {**msgspec.json.decode(self._own_status()), **known}
        if not member.address:
            return {**known, "error": "serves no clients"}
        async with ReplicaChannel(member.address, self._chains.log_name, security=self._security) as channel:
            try:
                return {**msgspec.json.decode(await channel.status(_REPLICA_S)), **known}
            except ConnectionLostError as error:
                return {**known, "error": str(error)}

    async def _look_up_ledgers(self) -> list[tuple[SqlValue, ...]]:
        chain, _ = await self._chains.read()
        newest = [ledger.ledger_id for ledger in chain.ledgers[-LOOKED_UP_MAX:]]
        found = await asyncio.gather(*map(self._bookies, newest))
        return ledger_rows(chain, {ledger: one for ledger, one in zip(newest, found, strict=True) if one is not None})

    async def _bookies(self, ledger_id: int) -> tuple[str, ...] | None:
        try:
            metadata, _ = await self._client.ledgers.read(ledger_id)
        except NoSuchLedgerError:
            return None  # It was trimmed meanwhile.
        return metadata.segments[-1].bookies
