"""What every executor of functions does alike, and what each does in its own way."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.machine.limits import ERROR_BYTES_MAX, RESULT_BYTES_MAX
from broker.machine.statuses import Outcome, TaskStatus
from broker.worker import Registry
from broker.worker.core.effects import StopReason
from broker.worker.executors.children import ChildLimits
from broker.worker.executors.coroutines import AsyncioExecutor
from broker.worker.executors.executor import Executor
from broker.worker.executors.processes import ProcessExecutor
from broker.worker.executors.threads import ThreadExecutor
from ledger.errors import UsageError
from tests.unit.broker.worker import sample_tasks
from tests.unit.broker.worker.listening import WAIT_S, listening, run

MODULE = "tests.unit.broker.worker.sample_tasks"
Maker = Callable[[], Executor]


def threads() -> Executor:
    return ThreadExecutor(sample_tasks.plain)


def coroutines() -> Executor:
    return AsyncioExecutor(sample_tasks.coroutines)


def processes(**limits: float) -> ProcessExecutor:
    return ProcessExecutor(f"{MODULE}:plain", limits=ChildLimits(**limits))  # type: ignore[arg-type]


every = pytest.mark.parametrize("make", [threads, coroutines, processes])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with Path(f"/proc/{pid}/stat").open() as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


async def gone(pid: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while is_alive(pid):
            await asyncio.sleep(0.01)


@every
@pytest.mark.asyncio
async def test_runs_end_with_what_their_functions_return(make: Maker) -> None:
    executor = make()
    async with listening(executor) as heard:
        executor.run([*(run(number, "echo", b"p%d" % number) for number in range(1, 21)), run(99, "describe")])
        for number in range(1, 21):
            end = await heard.end_of(number)
            assert (end.status, end.result, end.task_id) == (TaskStatus.FINISHED, b"p%d" % number, number + 1000)
        assert (await heard.end_of(99)).result == b"acme/describe/1099/2/{'db': 1}"


@every
@pytest.mark.asyncio
async def test_a_function_that_raises_is_an_error_with_its_type_message_and_a_short_traceback(make: Maker) -> None:
    executor = make()
    async with listening(executor) as heard:
        executor.run([run(1, "fail", b"no such customer"), run(2, "fail", b"x" * 20_000)])
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.ERROR, Outcome.FAILED)
        assert end.error.startswith("ValueError: no such customer\n")
        assert "sample_tasks.py" in end.error
        assert "executors" not in end.error
        assert len((await heard.end_of(2)).error.encode()) <= ERROR_BYTES_MAX


@every
@pytest.mark.asyncio
async def test_results_that_are_too_large_or_of_a_wrong_type_are_errors_that_say_so(make: Maker) -> None:
    executor = make()
    async with listening(executor) as heard:
        executor.run(
            [
                run(1, "large", b"%d" % RESULT_BYTES_MAX),
                run(2, "large", b"%d" % (RESULT_BYTES_MAX + 1)),
                run(3, "number"),
            ]
        )
        assert len((await heard.end_of(1)).result) == RESULT_BYTES_MAX
        too_large = await heard.end_of(2)
        assert too_large.status == TaskStatus.ERROR
        assert "1,048,577 bytes, 1,048,576 are allowed" in too_large.error
        assert (await heard.end_of(3)).error == "TypeError: a task returns bytes, str or None, not int"


@every
@pytest.mark.asyncio
async def test_a_type_without_a_function_is_refused(make: Maker) -> None:
    executor = make()
    async with listening(executor) as heard:
        executor.run([run(1, "unheard-of")])
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.ERROR, Outcome.REFUSED)
        assert "'unheard-of'" in end.error


@every
@pytest.mark.asyncio
async def test_a_cancelled_run_hears_of_it_and_ends_as_cancelled(make: Maker) -> None:
    executor = make()
    async with listening(executor) as heard:
        executor.run([run(1, "obedient")])
        await heard.word_of(1)
        executor.stop(1, StopReason.CANCELLED)
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.CANCELLED, Outcome.CANCELLED)
        executor.stop(1, StopReason.CANCELLED)  # Too late: nothing comes of it.
        executor.run([run(2, "echo", b"on it goes")])
        assert (await heard.end_of(2)).result == b"on it goes"


@every
@pytest.mark.asyncio
async def test_a_run_that_waits_for_its_turn_can_be_cancelled(make: Maker) -> None:
    executor = make()
    async with listening(executor, threads_max=1) as heard:
        executor.run([run(1, "obedient"), run(2, "echo", b"never")])
        await heard.word_of(1)
        executor.stop(2, StopReason.CANCELLED)
        assert (await heard.end_of(2)).status == TaskStatus.CANCELLED
        executor.stop(1, StopReason.CANCELLED)
        assert (await heard.end_of(1)).status == TaskStatus.CANCELLED


@every
@pytest.mark.asyncio
async def test_a_run_over_its_time_limit_is_timed_out(make: Maker) -> None:
    executor = make()
    async with listening(executor) as heard:
        executor.run([run(1, "obedient", timeout_ms=200)])
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.ERROR, Outcome.TIMED_OUT)
        assert end.error.startswith("TimedOut: the run took longer than 200 ms")


@pytest.mark.parametrize("make", [coroutines, processes])
@pytest.mark.asyncio
async def test_a_run_that_is_stopped_for_the_lease_ends_as_if_its_worker_had_died(make: Maker) -> None:
    executor = make()
    async with listening(executor) as heard:
        executor.run([run(1, "obedient")])
        await heard.word_of(1)
        executor.stop(1, StopReason.LEASE)
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.ERROR, Outcome.WORKER_DIED)


@pytest.mark.parametrize("make", [threads, processes])
@pytest.mark.asyncio
async def test_of_much_progress_little_is_told_but_the_last_of_it_is(make: Maker) -> None:
    executor = make()
    async with listening(executor) as heard:
        executor.run([run(1, "chatty")])
        await heard.until(lambda: any(one.message == "last" for one in heard.progress.get(1, ())))
        assert len(heard.progress[1]) < 2_000
        executor.stop(1, StopReason.CANCELLED)
        await heard.end_of(1)


# ---- threads


@pytest.mark.asyncio
async def test_a_thread_that_does_not_end_is_written_off_and_replaced() -> None:
    executor = ThreadExecutor(sample_tasks.plain, written_off_max=2)
    async with listening(executor, threads_max=1) as heard:
        executor.run([run(1, "hang", timeout_ms=50)])
        assert (await heard.end_of(1)).outcome == Outcome.TIMED_OUT
        assert "written off" in heard.ends[1].error
        executor.run([run(2, "echo", b"another thread")])
        assert (await heard.end_of(2)).result == b"another thread"
        assert executor.written_off == 1
        assert not heard.exhausted
        executor.run([run(3, "hang", timeout_ms=50)])
        await heard.until(lambda: bool(heard.exhausted))
        assert "Use the process executor" in heard.exhausted[0]


@pytest.mark.asyncio
async def test_a_long_run_does_not_hold_up_those_behind_it_in_its_batch() -> None:
    executor = ThreadExecutor(sample_tasks.plain)
    async with listening(executor, threads_max=3) as heard:
        executor.run([run(1, "obedient"), run(2, "obedient"), run(3, "echo", b"past them")])
        assert (await heard.end_of(3)).result == b"past them"
        for number in (1, 2):
            executor.stop(number, StopReason.CANCELLED)
            await heard.end_of(number)


@pytest.mark.asyncio
async def test_exits_in_a_thread_end_the_run_and_not_the_worker() -> None:
    executor = ThreadExecutor(sample_tasks.plain)
    async with listening(executor) as heard:
        executor.run([run(1, "exit", b"3")])
        assert (await heard.end_of(1)).error.startswith("SystemExit: 3")


@pytest.mark.asyncio
async def test_more_runs_than_threads_are_done_by_no_more_threads() -> None:
    registry = Registry()
    running = 0
    most = 0
    lock = threading.Lock()

    @registry.task("*")
    def count(context: object, payload: bytes) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1

    executor = ThreadExecutor(registry)
    async with listening(executor, threads_max=3) as heard:
        executor.run([run(number, "x") for number in range(1, 61)])
        await heard.until(lambda: len(heard.ends) == 60)
    assert 1 < most <= 3


@pytest.mark.asyncio
async def test_coroutine_functions_need_the_asyncio_executor() -> None:
    with pytest.raises(UsageError, match="--executor asyncio"):
        async with listening(ThreadExecutor(sample_tasks.coroutines)):
            pass


# ---- asyncio


@pytest.mark.asyncio
async def test_a_coroutine_that_swallows_its_cancellation_is_reported_and_another_one_takes_its_place() -> None:
    executor = AsyncioExecutor(sample_tasks.coroutines, lost_max=2)
    async with listening(executor, threads_max=1) as heard:
        executor.run([run(1, "stubborn", timeout_ms=50), run(2, "echo", b"next")])
        assert (await heard.end_of(1)).outcome == Outcome.TIMED_OUT
        assert (await heard.end_of(2)).result == b"next"
        executor.run([run(3, "stubborn", timeout_ms=50)])
        await heard.until(lambda: bool(heard.exhausted))


# ---- processes


@pytest.mark.asyncio
async def test_a_process_is_killed_at_the_time_limit_with_all_that_it_has_started() -> None:
    executor = processes()
    async with listening(executor) as heard:
        executor.run([run(1, "family", timeout_ms=3_000)])
        grandchild = int(await heard.word_of(1))
        assert is_alive(grandchild)
        assert (await heard.end_of(1)).outcome == Outcome.TIMED_OUT
        await gone(grandchild)
        executor.run([run(2, "echo", b"next")])
        assert (await heard.end_of(2)).result == b"next"


@pytest.mark.asyncio
async def test_a_process_that_does_not_follow_a_cancel_is_killed() -> None:
    executor = processes(cancel_s=0.1)
    async with listening(executor) as heard:
        executor.run([run(1, "hang")])
        pid = int(await heard.word_of(1))
        executor.stop(1, StopReason.CANCELLED)
        assert (await heard.end_of(1)).status == TaskStatus.CANCELLED
        await gone(pid)


@pytest.mark.asyncio
async def test_a_process_that_dies_is_one_failed_run() -> None:
    executor = processes()
    async with listening(executor, threads_max=2) as heard:
        executor.run([run(1, "crash"), run(2, "exit", b"3"), run(3, "hang")])
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.ERROR, Outcome.FAILED)
        assert end.error.startswith("ProcessDied: the process that ran it was killed by SIGKILL")
        assert (await heard.end_of(2)).error.startswith("SystemExit: 3")
        os.kill(int(await heard.word_of(3)), signal.SIGTERM)
        assert (await heard.end_of(3)).error == "ProcessDied: the process that ran it was killed by SIGTERM"
        executor.run([run(4, "echo", b"next")])
        assert (await heard.end_of(4)).result == b"next"


@pytest.mark.asyncio
async def test_a_run_given_to_a_process_that_was_dead_already_is_done_by_another_one() -> None:
    executor = processes()
    async with listening(executor, threads_max=1) as heard:
        executor.run([run(1, "echo")])
        await heard.end_of(1)
        (pid,) = executor.pids
        os.kill(pid, signal.SIGKILL)
        executor.run([run(2, "echo", b"again")])
        assert (await heard.end_of(2)).result == b"again"


@pytest.mark.asyncio
async def test_processes_are_reused_and_ended_when_nothing_is_to_do() -> None:
    executor = processes(idle_s=0.2)
    async with listening(executor, threads_max=2) as heard:
        pids = set(executor.pids)
        for number in range(1, 6):
            executor.run([run(number, "echo")])
            await heard.end_of(number)
        assert set(executor.pids) == pids
        for pid in pids:
            await gone(pid)
        executor.run([run(9, "echo", b"anew")])
        assert (await heard.end_of(9)).result == b"anew"


@pytest.mark.asyncio
async def test_tasks_that_cannot_be_imported_are_told_at_the_start() -> None:
    with pytest.raises(UsageError, match="there is no module 'tests.unit.nothing'"):
        async with listening(ProcessExecutor("tests.unit.nothing")):
            pass


@pytest.mark.asyncio
async def test_closing_kills_what_runs() -> None:
    executor = processes()
    async with listening(executor) as heard:
        executor.run([run(1, "family")])
        pid = int(await heard.word_of(1))
        pids = executor.pids
    for one in [pid, *pids]:
        await gone(one)
