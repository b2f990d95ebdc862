"""Answers of a console: the view, its history, one log in full, and events whenever a part of the view changes.

    id: 1760000000000
    event: copies
    data: {"at_ms":1760000000000}

An event names a part of the view; the page reads what it shows of it. The id is when that was: who comes again with
`since` is told all that has changed from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ledger.client.client import LedgerClient
from ledger.http.pools import Holder
from ledger.http.problems import HttpProblem, retry_after
from ledger.rights.table import Right, may
from rsm_spark.console.calls import ConsoleCall, ConsoleRoute, check_seen, log_of
from rsm_spark.console.console_turns import ConsoleTurns
from rsm_spark.console.core.callers import own_view, sees_all
from rsm_spark.console.core.view import SECTIONS, ConsoleView, LogRow, changed_sections
from rsm_spark.console.log_look import PARTITIONED
from rsm_spark.core.leadership_ends import described_end
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.past_leaderships import past_leaderships

_FRESH_S = 10.0
_LEADERS_MAX = 20
_LEDGERS_MAX = 100
_DETAILS_AT_ONCE = 8
_DETAILS_OF_CALLER = 6
_DETAILS_S = 20.0
_READMIT_S = 5.0
_PACE_S = 0.25
_NAME_MAX = 200
_TASKS = "tasks"
_HISTORY = "history"


class HistoryQuery(msgspec.Struct, frozen=True):
    """Begin of what is wanted, ms since 1970, and the log of which; "" = of the cluster alone."""

    since_ms: Annotated[int, Meta(ge=0, le=2**53)] = 0
    log: Annotated[str, Meta(max_length=_NAME_MAX)] = ""


class HistoryView(msgspec.Struct, frozen=True):
    """Columns of a history, all of one length; -1 where a log was not known.

    `revision` and `behind` are of the log that was asked for, empty if none was. The columns of the whole cluster are
    empty for who may not see it.
    """

    at_ms: list[int]
    bookies: list[int]
    missing: list[int]
    lacking: list[int]
    lacking_entries: list[int]
    warnings: list[int]
    waiting: list[int]
    unseen: list[bool]
    revision: list[int]
    behind: list[int]


class LeaderRow(msgspec.Struct, frozen=True):
    """One leadership of a log; `why` = how the one before it ended."""

    epoch: int
    replica_id: str
    since_ms: int
    last_entry_ms: int
    first_revision: int
    last_revision: int
    change: str
    why: str


class ChainLedgerRow(msgspec.Struct, frozen=True):
    """One ledger of a log's chain; -1 and 0: it is written, or not known to be closed."""

    ledger_id: int
    epoch: int
    created_ms: int
    first_revision: int
    last_revision: int
    last_entry_ms: int
    length: int


class ConsoleLog(msgspec.Struct, frozen=True):
    """One log in full: what the view has of it, its newest ledgers, and who led it, newest first.

    `leaders_problem` says why who led is not known.
    """

    log: LogRow
    ledgers: list[ChainLedgerRow]
    ledger_count: int
    leaders: list[LeaderRow]
    leaders_problem: str


class SinceQuery(msgspec.Struct, frozen=True):
    """Moment from which on changes are told, ms since 1970; 0 = from now on."""

    since: Annotated[int, Meta(ge=0, le=2**53)] = 0


