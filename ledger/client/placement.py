"""Bookies for ledgers: who is registered, what is known of each, and who answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from ledger.client.answers import Answered, AnswerQueue
from ledger.client.pool import ConnectionPool
from ledger.core.placement import BookieState, choose_ensemble, choose_replacement, ranked_bookies
from ledger.core.placement_rule import ClusterPlacement, choose_by_rule, choose_replacement_by_rule
from ledger.wire.codes import INFO_FLAG_FREE_DISK, Status
from ledger.wire.packets import InfoRequest, InfoResponse
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.placement_rules import placement_in_force

_ANSWER_TIMEOUT_S: Final = 1.0
"""A bookie that does not say within this time how much room it has is not chosen to replace another."""
_SUSPECT_ANSWER_TIMEOUT_S: Final = 0.25
"""The same for a suspect bookie, of which a new ensemble might do without."""


class Placement:
    """Chooses bookies by the cluster's rule, and as the settings say: `placement`, `racks`.

    A bookie that was killed stays registered until its session times out. So new ensembles leave out those that this
    client fails to reach, as long as enough others are there; and a replacement has to answer before it is used.
    """

    def __init__(self, ledgers: LedgerStore, pool: ConnectionPool, rng: random.Random) -> None:
        self._ledgers = ledgers
        self._pool = pool
        self._rng = rng
        # Bookie -> when it was asked (loop time), answered or not; and what it said last.
        self._asked_at: dict[str, float] = {}
        self._free_bytes: dict[str, int] = {}
        # Bookie -> when a writer last gave it up (loop time): it may say how much room it has, and store nothing.
        self._silent_at: dict[str, float] = {}

    async def ensemble(self, count: int, write_quorum: int, count_min: int | None = None) -> list[str]:
        """Choose the bookies of a new ledger.

        Args:
            count: Ensemble size.
            write_quorum: Of the ledger.
            count_min: Take fewer, down to this number, where bookies are missing, or are suspect and do not answer at
                once; None = `count`.

        Raises:
            NotEnoughBookiesError: Fewer than these are writable.
            MetadataError: The metadata store does not answer.

        """
        states = await self._states()
        if count_min is not None and count_min < count:
            states = await self._that_answer(states, count, count_min)
            count = max(count_min, min(count, len(states)))
        rule = await self._rule()
        if rule is not None:
            ranked = ranked_bookies(states, self._pool.settings.placement, self._rng)
            return choose_by_rule(count, ranked, rule, min(write_quorum, count))
        return choose_ensemble(
            count,
            states,
            policy=self._pool.settings.placement,
            rng=self._rng,
            write_quorum=write_quorum,
        )

    async def replacement(
        self, position: int, ensemble: Sequence[str], excluded: Collection[str], write_quorum: int
    ) -> str | None:
        """Choose a bookie that answers, for a place in an ensemble; None if there is none.

        Args:
            position: The place.
            ensemble: As it is: its members are not chosen.
            excluded: Others that are not chosen.
            write_quorum: Of the ledger.

        Raises:
            MetadataError: The metadata store does not answer.

        """
        states = await self._states()
        rule = await self._rule()
        silent: list[str] = []
        while True:
            chosen = self._choose(states, rule, position, ensemble, [*excluded, *silent], write_quorum)
            if chosen is None or await self._ask([chosen]):
                return chosen
            silent.append(chosen)

    def _choose(
        self,
        states: Sequence[BookieState],
        rule: ClusterPlacement | None,
        position: int,
        ensemble: Sequence[str],
        excluded: Collection[str],
        write_quorum: int,
    ) -> str | None:
        policy = self._pool.settings.placement
        if rule is not None:
            ranked = ranked_bookies(states, policy, self._rng)
            return choose_replacement_by_rule(
                ranked, rule, ensemble=ensemble, excluded=excluded, position=position, write_quorum=write_quorum
            )
        return choose_replacement(
            states,
            ensemble=ensemble,
            excluded=excluded,
            policy=policy,
            rng=self._rng,
            position=position,
            write_quorum=write_quorum,
        )

    async def _rule(self) -> ClusterPlacement | None:
        return await placement_in_force(self._ledgers) if self._pool.settings.keeps_rule else None

    async def _states(self) -> list[BookieState]:
        registered = await self._ledgers.writable_bookies()
        settings = self._pool.settings
        if settings.placement == "free-space":
            now = asyncio.get_running_loop().time()
            before = now - settings.bookie_info_interval_s
            stale = [bookie_id for bookie_id in registered if self._asked_at.get(bookie_id, before) <= before]
            self._asked_at.update(dict.fromkeys(stale, now))
            await self._ask(stale)
        suspects = self._pool.suspects()
        racks = settings.racks
        return [
            BookieState(
                bookie_id,
                racks.get(bookie_id) or racks.get(bookie_id.rpartition(":")[0]),
                self._free_bytes.get(bookie_id),
                bookie_id in suspects,
            )
            for bookie_id in registered
        ]

    def suspect(self, bookie_id: str) -> None:
        """Leave a bookie that stores nothing out of new ensembles for a while, as long as enough others are there."""
        self._silent_at[bookie_id] = asyncio.get_running_loop().time()
        self._pool.suspect(bookie_id)

    async def count(self) -> int:
        """Return how many bookies are writable, without the suspects that do not answer at once.

        Raises:
            MetadataError: The metadata store does not answer.

        """
        states = await self._states()
        return len(await self._that_answer(states, len(states), 0))

    async def _that_answer(self, states: list[BookieState], count: int, count_min: int) -> list[BookieState]:
        """Leave out the suspects that do not answer, if they would be needed and are more than can be done without."""
        trusted = [state for state in states if not state.is_suspect]
        suspects = [state for state in states if state.is_suspect]
        if len(trusted) >= count or not suspects:
            return states
        before = asyncio.get_running_loop().time() - self._pool.settings.quarantine_s
        asked = [state.bookie_id for state in suspects if self._silent_at.get(state.bookie_id, before) <= before]
        answered = await self._ask(asked, _SUSPECT_ANSWER_TIMEOUT_S)
        found = trusted + [state for state in suspects if state.bookie_id in answered]
        return found if len(found) >= count_min else states

    async def _ask(self, bookies: Sequence[str], timeout_s: float = _ANSWER_TIMEOUT_S) -> frozenset[str]:
        """Ask all at once how much room they have; return those that have answered in time, whatever they said.

        For look-ups only.
        """
        answers = AnswerQueue()
        for bookie_id in bookies:
            self._pool.ask(bookie_id, InfoRequest(self._pool.take_txns(1), INFO_FLAG_FREE_DISK), (answers, None))
        waiting = len(bookies)
        found: list[str] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while waiting:
                    batch = await answers.next_batch()
                    waiting -= len(batch)
                    found += [answered.bookie_id for answered in batch if self._note(answered)]
        return frozenset(found)

    def _note(self, answered: Answered) -> bool:
        response = answered.response
        if isinstance(response, InfoResponse) and response.status == Status.EOK and response.free_bytes is not None:
            self._free_bytes[answered.bookie_id] = response.free_bytes
        return response is not None
