"""Connections to the leader, one for each caller: what one of them has under way does not stand before the others'.

Over a socket a client of a service has two messages at its leader at a time, whatever else it waits with; so a caller
that writes very much waits with it here, behind its own link. Where the leader is in this process, links send as their
callers, who take turns there. Links are made as callers come; those that are not used go when there are too many, and
callers beyond that share one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from rsm_spark.client.leader_finder import FoundReplica
from rsm_spark.client.replica_connection import ReplicaConnection
from rsm_spark.client.service_client import ServiceClient
from rsm_spark.log.discovery import Discovery
from rsm_spark.transport.near_stream import NearReplica
from rsm_spark.transport.security import Security

LINKS_MAX = 64
_SHARED = ""
_SHARED_OWNER = "callers without a link of their own"


def links_of(
    discovery: Discovery, log: str, security: Security, timeout_s: float, near: NearReplica | None = None
) -> LeaderLinks:
    """Return links to the leader of a log.

    Args:
        discovery: Finds it.
        log: Name of the log.
        security: Of the caller.
        timeout_s: Time limit of a call.
        near: The replica of this process: while it leads, links go to it by calls, each as its caller's; None = over
            its port, all as this process's.

    """

    def connect(owner: str) -> ServiceClient:
        finder = FoundReplica(discovery)
        link = ReplicaConnection(finder, log, security=security, near=near, owner=owner or _SHARED_OWNER)
        return ServiceClient(link, timeout_s=timeout_s)

    return LeaderLinks(connect)


class _Link:
    __slots__ = ("client", "uses")

    def __init__(self, client: ServiceClient) -> None:
        self.client = client
        self.uses = 0


class _LinkUse(AbstractContextManager[ServiceClient], AbstractAsyncContextManager[ServiceClient]):
    """A link while something is under way on it; there is one for each command, so it is no generator."""

    __slots__ = ("_link", "_links", "_owner")

    def __init__(self, links: LeaderLinks, owner: str) -> None:
        self._links = links
        self._owner = owner

    def __enter__(self) -> ServiceClient:
        self._link = self._links._link(self._owner)
        self._link.uses += 1
        return self._link.client

    def __exit__(self, *_: object) -> None:
        self._link.uses -= 1

    async def __aenter__(self) -> ServiceClient:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


class LeaderLinks:
    """See the module.

    Args:
        connect: Makes a client of the leader, for a caller.
        links_max: Of callers.

    """

    def __init__(self, connect: Callable[[str], ServiceClient], links_max: int = LINKS_MAX) -> None:
        self._connect = connect
        self._links_max = links_max
        # The one that was used longest ago first.
        self._links: OrderedDict[str, _Link] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, owner: str) -> _LinkUse:
        """Have the client of a caller while something is under way, by `with` or `async with`; "" = everybody's."""
        return _LinkUse(self, owner)

    def _link(self, owner: str) -> _Link:
        found = self._links.get(owner)
        if found is None:
            if owner != _SHARED and len(self._links) >= self._links_max and not self._make_room():
                return self._link(_SHARED)
            found = self._links[owner] = _Link(self._connect(owner))
        self._links.move_to_end(owner)
        return found

    def _make_room(self) -> bool:
        """Close the link that was used longest ago of those that are not in use; return whether there was one."""
        for owner, link in self._links.items():
            if not link.uses:
                del self._links[owner]
                task = asyncio.get_running_loop().create_task(link.client.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                return True
        return False

    async def close(self) -> None:
        """Give up what is under way."""
        links, self._links = self._links, OrderedDict()
        for link in links.values():
            await link.client.close()
        if self._closing:
            await asyncio.wait(list(self._closing))