class ConsoleRequests:
    """See the module.

    Args:
        client: Of the ledgers.
        rsm_root: Root of the logs.

    """

    def __init__(self, client: LedgerClient, rsm_root: str) -> None:
        self._client = client
        self._root = rsm_root
        self._turns = ConsoleTurns(
            "looks at one log", at_once=_DETAILS_AT_ONCE, of_caller=_DETAILS_OF_CALLER, answer_s=_DETAILS_S
        )

    def routes(self) -> list[ConsoleRoute]:
        """Return what is served."""
        return [
            ConsoleRoute("/api/v1/view", self.view, Right.STATE_READ),
            ConsoleRoute("/api/v1/history", self.history, Right.STATE_READ, HistoryQuery),
            ConsoleRoute("/api/v1/logs/{log}", self.log, Right.STATE_READ),
            ConsoleRoute("/api/v1/events", self.events, Right.STATUS, SinceQuery),
        ]

    async def view(self, call: ConsoleCall) -> ConsoleView:
        """Tell all of the view that the caller may see."""
        return own_view(await call.state.watcher.fresh(_FRESH_S), call.caller.principal)

    async def history(self, call: ConsoleCall) -> HistoryView:
        """Tell the last day, a minute after the other."""
        query: HistoryQuery = call.query
        principal = call.caller.principal
        if query.log:
            check_seen(call, query.log)
        samples = call.state.watcher.history.since(query.since_ms)
        whole = samples if sees_all(principal) else []
        logs = [one.logs.get(query.log, (-1, -1)) for one in samples] if query.log else []
        return HistoryView(
            at_ms=[one.at_ms for one in samples],
            bookies=[one.bookies for one in whole],
            missing=[one.missing for one in whole],
            lacking=[one.lacking for one in whole],
            lacking_entries=[one.lacking_entries for one in whole],
            warnings=[one.warnings for one in whole],
            waiting=[one.waiting for one in whole],
            unseen=[one.problem for one in samples],
            revision=[revision for revision, _ in logs],
            behind=[behind for _, behind in logs],
        )

    async def log(self, call: ConsoleCall) -> ConsoleLog:
        """Tell one log in full; that asks bookies, so few are asked for at a time."""
        name = log_of(call)
        view = await call.state.watcher.fresh(_FRESH_S)
        row = next((one for one in view.logs if one.log == name), None)
        if row is not None and row.machine == PARTITIONED:
            return ConsoleLog(row, [], 0, [], f"rsm log info {name} shows its partitions")
        async with self._turns.turn(call.caller.name):
            chain, _ = await ChainStore(self._client.store, name, self._root).read()
            leaders, problem = await self._leaders(name)
        ledgers = [
            ChainLedgerRow(
                one.ledger_id, one.leader_epoch, one.created_ms, one.first_revision, -1, 0, 0
            ) if one.closed is None else
            ChainLedgerRow(
                one.ledger_id, one.leader_epoch, one.created_ms, one.first_revision, one.closed.last_revision,
                one.closed.last_entry_ms, one.closed.length,
            )
            for one in chain.ledgers[-_LEDGERS_MAX:]
        ]  # fmt: skip
        shown = row or LogRow(log=name, log_id=chain.log_id, ledger_count=len(chain.ledgers))
        return ConsoleLog(shown, ledgers[::-1], len(chain.ledgers), leaders, problem)

    async def _leaders(self, name: str) -> tuple[list[LeaderRow], str]:
        rows: list[LeaderRow] = []
        try:
            async with asyncio.timeout(_DETAILS_S / 2):
                async for one in past_leaderships(self._client, name, self._root, _LEADERS_MAX):
                    why = "" if one.before_ended is None else described_end(one.before_ended, one.before_said)
                    rows.append(
                        LeaderRow(
                            one.epoch, one.replica_id or "", one.since_ms, one.last_entry_ms or 0, one.first_revision,
                            -1 if one.last_revision is None else one.last_revision, one.change.value, why,
                        )
                    )  # fmt: skip
        except TimeoutError:
            return rows[::-1], "the bookies that hold its first records do not answer"
        return rows[::-1], ""

    async def events(self, call: ConsoleCall) -> None:
        """Stream what changes, until one side leaves or the caller may no more."""
        if call.scope["method"] == "HEAD":
            raise HttpProblem(405, "method-not-allowed", "a stream has no length", headers=((b"allow", b"GET"),))
        principal, state = call.caller.principal, call.state
        if not (may(principal, Right.TASKS_READ) or may(principal, Right.STATE_READ)):
            raise HttpProblem(403, "not-allowed", f"{principal} sees neither logs nor tasks: nothing is told to it")
        holder: Holder = state.holder(call.caller, call.scope)
        if not (state.streams.has(1) and state.streams.has_for(1, holder)):
            raise HttpProblem(
                429, "too-many-streams", "as many streams of events are open as may be, here or of this token: close "
                "some", headers=retry_after(5),
            )  # fmt: skip
        state.streams.take(1, holder)
        gone = asyncio.get_running_loop().create_task(_gone(call))
        try:
            await _Told(call, gone).run()
        finally:
            state.streams.give(1, holder)
            gone.cancel()
            await asyncio.wait([gone])


