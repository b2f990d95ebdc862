"""Functions of code pools that are given something, which is taken back before their end is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.machine.policies import SPARK_PYTHON, SPARK_SUBMIT
from broker.machine.statuses import Outcome, TaskStatus
from broker.worker.core.effects import StopReason
from broker.worker.jail.jails import JailSettings
from tests.unit.broker.worker.archives import pool
from tests.unit.broker.worker.given_number import VARIABLE
from tests.unit.broker.worker.listening import run
from tests.unit.broker.worker.served_code import Served, handlers, pools

_CODE = """
import os

def double(context, payload, *, number, wait):
    return str(2 * number)

def waits(context, payload, *, number, wait):
    wait()

def dies(context, payload, *, number, wait):
    os._exit(3)
"""
_TRUSTED = JailSettings(is_code_trusted=True)


class Support:
    giver = "tests.unit.broker.worker.given_number:given"
    environment = {VARIABLE: "21"}

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.asked: list[tuple[int, int]] = []
        self.is_slow = False
        self.may_end = asyncio.Event()

    def begin(self, task_id: int, assignment_id: int) -> None:
        self.begun.append((task_id, assignment_id))

    async def take_back(self, task_id: int, assignment_id: int) -> None:
        assert (task_id, assignment_id) in self.begun
        self.asked.append((task_id, assignment_id))
        if self.is_slow:
            await self.may_end.wait()


def _served() -> Served:
    served = Served()
    names = ("double", "waits", "dies")
    served.archives = {"one": pool({"given.py": _CODE}, *(f"given:{name}" for name in names)), "other": handlers("1")}
    return served


@pytest.mark.asyncio
async def test_a_function_is_given_what_its_worker_gives_and_its_end_is_told_when_that_is_taken_back(
    tmp_path: Path,
) -> None:
    support = Support()
    support.is_slow = True
    async with pools(_served(), tmp_path, jail=_TRUSTED, support=support) as (made, heard):
        made.run([run(1, SPARK_PYTHON, code="one", mode="given:double")])
        async with asyncio.timeout(60):
            while not support.asked:
                await asyncio.sleep(0.01)
        assert not heard.ends
        support.may_end.set()
        assert (await heard.end_of(1)).result == b"42"
    assert [assignment_id for _, assignment_id in support.asked] == [1]


@pytest.mark.asyncio
async def test_a_run_that_is_cancelled_ends_so_whatever_it_raises_then(tmp_path: Path) -> None:
    support = Support()
    async with pools(_served(), tmp_path, jail=_TRUSTED, support=support) as (made, heard):
        made.run([run(1, SPARK_PYTHON, code="one", mode="given:waits")])
        assert await heard.word_of(1) == "waits"
        made.stop(1, StopReason.CANCELLED)
        end = await heard.end_of(1)
        assert (end.status, end.outcome) == (TaskStatus.CANCELLED, Outcome.CANCELLED)
    assert len(support.asked) == 1


@pytest.mark.asyncio
async def test_what_a_run_was_given_is_taken_back_when_its_process_has_died(tmp_path: Path) -> None:
    support = Support()
    async with pools(_served(), tmp_path, jail=_TRUSTED, support=support) as (made, heard):
        made.run([run(1, SPARK_PYTHON, code="one", mode="given:dies")])
        assert "exit code 3" in (await heard.end_of(1)).error
        assert len(support.asked) == 1


@pytest.mark.asyncio
async def test_code_runs_only_where_its_type_is_at_home(tmp_path: Path) -> None:
    async with pools(_served(), tmp_path, jail=_TRUSTED, support=Support()) as (made, heard):
        made.run([run(1, "mail", code="other", mode="handlers:version")])
        assert "is for tasks of type spark_python, not 'mail'" in (await heard.end_of(1)).error
    async with pools(_served(), tmp_path, jail=_TRUSTED) as (made, heard):
        made.run([run(2, SPARK_PYTHON, code="one", mode="given:double")])
        end = await heard.end_of(2)
        assert end.outcome == Outcome.REFUSED
        assert "this worker has no Spark" in end.error
        made.run([run(3, SPARK_SUBMIT, code="one", mode="a.py")])
        assert "submits nothing to Spark" in (await heard.end_of(3)).error
