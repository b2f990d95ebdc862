"""Replicas that tell a client of changes: which one is asked, and which next."""

from __future__ import annotations

from rsm_spark.client.leader_finder import FollowerFinder, FoundReplica, LeaderFinder
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import Transport, transport_of


class WatchedReplicas:
    """Replicas that watches may use.

    Args:
        finder: Names the leader.
        followers: Names replicas to prefer over it; None = the leader is preferred.
        security: TLS and token.
        transport: See `Transport`; None = as the environment says.

    """

    def __init__(
        self,
        finder: LeaderFinder,
        followers: FollowerFinder | None,
        security: Security,
        transport: Transport | None = None,
    ) -> None:
        self._finder = finder
        self._followers = followers
        self._transport = transport_of(transport)
        self.security = security

    @property
    def trouble(self) -> str:
        """Reason why no replica was found last."""
        return self._finder.trouble

    async def pick(self, attempt: int) -> str | None:
        """Return the address of a replica to try, another one at each attempt; None if none is known."""
        leader = await self._finder.find(_ignore)
        others: list[str] = []
        if self._followers is not None:
            others = await self._followers.find_followers(_ignore)
        elif attempt and isinstance(self._finder, FoundReplica):
            others = await self._finder.find_followers(_ignore)
        found = [] if leader is None else [leader]
        found = others + found if self._followers is not None else found + others
        return found[attempt % len(found)] if found else None

    async def find_framed(self, address: str) -> str:
        """Return the framed port of a replica; "" = it has none, or it is not to be used."""
        return await self._finder.find_framed(address) if self._transport == "framed" else ""


def _ignore() -> None:
    """Look again when the stream ends, not before."""
