from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.machine.limits import RESULT_BYTES_MAX
from broker.machine.statuses import Outcome, TaskStatus
from broker.worker.core.effects import StopReason
from broker.worker.executors.subprocesses import SubprocessExecutor
from ledger.errors import UsageError
from tests.unit.broker.worker.listening import WAIT_S, Listening, listening, run


@asynccontextmanager
async def commands(command: str, threads_max: int = 4) -> AsyncIterator[tuple[SubprocessExecutor, Listening]]:
    executor = SubprocessExecutor(command)
    async with listening(executor, threads_max) as heard:
        yield executor, heard


async def gone(pid: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_the_payload_is_the_input_and_the_output_the_result() -> None:
    async with commands("tr a-z A-Z") as (executor, heard):
        executor.run([run(number, "x", b"hello %d" % number) for number in range(10)])
        for number in range(10):
            end = await heard.end_of(number)
            assert (end.status, end.result) == (TaskStatus.FINISHED, b"HELLO %d" % number)


@pytest.mark.asyncio
async def test_words_are_filled_in_and_stay_words() -> None:
    async with commands("printf %s|%s|%s {type} '{tenant} {task_id}' {attempt}") as (executor, heard):
        executor.run([run(1, "; touch x $(id) 'a b'")])
        assert (await heard.end_of(1)).result == b"; touch x $(id) 'a b'|acme 1001|2"


@pytest.mark.asyncio
async def test_the_environment_says_what_is_run() -> None:
    async with commands("sh -c 'echo $RSM_TASK_ID $RSM_ASSIGNMENT_ID $RSM_TENANT $RSM_TYPE'") as (executor, heard):
        executor.run([run(1, "mail")])
        assert (await heard.end_of(1)).result == b"1001 1 acme mail\n"


@pytest.mark.asyncio
async def test_an_exit_code_is_an_error_with_the_end_of_what_was_said() -> None:
    async with commands("sh -c 'seq 100000 >&2; echo the reason >&2; exit 7'") as (executor, heard):
        executor.run([run(1, "x")])
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.ERROR, Outcome.FAILED)
        assert end.error.startswith("ExitCode: 7\n")
        assert end.error.endswith("the reason")
        assert len(end.error) < 4096


@pytest.mark.asyncio
async def test_a_command_that_cannot_be_run_is_an_error() -> None:
    async with commands("/no/such/command") as (executor, heard):
        executor.run([run(1, "x")])
        assert (await heard.end_of(1)).error.startswith("CommandError: cannot run '/no/such/command'")


@pytest.mark.asyncio
async def test_too_much_output_is_an_error_and_ends_the_command() -> None:
    async with commands("yes") as (executor, heard):
        executor.run([run(1, "x")])
        assert (await heard.end_of(1)).error.startswith(
            f"ResultTooLarge: it wrote more than {RESULT_BYTES_MAX:,} bytes"
        )


@pytest.mark.asyncio
async def test_a_command_is_killed_at_its_time_limit_with_all_that_it_has_started() -> None:
    async with commands("sh -c 'sleep 600 & echo $!; wait'") as (executor, heard):
        executor.run([run(1, "x", timeout_ms=300)])
        assert (await heard.end_of(1)).outcome == Outcome.TIMED_OUT


@pytest.mark.asyncio
async def test_what_a_command_leaves_behind_ends_with_it_and_holds_nothing_up() -> None:
    async with commands("sh -c 'sleep 600 & echo $!'") as (executor, heard):
        executor.run([run(1, "x")])
        end = await heard.end_of(1)
        assert end.status == TaskStatus.FINISHED
        await gone(int(end.result))


@pytest.mark.asyncio
async def test_a_cancelled_command_is_asked_to_end_first() -> None:
    async with commands("sh -c 'trap \"exit 9\" TERM; while :; do sleep 0.02; done'") as (executor, heard):
        executor.run([run(1, "x", heartbeat_ms=60)])
        await heard.word_of(1)
        executor.stop(1, StopReason.CANCELLED)
        assert (await heard.end_of(1)).status == TaskStatus.CANCELLED


@pytest.mark.asyncio
async def test_commands_wait_for_their_turn_and_can_be_stopped_before_it() -> None:
    async with commands("sleep 600", threads_max=1) as (executor, heard):
        executor.run([run(1, "x"), run(2, "x")])
        executor.stop(2, StopReason.CANCELLED)
        assert (await heard.end_of(2)).status == TaskStatus.CANCELLED
        executor.stop(1, StopReason.LEASE)
        assert (await heard.end_of(1)).outcome == Outcome.WORKER_DIED


@pytest.mark.asyncio
async def test_a_command_that_reads_nothing_of_a_large_payload_is_no_error() -> None:
    async with commands("true") as (executor, heard):
        executor.run([run(1, "x", b"x" * 1_000_000)])
        assert (await heard.end_of(1)).status == TaskStatus.FINISHED


@pytest.mark.parametrize(
    ("command", "why"), [("", "empty"), ("run '", "quotation"), ("run {nothing}", "nothing"), ("run {0}", "may hold")]
)
def test_a_template_that_cannot_be_used_is_refused(command: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        SubprocessExecutor(command)


@pytest.mark.asyncio
async def test_the_end_of_a_process_is_noticed_where_the_system_has_no_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError("not allowed")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    async with commands("sh -c 'sleep 600 & echo $!; exit 3'") as (executor, heard):
        executor.run([run(1, "x"), run(2, "x", timeout_ms=200)])
        assert (await heard.end_of(1)).error == "ExitCode: 3"
