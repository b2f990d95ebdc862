"""Agreement of leaders and consumers in every order of their steps: the real code, one call of the store at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from ledger.errors import BadVersionError, NodeExistsError, NoNodeError
from ledger.ports import ANY_VERSION, Versioned
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain, chain_path, decode_chain, encode_chain
from rsm_spark.core.trimming import ConsumerHold
from rsm_spark.errors import NotLeaderError
from rsm_spark.log import consumers as module
from rsm_spark.log import trim_notice
from rsm_spark.log.consumers import ConsumerError, LogConsumers, TrimNotice, trimmed_revision
from rsm_spark.log.trim_notice import agreed_trim

LOG_ID = "ab" * 16
PATH = chain_path("orders", "/rsm")


class _Steps:
    """A tree of nodes, each of whose calls waits for its turn; `turns` says whose is next, 0 = the first actor's."""

    def __init__(self, turns: list[int]) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.choices: list[int] = []  # How many actors could go, at each step.
        self._turns = turns
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._running = 0
        self._actor: dict[asyncio.Task[Any], int] = {}

    async def run(self, actors: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Run actors to their ends."""
        loop = asyncio.get_running_loop()
        self._running = len(actors)
        tasks = []
        for number, actor in enumerate(actors):
            task = loop.create_task(self._whole(actor()))
            self._actor[task] = number
            tasks.append(task)
        await asyncio.gather(*tasks)

    async def _whole(self, work: Awaitable[None]) -> None:
        try:
            await work
        finally:
            self._running -= 1
            self._go()

    async def turn(self) -> None:
        """Wait for the turn of the actor that calls."""
        task = asyncio.current_task()
        if task is None or task not in self._actor:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting[self._actor[task]] = future
        self._go()
        await future

    def _go(self) -> None:
        if not self._waiting or len(self._waiting) < self._running:
            return
        step, ready = len(self.choices), sorted(self._waiting)
        chosen = self._turns[step] % len(ready) if step < len(self._turns) else 0
        self.choices.append(len(ready))
        self._waiting.pop(ready[chosen]).set_result(None)

    # ---- MetadataStore, as far as it is asked

    async def sync(self, _path: str) -> None:
        """Do nothing: there is one server."""

    async def get(self, path: str, **_options: Any) -> Versioned:
        await self.turn()
        if path not in self.nodes:
            raise NoNodeError(path)
        return Versioned(*self.nodes[path])

    async def exists(self, path: str, **_options: Any) -> int | None:
        await self.turn()
        return self.nodes[path][1] if path in self.nodes else None

    async def children(self, path: str, **_options: Any) -> list[str]:
        await self.turn()
        if path not in self.nodes:
            raise NoNodeError(path)
        return sorted(name.removeprefix(f"{path}/") for name in self.nodes if name.startswith(f"{path}/"))

    async def create(self, path: str, value: bytes = b"", *, parents: bool = False, **_options: Any) -> str:
        await self.turn()
        if path in self.nodes:
            raise NodeExistsError(path)
        above = path.rpartition("/")[0]
        if parents and "/consumers/" in above:
            self.nodes.setdefault(above, (b"", 0))
        self.nodes[path] = value, 0
        return path

    async def set(self, path: str, value: bytes, version: int) -> int:
        await self.turn()
        if path not in self.nodes:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, self.nodes[path][1]):
            raise BadVersionError(path)
        self.nodes[path] = value, self.nodes[path][1] + 1
        return self.nodes[path][1]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.turn()
        if path not in self.nodes:
            raise NoNodeError(path)
        del self.nodes[path]


def _chain(*ends: int, epoch: int = 1, first: int = 1) -> LogChain:
    found = []
    for number, end in enumerate(ends):
        found.append(ChainLedger(number + 1, 0, epoch, first, ClosedEnd(0, end, 0, 10, "00" * 32)))
        first = end + 1
    return LogChain(LOG_ID, 1, epoch, None, (*found, ChainLedger(99, 0, epoch, first)))


class _Leader:
    """A leader that claims the chain, then trims up to `wanted` as far as consumers let go."""

    def __init__(self, store: Any, epoch: int, wanted: int) -> None:
        self._store, self._epoch, self._wanted = store, epoch, wanted
        self._consumers = LogConsumers(store, LOG_ID)

    def _plan(self, chain: LogChain, holds: tuple[ConsumerHold, ...]) -> int:
        least = min([self._wanted, *(hold.revision for hold in holds)])
        ends = [ledger.closed.last_revision for ledger in chain.ledgers if ledger.closed is not None]
        return max([0, *(end for end in ends if end <= least)])

    async def run(self) -> None:
        value, version = await self._store.get(PATH)
        chain = decode_chain(value, log_name="orders")
        if chain.leader_epoch > self._epoch:
            return
        claimed = LogChain(LOG_ID, 1, self._epoch, None, chain.ledgers)
        try:
            version = await self._store.set(PATH, encode_chain(claimed), version)
            _, told = await agreed_trim(self._consumers, self._epoch, lambda holds: self._plan(claimed, holds))
            left = tuple(one for one in claimed.ledgers if one.closed is None or one.closed.last_revision > told)
            await self._store.set(PATH, encode_chain(LogChain(LOG_ID, 1, self._epoch, None, left)), version)
        except (BadVersionError, NotLeaderError):
            return  # A later leader has claimed the chain.


def _all_orders(reader: type[LogConsumers] = LogConsumers) -> tuple[list[str], int]:
    """Run one leader and one consumer in every order of their steps; return what broke, and the number of orders."""
    broken: list[str] = []
    turns: list[int] = []
    count = 0
    while not count or turns:
        count += 1
        steps = _Steps(turns)
        problem = asyncio.run(_one(steps, 1, reader))
        if problem:
            broken.append(problem)
        turns = [*turns, *[0] * (len(steps.choices) - len(turns))]
        while turns and turns[-1] + 1 >= steps.choices[len(turns) - 1]:
            turns.pop()
        if turns:
            turns[-1] += 1
    return broken, count


def _drawn_orders(count: int) -> list[str]:
    """Run two leaders and one consumer in orders that are drawn; return what broke."""
    rng = random.Random(1)
    found = [asyncio.run(_one(_Steps([rng.randrange(6) for _ in range(60)]), 2, LogConsumers)) for _ in range(count)]
    return [problem for problem in found if problem]


async def _one(steps: Any, leaders: int, reader: type[LogConsumers]) -> str:
    steps.nodes[PATH] = encode_chain(_chain(10, 20, 30)), 0
    held: list[int] = []

    async def consume() -> None:
        consumers = reader(steps, LOG_ID, wall_ms=lambda: 0)
        try:
            held.append(await consumers.register("orders", "reader", 12, what="a reader"))
        except ConsumerError:
            return

    actors = [_Leader(steps, number + 1, 10 * (number + 3 - leaders)).run for number in range(leaders)]
    await steps.run([consume, *actors])
    gone = trimmed_revision(decode_chain(steps.nodes[PATH][0], log_name="orders"))
    return f"held is all behind {held[0]}, up to {gone} is gone" if held and gone > held[0] else ""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that would wait gives up: what it waits for is another order of the same steps."""
    monkeypatch.setattr(module, "_NOTICE_PAUSE_S", 0)
    monkeypatch.setattr(module, "_NOTICE_LOOKS", 2)


def test_one_leader_never_takes_what_a_consumer_was_told_to_hold_in_any_order_of_steps() -> None:
    broken, count = _all_orders()
    assert broken == []
    assert count > 100


def test_a_deposed_leader_never_takes_back_what_its_successor_has_told() -> None:
    assert _drawn_orders(2_000) == []


async def _never_asks_again(
    consumers: LogConsumers, epoch: int, plan: trim_notice.Plan
) -> tuple[tuple[ConsumerHold, ...], int]:
    holds = await trim_notice._holds(consumers)
    wanted = plan(holds)
    await trim_notice._told(consumers, TrimNotice(epoch, wanted))
    return holds, wanted


async def _told_over_anybody(consumers: LogConsumers, notice: TrimNotice) -> bool:
    _, version = await consumers.notice()
    if version is None and not notice.revision:
        return False
    try:
        await consumers.tell(notice, ANY_VERSION if version is not None else None)
    except (BadVersionError, NodeExistsError, NoNodeError):
        return False
    return notice.revision > 0


def test_a_leader_that_asks_only_before_it_tells_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "agreed_trim", _never_asks_again)
    assert _all_orders()[0]


class _Deaf(LogConsumers):
    async def notice(self) -> tuple[TrimNotice, int | None]:
        return TrimNotice(), None


def test_a_consumer_that_does_not_read_the_notice_is_found() -> None:
    assert _all_orders(_Deaf)[0]


def test_a_leader_that_tells_over_its_successor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trim_notice, "_told", _told_over_anybody)
    assert _drawn_orders(2_000)
