"""Way of a client to a leader that it does not reach: by a follower, which passes its stream on.

A leader's address has failed when no connection to it has brought an answer for a second, and none could be opened.
Then a follower is called in its stead, the next one where that brings no answer either, and then the leader again.
While a follower is used, the leader is tried beside it, ever less often: when it answers again, the detour is over.
"""

from __future__ import annotations

import asyncio
import logging

from rsm_spark.client.leader_finder import FollowerFinder
from rsm_spark.transport.second_call import reaches
from rsm_spark.transport.security import Security

_FAILED_S = 1.0
"""A leader that was killed is refused at once by its host, and followed by another within this."""
_TRY_FIRST_S = 1.0
_TRY_MAX_S = 30.0

_LOGGER = logging.getLogger(__name__)


class Detours:
    """The detours of one client.

    Args:
        followers: Names the replicas that may pass on.
        log: Name of the log.
        security: TLS and token.

    Attributes:
        follower: Address of the replica that passes on at present; "" = the leader itself is used.
        detour_count: Detours that have brought an answer, since the client was made.

    """

    def __init__(self, followers: FollowerFinder, log: str, security: Security) -> None:
        self.follower = ""
        self.detour_count = 0
        self._followers = followers
        self._log = log
        self._security = security
        self._loop = asyncio.get_running_loop()
        self._leader = ""
        # When the first of the attempts on the leader began that have brought no answer; None = the last one did.
        self._failing_since_s: float | None = None
        self._tried: set[str] = set()
        self._is_told = False

    def reached(self, by: str) -> None:
        """Take note of an answer of the leader, `by` a follower ("" = directly)."""
        if not by:
            self._failing_since_s = None
            self._tried.clear()
            self._is_told = False
        elif not self._is_told:
            self._is_told = True
            self.detour_count += 1
            _LOGGER.warning(
                "the leader at %s is not reached from here: replica %s passes commands on", self._leader, by,
                extra={"log": self._log},
            )  # fmt: skip

    def lost(self, leader: str, by: str, began_s: float) -> None:
        """Take note that an attempt on a leader, `by` a follower or directly, that began then has brought nothing."""
        if leader != self._leader:
            self._leader = leader
            self._failing_since_s = None
            self._tried.clear()
        if by:
            self._tried.add(by)
        elif self._failing_since_s is None:
            self._failing_since_s = began_s

    async def way_to(self, leader: str) -> str:
        """Return the follower to call in the stead of this leader; "" = the leader itself is to be called."""
        self.follower = ""
        since_s = self._failing_since_s
        if leader != self._leader or since_s is None or self._loop.time() - since_s < _FAILED_S:
            return ""
        found = await self._followers.find_followers(_nothing)
        self.follower = next((one for one in found if one != leader and one not in self._tried), "")
        if not self.follower:
            self._tried.clear()
        return self.follower

    async def until_reached(self, leader: str, framed: str) -> None:
        """Return when a leader answers directly.

        Args:
            leader: Its address.
            framed: Of its framed port; "" = over gRPC.

        """
        pause_s = _TRY_FIRST_S
        while not await self.reaches(leader, framed):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _TRY_MAX_S)
        self._failing_since_s = None
        _LOGGER.warning("the leader at %s is reached again", leader, extra={"log": self._log})

    async def reaches(self, leader: str, framed: str) -> bool:
        """Return whether a replica lets this client in."""
        return await reaches(leader, framed, self._security)


def _nothing() -> None:
    """Take no note: followers are looked for when one is needed."""
