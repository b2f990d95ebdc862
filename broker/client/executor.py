"""The broker as an executor of `concurrent.futures`.

    with BrokerClient.connect(["http://127.0.0.1:7364"]) as client, BrokerExecutor(client) as executor:
        future = executor.submit("mail", b"to: ada")            # a task type and its payload -> bytes
        print(future.result(timeout=60))

        from shop.jobs import total                             # a function that workers have too
        print(list(executor.map(total, [1, 2, 3])))             # msgpack, never pickle: see broker.client.functions

What is submitted while a batch is on its way makes the next batch; futures are resolved by the broker's events, one
stream for all of them. Callbacks of futures run on the client's thread: they must not wait for anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, Unpack

from broker.client.blocking import BrokerClient
from broker.client.client import AsyncBrokerClient
from broker.client.errors import (
    BrokerClientError,
    EventsGoneError,
    RequestRefusedError,
    SlotTakenError,
    TaskCancelledError,
    WaitTimeoutError,
)
from broker.client.functions import FUNCTION_TYPE, decode_result, encode_call
from broker.client.task import NewTask, Task, TaskOptions
from broker.client.task_calls import result_of
from ledger.errors import LedgerError, UsageError
from rsm_spark.errors import RsmError

_RECONNECT_S = 0.5
_READS_MAX = 16
"""Results read at once."""
_READ_WAIT_S = 5.0
_BATCH_MAX = 1_000


class BrokerFuture(Future[Any]):
    """The result of a task that is to come.

    Attributes:
        task_id: 0 = it is on its way to the broker.

    """

    def __init__(self, executor: BrokerExecutor) -> None:
        super().__init__()
        self._executor = executor
        self.task_id = 0

    def cancel(self) -> bool:
        """Cancel the task if it has not begun; one that runs is asked to end, and False is returned."""
        if self.task_id and not self.done() and not self._executor.cancel_task(self.task_id):
            return False
        return super().cancel()


class _Pending(NamedTuple):
    future: BrokerFuture
    task: NewTask
    decode: Callable[[bytes], Any]


class BrokerExecutor(Executor):
    """See the module.

    Args:
        client: Stays open when the executor is shut down.
        function_type: Task type of functions.
        options: Of every task; see `broker.client.task.NewTask`.

    """

    def __init__(
        self, client: BrokerClient, *, function_type: str = FUNCTION_TYPE, **options: Unpack[TaskOptions]
    ) -> None:
        self._client: AsyncBrokerClient = client.asynchronous
        self._thread = client.thread
        self._function_type = function_type
        self._options = options
        self._lock = threading.Lock()
        # Submitted here, not yet on their way; guarded by the lock.
        self._gathered: list[_Pending] = []
        self._is_shut_down = False
        self._count = 0
        self._none_left = threading.Condition(self._lock)
        # At the broker, by task id; used on the client's loop only.
        self._running: dict[int, _Pending] = {}
        # Ends heard while a batch is on its way: they may be of its tasks. Empty when none is.
        self._early: set[int] = set()
        self._is_sending = False
        self._is_cancelling = False
        self._reads = asyncio.Semaphore(_READS_MAX)
        self._background: set[asyncio.Task[Any]] = set()
        self._loop_thread = 0
        self._wake = asyncio.Event()
        self._listening = asyncio.Event()
        self._work = self._thread.run(self._start())

    async def _start(self) -> list[asyncio.Task[None]]:
        loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        return [loop.create_task(self._guarded(work)) for work in (self._listen(), self._send())]

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            self._fail_all(BrokerClientError("the client was closed before the task ended; it goes on"))
            raise
        except Exception as error:  # a mistake of ours: nobody is to wait for ever because of it
            with self._lock:
                self._is_shut_down = True
            self._fail_all(error)
            raise

    def submit(self, fn: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> BrokerFuture:
        """Submit a task type with its payload, or a function with its arguments.

        Args:
            fn: A task type: the result is bytes. Or a function that workers have too.
            args: The payload (bytes or text); or the function's arguments.
            kwargs: The function's.

        Raises:
            UsageError: The function or its arguments cannot travel.
            RuntimeError: The executor is shut down.

        """
        future = BrokerFuture(self)
        if isinstance(fn, str):
            if len(args) > 1 or kwargs:
                raise UsageError(f"task type {fn}: one payload, bytes or text; options are the executor's")
            pending = _Pending(future, NewTask(fn, args[0] if args else b"", **self._options), bytes)
        else:
            payload = encode_call(fn, args, kwargs)
            pending = _Pending(future, NewTask(self._function_type, payload, **self._options), decode_result)
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("the executor is shut down: it takes nothing more")
            self._gathered.append(pending)
            self._count += 1
            is_first = len(self._gathered) == 1
        if is_first:
            self._thread.loop.call_soon_threadsafe(self._wake.set)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; wait for what was submitted, or cancel what has not begun."""
        with self._lock:
            self._is_shut_down = True
        if self._thread.loop.is_closed():
            return
        if cancel_futures:
            self._thread.run(self._cancel_all())
        if not wait:
            return
        with self._none_left:
            self._none_left.wait_for(lambda: self._count == 0)
        self._thread.run(self._stop())

    async def _stop(self) -> None:
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    # ---- cancelling

    def cancel_task(self, task_id: int) -> bool:
        """Cancel a task; True if it is cancelled now, False if it runs and its worker was asked, or it has ended."""
        if threading.get_ident() == self._loop_thread:  # a callback: waiting here would wait for ever
            asking = self._thread.loop.create_task(self._ask_cancel(task_id))
            self._background.add(asking)
            asking.add_done_callback(self._background.discard)
            return False
        try:
            return self._thread.run(self._client.cancel(task_id)).count > 0
        except RsmError:
            return False

    async def _cancel_all(self) -> None:
        self._is_cancelling = True
        with self._lock:
            gathered, self._gathered = self._gathered, []
        for pending in gathered:
            Future.cancel(pending.future)
            pending.future.set_running_or_notify_cancel()
            self._over()
        if self._running:
            await self._ask_cancel(*self._running)

    async def _ask_cancel(self, *task_ids: int) -> None:
        for start in range(0, len(task_ids), _BATCH_MAX):
            with contextlib.suppress(RsmError):  # what cannot be cancelled ends by itself
                await self._client.cancel(*task_ids[start : start + _BATCH_MAX])

    # ---- submitting

    async def _send(self) -> None:
        """Send what has gathered, batch after batch; the first one once the events are listened to."""
        await self._listening.wait()
        while True:
            await self._wake.wait()
            self._wake.clear()
            with self._lock:
                gathered, self._gathered = self._gathered, []
            for start in range(0, len(gathered), _BATCH_MAX):
                await self._send_batch(gathered[start : start + _BATCH_MAX])

    async def _send_batch(self, batch: list[_Pending]) -> None:
        for pending in batch:
            if self._is_cancelling or pending.future.cancelled():
                Future.cancel(pending.future)
                pending.future.set_running_or_notify_cancel()
                self._over()
        batch = [pending for pending in batch if not pending.future.cancelled()]
        if not batch:
            return
        self._is_sending = True
        try:
            done = await self._client.submit_many([pending.task for pending in batch], batch=_BATCH_MAX)
        except (RsmError, LedgerError) as error:
            for pending in batch:
                self._fail(pending, error)
            return
        finally:
            self._is_sending = False
            early, self._early = self._early, set()
        for pending, task_id in zip(batch, done.task_ids, strict=True):
            if task_id:
                pending.future.task_id = task_id
                self._running[task_id] = pending
        for refused in done.refused:
            reason = f"slot {batch[refused.index].task.slot!r} is taken by task {refused.slot_task_id}"
            self._fail(batch[refused.index], SlotTakenError(reason, slot_task_id=refused.slot_task_id))
        # Cancelled while the batch was on its way.
        unwanted = [pending.future.task_id for pending in batch if self._is_cancelling or pending.future.cancelled()]
        await self._ask_cancel(*(task_id for task_id in unwanted if task_id))
        for task_id in done.task_ids:
            if task_id in early:
                self._read(task_id)

    # ---- results

    async def _listen(self) -> None:
        """Hear of ends; after a gap, look at every task that has not ended as far as is known."""
        next_revision: int | None = None
        while True:
            try:
                async with self._client.event_stream(next_revision) as events:
                    if next_revision is None:
                        for task_id in self._running:
                            self._read(task_id)
                    self._listening.set()
                    async for event in events:
                        next_revision = event.revision + 1
                        if event.name == "task_ended":
                            self._ended(int(event.fields.get("task_id", 0)))
            except EventsGoneError:
                next_revision = None
            except RequestRefusedError as error:
                self._fail_all(error)
            except (OSError, EOFError, RsmError):
                pass  # Another broker is asked, from where this one stopped.
            await asyncio.sleep(_RECONNECT_S)

    def _ended(self, task_id: int) -> None:
        if task_id in self._running:
            self._read(task_id)
        elif self._is_sending:
            self._early.add(task_id)

    def _read(self, task_id: int) -> None:
        reading = self._thread.loop.create_task(self._settle(task_id))
        self._background.add(reading)
        reading.add_done_callback(self._background.discard)

    async def _settle(self, task_id: int) -> None:
        """Read a task and settle its future if it has ended; a follower may show it only a moment later."""
        pending = self._running.get(task_id)
        if pending is None:
            return
        async with self._reads:
            try:
                task = await self._client.wait(task_id, timeout_s=_READ_WAIT_S)
            except WaitTimeoutError:
                return  # It was looked at after a gap, and goes on: its end will be heard.
            except RsmError as error:
                self._running.pop(task_id, None)
                self._fail(pending, error)
                return
        if self._running.pop(task_id, None) is not None:
            self._resolve(pending, task)

    def _resolve(self, pending: _Pending, task: Task) -> None:
        try:
            result = pending.decode(result_of(task))
        except TaskCancelledError:
            Future.cancel(pending.future)
            pending.future.set_running_or_notify_cancel()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the future's
            self._fail(pending, error)
            return
        else:
            if pending.future.set_running_or_notify_cancel():
                pending.future.set_result(result)
        self._over()

    def _fail(self, pending: _Pending, error: Exception) -> None:
        if pending.future.set_running_or_notify_cancel():
            pending.future.set_exception(error)
        self._over()

    def _fail_all(self, error: Exception) -> None:
        """End everything with what the broker said: there is no way to hear of results."""
        with self._lock:
            gathered, self._gathered = self._gathered, []
        failed = gathered + list(self._running.values())
        self._running.clear()
        for pending in failed:
            self._fail(pending, error)

    def _over(self) -> None:
        with self._none_left:
            self._count -= 1
            if not self._count:
                self._none_left.notify_all()
