"""Election of the replica that tries to lead: ephemeral sequential nodes, the lowest wins, each watches the one before.

Winning proves nothing: a paused winner may be outlived by its node's successor. The claim of the chain and the fence
of the ledger decide (see `rsm_spark.core.leadership`); the election only keeps the candidates from disturbing each
other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ledger.errors import MetadataError, MetadataSessionLostError, NodeExistsError, NoNodeError
from ledger.ports import MetadataStore
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, service_path
from rsm_spark.core.leadership_ends import ElectionFinding, LeaderEnd

_LOGGER = logging.getLogger(__name__)
_SEQUENCE_DIGITS = 10


def election_path(log_name: str, rsm_root: str = DEFAULT_RSM_ROOT) -> str:
    """Return the parent of the candidates' nodes, `<incarnation>-<sequence, 10 digits>`."""
    return f"{service_path(log_name, rsm_root)}/election"


class Election:
    """One candidate.

    Args:
        store: Session with the metadata store.
        log_name: Name of the log.
        incarnation: Of this process: tells the own node when the reply of its creation was lost.
        rsm_root: Where services live.
        poll_s: Longest time that a watch is trusted; also the pause after a failure.
        until_dead: Returns when the process of this incarnation is gone, or is taken for it, earlier than its session
            tells, and as which of both: its node is then removed for it. None = only sessions tell.

    """

    def __init__(
        self,
        store: MetadataStore,
        log_name: str,
        incarnation: str,
        *,
        rsm_root: str = DEFAULT_RSM_ROOT,
        poll_s: float = 1.0,
        until_dead: Callable[[str], Coroutine[Any, Any, LeaderEnd]] | None = None,
    ) -> None:
        self._store = store
        self._root = election_path(log_name, rsm_root)
        self._incarnation = incarnation
        self._poll_s = poll_s
        self._until_dead = until_dead
        # Watches over the one before; and his node.
        self._death: asyncio.Task[LeaderEnd] | None = None
        self._watched = ""
        # Of the one that stood before this candidate last; None = it stood behind nobody.
        self._finding: ElectionFinding | None = None

    async def win(self) -> ElectionFinding:
        """Join, at the end of the line; when this candidate is the first, return what became of the one before it.

        Failures of the metadata store are waited out; a lost session joins again.
        """
        self._finding = None
        try:
            while True:
                try:
                    name = await self._own_node() or await self._join()
                    if await self._is_first(name):
                        return self._finding or ElectionFinding(LeaderEnd.NOT_IN_LINE)
                except MetadataError as error:
                    _LOGGER.info("election is waiting", extra={"path": self._root, "reason": str(error)})
                    await asyncio.sleep(self._poll_s)
        finally:
            self._watch_over("")

    async def resign(self) -> None:
        """Leave the line, so that the next candidate wins at once. Best effort: a lost session has left already."""
        with contextlib.suppress(MetadataError):
            for name in await self._candidates():
                if name.startswith(self._incarnation):
                    await self._store.delete(f"{self._root}/{name}")

    async def _candidates(self) -> list[str]:
        """Return the names of all candidates, first in line first."""
        try:
            names = await self._store.children(self._root)
        except NoNodeError:
            return []
        return sorted(names, key=lambda name: (name[-_SEQUENCE_DIGITS:], name))

    async def _own_node(self) -> str | None:
        await self._store.sync(self._root)
        return next((name for name in await self._candidates() if name.startswith(self._incarnation)), None)

    async def _join(self) -> str:
        path = f"{self._root}/{self._incarnation}-"
        with contextlib.suppress(NodeExistsError):
            await self._store.create(self._root, parents=True)
        return (await self._store.create(path, ephemeral=True, sequential=True)).rpartition("/")[2]

    async def _is_first(self, name: str) -> bool:
        """Return True if first; else wait until the one before may have gone, and return False."""
        line = await self._candidates()
        if name not in line:
            raise MetadataSessionLostError(f"election node {self._root}/{name} is gone: the session expired")
        before = line.index(name) - 1
        if before < 0:
            return True
        changed = asyncio.Event()
        process = _incarnation(line[before])
        if self._finding is None or self._finding.process != process:
            self._finding = ElectionFinding(LeaderEnd.SESSION_ENDED, process)  # Unless it is found to be gone before.
        death = self._watch_over(line[before])
        if await self._store.exists(f"{self._root}/{line[before]}", watch=changed.set) is not None:
            if death is not None:
                death.add_done_callback(lambda _: changed.set())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await changed.wait()
            if death is not None and death.done() and not death.cancelled() and death.exception() is None:
                self._finding = ElectionFinding(death.result(), process)
                await self._bury(line[before])
        return False

    async def _bury(self, name: str) -> None:
        """Remove the node of a process that is gone; one that is not would be deposed, as by a lost session."""
        _LOGGER.warning("the process before is gone, or stands still", extra={"path": self._root, "node": name})
        with contextlib.suppress(NoNodeError):
            await self._store.delete(f"{self._root}/{name}")

    def _watch_over(self, name: str) -> asyncio.Task[LeaderEnd] | None:
        """Watch the process of this node, and no other."""
        if name != self._watched or self._death is None:
            if self._death is not None:
                self._death.cancel()
            self._watched, self._death = name, None
            if name and self._until_dead is not None:
                self._death = asyncio.get_running_loop().create_task(self._until_dead(_incarnation(name)))
                self._death.add_done_callback(_tell_failure)
        return self._death


def _incarnation(name: str) -> str:
    return name[: -_SEQUENCE_DIGITS - 1]


def _tell_failure(death: asyncio.Task[LeaderEnd]) -> None:
    """Nobody may wait for it any more; without it the end of a process is learned from its session."""
    if not death.cancelled() and (error := death.exception()) is not None:
        _LOGGER.warning("the leader's process cannot be watched: %r", error)