class _Told:
    """One stream of events."""

    def __init__(self, call: ConsoleCall, gone: asyncio.Task[None]) -> None:
        self._call = call
        self._gone = gone
        # What was told of last, to who sees a part of the view: others' changes are none of its.
        self._shown = ConsoleView()

    async def run(self) -> None:
        call, state = self._call, self._call.state
        watcher = state.watcher
        query: SinceQuery = call.query
        since = query.since or watcher.view.at_ms + 1
        if not query.since:
            self._shown = own_view(watcher.view, call.caller.principal)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"),
                   (b"x-content-type-options", b"nosniff"), (b"x-accel-buffering", b"no")]  # fmt: skip
        await call.send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await self._write(b"retry: 1000\n: heartbeat\n\n")
            with watcher.waiting() as event, contextlib.suppress(HttpProblem):
                await self._tell(event, since)
            async with asyncio.timeout(1.0):
                await call.send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            # The reader takes nothing any more.
            abort = call.scope.get("extensions", {}).get("rsm.abort")
            if abort is not None:
                abort()

    async def _tell(self, event: asyncio.Event, since: int) -> None:
        """Tell until one side leaves.

        Raises:
            HttpProblem: The token was taken back, or means something else now.
            TimeoutError: The reader takes nothing.

        """
        call, state = self._call, self._call.state
        silent_s = state.clock_s()
        while not self._gone.done() and not state.closing.done():
            event.clear()
            at_ms = state.watcher.view.at_ms
            changed = self._changed(since)
            if changed:
                await self._write(b"".join(_event(name, at_ms) for name in changed))
                since, silent_s = at_ms + 1, state.clock_s()
                await asyncio.sleep(_PACE_S)
            elif state.clock_s() - silent_s >= state.settings.http.heartbeat_s:
                await self._write(b": heartbeat\n\n")
                silent_s = state.clock_s()
            told = asyncio.get_running_loop().create_task(event.wait())
            awaited: list[asyncio.Future[Any]] = [told, self._gone, state.closing]
            await asyncio.wait(awaited, timeout=_READMIT_S, return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            state.readmit(call.caller, call.headers, call.scope)

    def _changed(self, since: int) -> list[str]:
        """Return the parts that have changed for the caller since a moment, or since it was told last."""
        principal, watcher = self._call.caller.principal, self._call.state.watcher
        names = watcher.changed_since(since)
        if sees_all(principal):
            return names
        if not may(principal, Right.STATE_READ):
            return [name for name in names if name == _TASKS]
        before, self._shown = self._shown, own_view(watcher.view, principal)
        own = changed_sections(before, self._shown) | {name for name in names if name == _HISTORY}
        return [name for name in SECTIONS if name in own]

    async def _write(self, text: bytes) -> None:
        async with asyncio.timeout(self._call.state.settings.http.write_s):
            await self._call.send({"type": "http.response.body", "body": text, "more_body": True})


def _event(name: str, at_ms: int) -> bytes:
    return b'id: %d\nevent: %s\ndata: {"at_ms":%d}\n\n' % (at_ms, name.encode(), at_ms)


async def _gone(call: ConsoleCall) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
