"""The loop's thread: results, errors and interrupts cross it, contexts and iterations end, and it closes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError

import pytest

from ledger.blocking_base import BlockingClient
from ledger.loop_thread import LoopThread, quickest_loop, settled

_LONG_S = 60.0


class _LostError(Exception):
    pass


@pytest.fixture(params=[asyncio.new_event_loop, quickest_loop], ids=["asyncio", "quickest"])
def thread(request: pytest.FixtureRequest) -> Iterator[LoopThread]:
    new_loop: Callable[[], asyncio.AbstractEventLoop] = request.param
    made = LoopThread("test-loop", new_loop=new_loop)
    yield made
    made.close()


async def _add(left: int, right: int) -> int:
    await asyncio.sleep(0)
    return left + right


async def _fail() -> None:
    raise _LostError("gone")


def test_results_and_errors_come_back(thread: LoopThread) -> None:
    assert thread.run(_add(1, 2)) == 3
    assert thread.ask(threading.current_thread).name == "test-loop"
    with pytest.raises(_LostError):
        thread.run(_fail())


def test_many_threads_use_it_at_once(thread: LoopThread) -> None:
    results: list[int] = []
    callers = [threading.Thread(target=lambda n=n: results.append(thread.run(_add(n, n)))) for n in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert sorted(results) == [2 * n for n in range(8)]


def test_an_interrupt_cancels_the_coroutine(thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def _wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(_LONG_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    start = thread.start

    def _interrupted(work):  # type: ignore[no-untyped-def]
        future = start(work)
        begun.wait()
        monkeypatch.setattr(future, "result", _ctrl_c)
        return future

    def _ctrl_c() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(thread, "start", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread.run(_wait())
    assert cancelled.wait(_LONG_S)


def test_an_iteration_that_is_left_early_is_closed(thread: LoopThread) -> None:
    ends: list[str] = []

    async def _numbers() -> AsyncIterator[int]:
        try:
            for n in range(1_000):
                yield n
        finally:
            ends.append("closed")

    assert list(zip(range(3), thread.iterate(_numbers()), strict=False))[-1] == (2, 2)
    numbers = thread.iterate(_numbers())
    assert next(numbers) == 0
    ends.clear()
    numbers.close()  # type: ignore[attr-defined]
    assert ends == ["closed"]


class _Context:
    """Notes how it is left."""

    def __init__(self) -> None:
        self.left = ""
        self.tasks: set[object] = set()

    @contextlib.asynccontextmanager
    async def enter(self, *, breaks_after: asyncio.Event | None = None) -> AsyncIterator[str]:
        self.tasks.add(asyncio.current_task())
        owner = asyncio.current_task()
        assert owner is not None
        breaking = asyncio.create_task(self._break(owner, breaks_after)) if breaks_after else None
        try:
            yield "inside"
        except asyncio.CancelledError:
            self.left = "cancelled"
            if breaking is not None:
                raise _LostError("lost") from None
            raise
        else:
            self.left = "whole"
        finally:
            self.tasks.add(asyncio.current_task())

    async def _break(self, owner: asyncio.Task[object], after: asyncio.Event) -> None:
        await after.wait()
        owner.cancel()


def test_a_context_is_entered_and_left_by_one_task(thread: LoopThread) -> None:
    context = _Context()
    with thread.enter(context.enter()) as entered:
        assert (entered, context.left) == ("inside", "")
    assert (context.left, len(context.tasks)) == ("whole", 1)


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), StopIteration()], ids=repr)
def test_a_block_that_raises_leaves_the_context_as_cancelled(thread: LoopThread, error: BaseException) -> None:
    context = _Context()
    caught: BaseException | None = None
    entered = thread.enter(context.enter())
    entered.__enter__()
    try:
        assert not entered.__exit__(type(error), error, None)
    except BaseException as raised:  # noqa: BLE001 - whatever it is
        caught = raised
    assert caught in (None, error)
    assert context.left == "cancelled"
    assert thread.run(_add(1, 1)) == 2, "the loop goes on"


def test_what_a_context_raises_meanwhile_is_told_at_the_end(thread: LoopThread) -> None:
    context, breaks = _Context(), asyncio.Event()
    entered = thread.enter(context.enter(breaks_after=breaks))
    entered.__enter__()
    thread.call_soon(breaks.set)
    thread.run(_until(lambda: context.left == "cancelled"))
    with pytest.raises(_LostError):
        entered.__exit__(None, None, None)


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


def test_a_context_that_cannot_be_entered_says_why(thread: LoopThread) -> None:
    @contextlib.asynccontextmanager
    async def _broken() -> AsyncIterator[None]:
        await _fail()
        yield

    with pytest.raises(_LostError), thread.enter(_broken()):
        pytest.fail("it was entered")


def test_a_future_of_the_loop_can_be_waited_for(thread: LoopThread) -> None:
    source = thread.ask(lambda: thread.loop.create_future())  # noqa: PLW0108
    waiting = settled(source)
    thread.call_soon(lambda: source.set_result(7))
    assert waiting.result(_LONG_S) == 7
    broken = thread.ask(lambda: thread.loop.create_future())  # noqa: PLW0108
    failing = settled(broken)
    thread.call_soon(lambda: broken.set_exception(_LostError("gone")))
    with pytest.raises(_LostError):
        failing.result(_LONG_S)


def test_who_still_waits_when_it_closes_is_cancelled(thread: LoopThread) -> None:
    waiting = thread.start(asyncio.sleep(_LONG_S))
    thread.close()
    with pytest.raises(CancelledError):
        waiting.result(_LONG_S)
    thread.close()


def test_a_closed_loop_says_so() -> None:
    thread = LoopThread("test-loop", closed=_LostError)
    thread.close()
    with pytest.raises(_LostError, match="the client is closed"):
        thread.run(_add(1, 2))


def test_a_client_that_cannot_begin_ends_its_thread() -> None:
    thread = LoopThread("test-loop")

    async def _make() -> LoopThread:
        await _fail()
        raise AssertionError

    with pytest.raises(_LostError):
        BlockingClient(thread, _make)  # type: ignore[type-var]
    assert thread.loop.is_closed()
