"""Calls about tasks and transactions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Literal, Unpack

from broker.client.calls import BrokerCalls, Request, path_of
from broker.client.errors import TaskCancelledError, TaskFailedError, WaitTimeoutError
from broker.client.shapes import (
    BatchSubmitted,
    Change,
    Explanation,
    Submitted,
    TaskPage,
    TaskRefused,
    Transaction,
)
from broker.client.task import NewTask, Task, TaskOptions, chunks_of, opened_task, wire_task
from ledger.errors import UsageError
from rsm_spark.codecs.framing import PayloadCodec

Order = Literal["oldest", "newest"]
_LONG_POLL_S = 20.0
_PAGE = 500
_BATCH = 1_000
_TASKS = path_of("tasks")


class TaskCalls:
    """See `broker.client.client.AsyncBrokerClient`, which is this and more."""

    _calls: BrokerCalls
    _timeout_s: float
    _tenant: str
    _codec: PayloadCodec | None

    def _limit_s(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    # ---- submitting

    async def submit(
        self,
        task: NewTask | str,
        payload: bytes | str = b"",
        *,
        request_key: str = "",
        transaction: int = 0,
        limit_s: float | None = None,
        **options: Unpack[TaskOptions],
    ) -> int:
        """Submit a task, once, whatever fails meanwhile; return its id.

        Args:
            task: Its type, with `payload` and `options` beside it; or a whole `NewTask`.
            payload: Bytes, or text (UTF-8).
            request_key: Submitting again with the same key, even from another process, submits nothing and returns
                the same id; "" = one of this call's own.
            transaction: Open transaction that it becomes part of.
            limit_s: Time limit of this call.
            options: See `NewTask`.

        Raises:
            SlotTakenError: Another task that has not ended has its slot.
            QueueFullError: The tenant has as many tasks as it may have.
            RequestRefusedError: The broker takes no such task; the message says why.
            BrokerUnavailableError: Nobody took it within the time limit.
            OutcomeUnknownError: It may have been submitted: submit again with the same `request_key`.

        """
        whole = task if isinstance(task, NewTask) else NewTask(task, payload, **options)
        key = request_key or os.urandom(16).hex()
        request = Request("POST", _TASKS, content=wire_task(whole, transaction, self._codec), key=key)
        return (await self._calls.call(request, Submitted, timeout_s=self._limit_s(limit_s))).task_id

    async def submit_many(
        self,
        tasks: Iterable[NewTask],
        *,
        batch: int = _BATCH,
        request_key: str = "",
        transaction: int = 0,
        limit_s: float | None = None,
    ) -> BatchSubmitted:
        """Submit tasks in batches, each whole or not at all; those whose slot is taken are told, not raised.

        Args:
            tasks: Any number.
            batch: Tasks of one request at most.
            request_key: As in `submit`; with the same tasks and the same `batch`.
            transaction: Open transaction that they become part of: what makes several batches all or none.
            limit_s: Time limit of each batch.

        """
        key = request_key or os.urandom(16).hex()
        ids: list[int] = []
        refused: list[TaskRefused] = []
        for number, chunk in enumerate(chunks_of(tasks, batch)):
            content: dict[str, Any] = {"tasks": [wire_task(task, codec=self._codec) for task in chunk]}
            if transaction:
                content["transaction"] = transaction
            request = Request("POST", path_of("tasks", "batch"), content=content, key=f"{key}.{number}")
            answer = await self._calls.call(request, BatchSubmitted, timeout_s=self._limit_s(limit_s))
            refused += [TaskRefused(len(ids) + item.index, item.slot_task_id) for item in answer.refused]
            ids += _one_each(answer, len(chunk))
        return BatchSubmitted(ids, refused)

    async def begin(self, *, ttl_s: float = 300.0, limit_s: float | None = None) -> Transaction:
        """Begin a transaction, which is rolled back by itself after `ttl_s`."""
        request = Request("POST", path_of("transactions"), content={"ttl_s": ttl_s}, key=os.urandom(16).hex())
        return await self._calls.call(request, Transaction, timeout_s=self._limit_s(limit_s))

    async def commit(self, transaction: int, *, limit_s: float | None = None) -> int:
        """Have the tasks of a transaction wait to be run, all at once; return how many there are.

        Raises:
            TransactionOverError: It was rolled back, or has expired.

        """
        request = Request("POST", path_of("transactions", transaction, "commit"), content={})
        answer = await self._calls.call(request, dict[str, Any], timeout_s=self._limit_s(limit_s))
        return int(answer.get("task_count", 0))

    async def rollback(self, transaction: int, *, limit_s: float | None = None) -> None:
        """Forget the tasks of a transaction."""
        request = Request("POST", path_of("transactions", transaction, "rollback"), content={})
        await self._calls.call(request, dict[str, Any], timeout_s=self._limit_s(limit_s))

    # ---- reading

    async def get(self, task_id: int, *, limit_s: float | None = None) -> Task:
        """Return a task, with payload and result.

        Raises:
            NotFoundError: There is none, or none of this tenant.

        """
        task = await self._calls.call(self._read("tasks", task_id), Task, timeout_s=self._limit_s(limit_s))
        return opened_task(self._codec, task)

    async def page(
        self,
        *,
        status: str | Sequence[str] = (),
        type: str = "",  # noqa: A002 - what it is called everywhere
        worker: str = "",
        slot: str = "",
        key: str = "",
        after: int = 0,
        count: int = 100,
        order: Order = "oldest",
        limit_s: float | None = None,
    ) -> TaskPage:
        """Return tasks by filter, by id, without payload and result: `count` at most, those after an id."""
        query = {
            "status": status if isinstance(status, str) else ",".join(status),
            "type": type, "worker": worker, "slot": slot, "key": key,
            "after": after or None, "limit": count, "order": None if order == "oldest" else order,
        }  # fmt: skip
        return await self._calls.call(self._read("tasks", query=query), TaskPage, timeout_s=self._limit_s(limit_s))

    async def tasks(
        self,
        *,
        status: str | Sequence[str] = (),
        type: str = "",  # noqa: A002 - what it is called everywhere
        worker: str = "",
        slot: str = "",
        key: str = "",
        count: int | None = None,
        order: Order = "oldest",
    ) -> AsyncIterator[Task]:
        """Iterate over tasks by filter, page after page; at most `count` of them."""
        after = 0
        left = count
        while left is None or left > 0:
            page = await self.page(
                status=status, type=type, worker=worker, slot=slot, key=key,
                after=after, count=_PAGE if left is None else min(left, _PAGE), order=order,
            )  # fmt: skip
            for task in page.tasks:
                yield task
            left = None if left is None else left - len(page.tasks)
            if not page.next:
                return
            after = page.next

    async def wait(self, task_id: int, *, timeout_s: float | None = None) -> Task:
        """Wait until a task has ended, however; return it.

        Args:
            task_id: Which.
            timeout_s: How long; None = as long as it takes.

        Raises:
            WaitTimeoutError: It has not ended by then; it goes on.

        """
        loop = asyncio.get_running_loop()
        end = None if timeout_s is None else loop.time() + timeout_s
        while True:
            wait_s = _LONG_POLL_S if end is None else max(0.0, min(_LONG_POLL_S, end - loop.time()))
            request = self._read("tasks", task_id, query={"wait_s": round(wait_s, 3)})._replace(wait_s=wait_s)
            task = await self._calls.call(request, Task, timeout_s=wait_s + self._timeout_s)
            if task.has_ended:
                return opened_task(self._codec, task)
            if end is not None and loop.time() >= end:
                raise WaitTimeoutError(f"task {task_id} is {task.status} after {timeout_s:g} s; it goes on")

    async def result(self, task_id: int, *, timeout_s: float | None = None) -> bytes:
        """Wait until a task has ended; return its result.

        Raises:
            TaskFailedError: It ended in an error.
            TaskCancelledError: It was cancelled.
            WaitTimeoutError: It has not ended within `timeout_s`; it goes on.

        """
        return result_of(await self.wait(task_id, timeout_s=timeout_s))

    async def explain(self, task_id: int, *, limit_s: float | None = None) -> Explanation:
        """Return why a task is where it is: the exact limit, or its place."""
        request = self._read("tasks", task_id, "explain")
        return await self._calls.call(request, Explanation, timeout_s=self._limit_s(limit_s))

    # ---- changing

    async def cancel(self, *task_ids: int, limit_s: float | None = None) -> Change:
        """Cancel tasks: those that wait at once, those that run by asking their workers, which confirm."""
        request = self._write("POST", "tasks", "cancel", content={"task_ids": _some(task_ids)})
        return await self._calls.call(request, Change, timeout_s=self._limit_s(limit_s))

    async def change(
        self,
        task_id: int,
        *,
        priority: int | None = None,
        group: int | None = None,
        resources: dict[str, int] | None = None,
        deadline_ms: int | None = None,
        limit_s: float | None = None,
    ) -> None:
        """Change a task that has not ended; None = as it is. What runs already keeps its resources."""
        asked = {"priority": priority, "group": group, "resources": resources, "deadline_ms": deadline_ms}
        content = {name: value for name, value in asked.items() if value is not None}
        if not content:
            raise UsageError(f"task {task_id}: no change was given")
        await self._calls.call(
            self._write("PATCH", "tasks", task_id, content=content), dict[str, Any], timeout_s=self._limit_s(limit_s)
        )

    async def replay_dead(
        self,
        *task_ids: int,
        type: str = "",  # noqa: A002 - what it is called everywhere
        outcome: str = "",
        limit_s: float | None = None,
    ) -> Change:
        """Have dead letters wait again: these, or all that fit type and outcome; all of them or none.

        Raises:
            OutcomeUnknownError: The answer was lost. It is not asked again: what failed anew would be replayed anew.

        """
        content = {"task_ids": list(task_ids)} if task_ids else {"type": type, "outcome": outcome}
        request = self._write("POST", "dead-letters", "replay", content=content)._replace(is_repeatable=bool(task_ids))
        return await self._calls.call(request, Change, timeout_s=self._limit_s(limit_s))

    async def delete_dead(self, *task_ids: int, limit_s: float | None = None) -> Change:
        """Forget dead letters before their time; what is none, or none any more, is passed over."""
        request = self._write("POST", "dead-letters", "delete", content={"task_ids": _some(task_ids)})
        return await self._calls.call(request, Change, timeout_s=self._limit_s(limit_s))

    def _read(self, *parts: object, query: dict[str, Any] | None = None) -> Request:
        return Request("GET", path_of(*parts), query=query or {})

    def _write(self, method: str, *parts: object, content: Any = None) -> Request:
        return Request(method, path_of(*parts), content=content)


def _some(task_ids: Sequence[int]) -> Sequence[int]:
    if not task_ids:
        raise UsageError("no task id is given")
    return task_ids


def _one_each(answer: BatchSubmitted, count: int) -> list[int]:
    """Return an id for each task of a batch, 0 for those refused, whether the broker left them out or not."""
    if len(answer.task_ids) == count:
        return answer.task_ids
    accepted = iter(answer.task_ids)
    refused = {item.index for item in answer.refused}
    return [0 if place in refused else next(accepted, 0) for place in range(count)]


def result_of(task: Task) -> bytes:
    """Return the result of a task that has ended.

    Raises:
        TaskFailedError: It ended in an error.
        TaskCancelledError: It was cancelled.

    """
    match task.status:
        case "finished":
            return task.result_bytes
        case "cancelled":
            raise TaskCancelledError(f"task {task.task_id} ({task.type}) was cancelled", task=task)
        case _:
            attempts = f"after {task.attempts} attempt{'' if task.attempts == 1 else 's'}"
            raise TaskFailedError(
                f"task {task.task_id} ({task.type}): {task.outcome or task.status} {attempts}: {task.error}", task=task
            )
