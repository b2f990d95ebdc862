"""Search for the leader: by the log's chain and the members' nodes, kept fresh by a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from ledger.errors import LedgerError, UsageError
from rsm_spark.errors import RsmError
from rsm_spark.log.discovery import Discovery

_FRAMED_S_MAX = 1.0
"""There is another way than the one that is looked for."""


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

    async def find_framed(self, address: str) -> str:
        """Return where the framed port of the replica of this address is; "" = it has none, or that is not known."""
        ...


@runtime_checkable
class FollowerFinder(Protocol):
    """Names the replicas that may answer reads in the leader's stead, or pass on what is for it."""

    async def find_followers(self, on_change: Callable[[], None]) -> list[str]:
        """Return the addresses of the replicas that do not lead, in no special order; empty if none is known.

        Args:
            on_change: Called once, on the loop, when there may be others.

        """
        ...

    async def find_framed(self, address: str) -> str:
        """See `LeaderFinder`."""
        ...


async def refuse_other_machine(discovery: Discovery, log: str, machine: str) -> None:
    """Refuse a log whose leader is of another machine: it would take what is sent for commands of its own.

    Args:
        discovery: Of the log.
        log: Its name.
        machine: Name of the machine that is expected.

    Raises:
        UsageError: It is. A log that nobody leads, or that does not say, is not refused.

    """
    try:
        found = await discovery.leader()
    except (LedgerError, RsmError):
        return
    member = None if found is None else found[1]
    if member is not None and member.machine not in ("", machine):
        raise UsageError(
            f"log {log} is of machine {member.machine!r}, not {machine!r}: name another log, or use the client of that "
            "machine (`rsm call` for a service of your own)"
        )


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

    async def find_framed(self, address: str) -> str:  # noqa: ARG002 - nobody tells
        """Return nothing: who names one replica names its gRPC port."""
        return ""


class FoundReplica:
    """The leader as the metadata store names it.

    Args:
        discovery: Of the log.
        is_watched: It hears of the next leader by a watch, which stays in the session until then; not for
            who asks again and again, each time anew.

    Attributes:
        trouble: Why there was no leader at the last look.

    """

    def __init__(self, discovery: Discovery, *, is_watched: bool = True) -> None:
        self._discovery = discovery
        self._is_watched = is_watched
        self.trouble = "not looked for yet"
        # Address and framed port of the leader that was found last.
        self._found = ("", "")

    async def find(self, on_change: Callable[[], None]) -> str | None:
        """Return the address of the replica that claimed the log last, if it is alive and serves clients."""
        try:
            found = await self._discovery.leader(watch=on_change if self._is_watched else None)
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
        self._found = (member.address, member.framed)
        return member.address

    async def find_followers(self, on_change: Callable[[], None]) -> list[str]:
        """Return the addresses of the living replicas that do not lead and serve clients."""
        try:
            members = await self._discovery.members(watch=on_change if self._is_watched else None)
            found = await self._discovery.leader()
        except (LedgerError, RsmError):
            return []
        leader = "" if found is None else found[0].incarnation
        return [member.address for member in members if member.address and member.incarnation != leader]

    async def find_framed(self, address: str) -> str:
        """Return the framed port of the living replica of this address; "" if it has none, or is not found."""
        if self._found[0] == address:
            return self._found[1]
        try:
            async with asyncio.timeout(_FRAMED_S_MAX):
                members = await self._discovery.members()
        except (LedgerError, RsmError, TimeoutError):
            return ""
        return next((member.framed for member in members if member.address == address), "")
