"""An act about a fork: half of the flights' log becomes a log of its own, which shares ledgers with its origin."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ledger.client.client import LedgerClient
from rsm_demo.accounts import accounts_of, map_digest
from rsm_demo.answers import AnswerSource, from_leader
from rsm_demo.stack import FORKED_LOG, LOG, Stack
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.past import rows_at

_PART = 0.5
_NEW_AIRCRAFT = b"N-FORKED"


class ForkedState(msgspec.Struct):
    """Part of the last JSON line about the fork.

    Attributes:
        ok: It holds what its origin held at that revision, and neither has what was written to the other since.
        revision: Where it ends; the end of an entry.
        seconds: That the fork took.
        shared: Ledgers that both use.
        copied_bytes: Of an open ledger.
        flights_then: Flights that its leader has.
        flights_now: Flights that the leader of the origin has.
        equals_past: Its rows are those that the origin's log had at that revision.

    """

    ok: bool
    revision: int
    seconds: float
    shared: int
    copied_bytes: int
    flights_then: int
    flights_now: int
    equals_past: bool


class ForkAct:
    """One run of it.

    Args:
        stack: The processes; replicas of the flights' log run.
        tell: Called with what happened.

    """

    def __init__(self, stack: Stack, tell: Callable[[str], None]) -> None:
        self._stack = stack
        self._tell = tell

    async def run(self, newest_revision: int) -> ForkedState:
        """Fork the log at half of it, serve the fork, compare.

        Args:
            newest_revision: Of the log, at least.

        """
        stack = self._stack
        said = await stack.fork(max(1, int(newest_revision * _PART)))
        self._tell(
            f"a fork of the flights at revision {said['revision']:,}, in {said['seconds']:.2f} s: {said['shared']} "
            f"ledgers are shared, {said['bytes'] / 1e6:,.1f} MB were copied"
        )
        async with await LedgerClient.connect(stack.metadata_uri) as client:
            pairs = [(row.key, row.value) for row in await rows_at(client, LOG, said["revision"])]
        past = AnswerSource(accounts_of(pairs), map_digest(pairs))
        await stack.start_forked()
        then, now = await from_leader(stack.metadata_uri, FORKED_LOG), await from_leader(stack.metadata_uri, LOG)
        for name, source in (("fork", then), ("origin", now)):
            self._tell(f"its leader's answer, {name}: {len(source.rows):,} aircraft, {_flights(source):,} flights")
        async with await MapClient.connect(FORKED_LOG, stack.metadata_uri) as fork:
            await fork.put(_NEW_AIRCRAFT, b'["", 1, 0, 0]')
            is_new = await fork.get(_NEW_AIRCRAFT) is not None
        async with await MapClient.connect(LOG, stack.metadata_uri) as origin:
            is_apart = is_new and await origin.get(_NEW_AIRCRAFT) is None
        await stack.stop_forked()
        equal = past == then
        self._tell(
            "the fork is what the log was then, and what is written to it is its own" if equal else "they differ"
        )
        return ForkedState(
            equal and is_apart and _flights(then) < _flights(now),
            said["revision"],
            said["seconds"],
            said["shared"],
            said["bytes"],
            _flights(then),
            _flights(now),
            equal,
        )


def _flights(source: AnswerSource) -> int:
    return sum(row[1] for row in source.rows.values())
