"""Listens to the beats of other replicas: the asyncio shell around `rsm_spark.core.beats`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ledger.errors import MetadataError
from rsm_spark.core.beats import AskPeers, BeatAnswer, BeatRules, BeatWatcher
from rsm_spark.errors import ConnectionLostError
from rsm_spark.log.member import Member
from rsm_spark.runtime.context import ReplicaContext

Result = TypeVar("Result")

_LOGGER = logging.getLogger(__name__)
_ASK_S_MAX = 0.2
_LISTEN_AGAIN_S = 0.2
_LISTEN_AGAIN_S_MAX = 2.0


class BeatPeers(Protocol):
    """Connections to the other replicas for their beats. The kernel decides, whoever wires it connects."""

    async def listen(self, address: str, incarnation: str, on_beat: Callable[[], None]) -> None:
        """Call `on_beat` for each beat of a process, until it cannot be heard any more.

        Raises:
            ConnectionLostError: It is gone, does not answer, or is another process than that.

        """
        ...

    async def ask(self, address: str, incarnation: str, timeout_s: float) -> BeatAnswer:
        """Ask a replica what it hears of another process.

        Raises:
            ConnectionLostError: It is gone, or does not answer in time.

        """
        ...


class BeatListener:
    """One replica's ears.

    Args:
        context: Of the replica.
        peers: Where to listen.

    """

    def __init__(self, context: ReplicaContext, peers: BeatPeers) -> None:
        settings = context.settings
        self._rules = BeatRules(look_s=settings.beat_s / 2, silence_s=settings.beat_silence_s)
        self._context = context
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._watcher = BeatWatcher(self._rules, self._loop.time())
        self._before: str | None = None
        self._silent: asyncio.Future[None] | None = None
        self._listening: dict[str, asyncio.Task[None]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Listen to the leader, and look for silence; until cancelled."""
        try:
            while True:
                now = self._loop.time()
                self._attend(self._watcher.listen(self._before, self._leader(), now))
                question = self._watcher.look(now)
                if question is not None:
                    self._asking = self._loop.create_task(self._ask(question))
                await asyncio.sleep(self._rules.look_s)
        finally:
            self._attend(())
            if self._asking is not None:
                self._asking.cancel()

    async def until_silent(self, incarnation: str) -> None:
        """Return when this process, the one before in the line, leads and is silent, and the others agree."""
        silent = self._silent = self._loop.create_future()
        self._before = incarnation
        try:
            await silent
        finally:
            if self._silent is silent:
                self._before = None

    def answer(self, incarnation: str) -> BeatAnswer:
        """Return what is heard of a process, for another replica that asks."""
        return self._watcher.answer(incarnation, self._loop.time())

    def _leader(self) -> str | None:
        """Return who leads instead of this replica, as far as known."""
        leader, me = self._context.leader, self._context.me
        return None if leader is None or leader.incarnation == me.incarnation else leader.incarnation

    def _attend(self, wanted: Sequence[str]) -> None:
        """Listen to these processes and no others."""
        for incarnation in [one for one in self._listening if one not in wanted]:
            self._listening.pop(incarnation).cancel()
        for incarnation in wanted:
            if incarnation not in self._listening:
                self._listening[incarnation] = self._loop.create_task(self._listen(incarnation))

    async def _listen(self, incarnation: str) -> None:
        pause_s = _LISTEN_AGAIN_S
        while True:
            with contextlib.suppress(MetadataError, ConnectionLostError):
                for member in await self._members():
                    if member.incarnation == incarnation:
                        await self._peers.listen(member.address, incarnation, partial(self._on_beat, incarnation))
            await asyncio.sleep(pause_s * self._context.rng.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LISTEN_AGAIN_S_MAX)

    def _on_beat(self, incarnation: str) -> None:
        self._watcher.on_beat(incarnation, self._loop.time())

    async def _members(self) -> list[Member]:
        return [member for member in await self._context.discovery.members() if member.address]

    async def _ask(self, question: AskPeers) -> None:
        """Ask all other live replicas at once."""
        answers: list[BeatAnswer | None] = [None]
        with contextlib.suppress(MetadataError):
            known = (question.process, self._context.me.incarnation)
            others = [member for member in await self._members() if member.incarnation not in known]
            answers = list(await asyncio.gather(*(self._ask_one(other, question.process) for other in others)))
        if not self._watcher.on_answers(question, answers, self._loop.time()):
            return
        _LOGGER.warning(
            "process %s is silent, none of %d other replicas hears it: it is taken out of the election",
            question.process,
            len(answers),
            extra=self._context.log_extra,
        )
        if self._before == question.process and self._silent is not None and not self._silent.done():
            self._silent.set_result(None)

    async def _ask_one(self, member: Member, incarnation: str) -> BeatAnswer | None:
        try:
            async with asyncio.timeout(_ASK_S_MAX):
                return await self._peers.ask(member.address, incarnation, _ASK_S_MAX)
        except (ConnectionLostError, TimeoutError):
            return None


async def until_any(*waits: Coroutine[Any, Any, Result]) -> Result:
    """Return what the first of these coroutines to end returns; end the others."""
    tasks = [asyncio.get_running_loop().create_task(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first, *_ = [task.result() for task in tasks if task in done]
        return first
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
