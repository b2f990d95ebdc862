"""Search for the leader: by the log's chain and the members' nodes, kept fresh by a watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.log.discovery import Discovery


class LeaderFinder(Protocol):
    """Names the replica to send to."""

    @property
    def trouble(self) -> str:
        """Reason why no replica was found last, in a few words."""
        ...

    async def find(self, on_change: Callable[[], None]) -> str | None:
        """Return the address of the leader, or None.

        Args:
            on_change: Called once, on the loop, when another replica may lead.

        """
        ...


class FollowerFinder(Protocol):
    """Names the replicas that may answer reads in the leader's stead."""

    async def find_followers(self, on_change: Callable[[], None]) -> list[str]:
        """Return the addresses of the replicas that do not lead, in no special order; empty if none is known.

        Args:
            on_change: Called once, on the loop, when there may be others.

        """
        ...


class FixedReplica:
    """Always the same replica, whether it leads or not.

    Args:
        address: "host:port".

    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.trouble = ""

    async def find(self, on_change: Callable[[], None]) -> str | None:  # noqa: ARG002 - it never changes
        """Return the address."""
        return self._address


class FoundReplica:
    """The leader as the metadata store names it.

    Args:
        discovery: Of the log.

    Attributes:
        trouble: Why there was no leader at the last look.

    """

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self.trouble = "not looked for yet"

    async def find(self, on_change: Callable[[], None]) -> str | None:
        """Return the address of the replica that claimed the log last, if it is alive and serves clients."""
        try:
            found = await self._discovery.leader(watch=on_change)
        except (LedgerError, RsmError) as error:
            self.trouble = str(error)
            return None
        if found is None:
            self.trouble = "no replica has claimed the log yet"
            return None
        leadership, member = found
        if member is None or not member.address:
            self.trouble = f"replica {leadership.replica_id}, which led last, is gone or serves no clients"
            return None
        self.trouble = ""
        return member.address

    async def find_followers(self, on_change: Callable[[], None]) -> list[str]:
        """Return the addresses of the living replicas that do not lead and serve clients."""
        try:
            members = await self._discovery.members(watch=on_change)
            found = await self._discovery.leader()
        except (LedgerError, RsmError):
            return []
        leader = "" if found is None else found[0].incarnation
        return [member.address for member in members if member.address and member.incarnation != leader]
