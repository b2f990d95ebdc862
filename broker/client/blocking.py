"""The broker's client for programs without an event loop.

    from broker.client import BrokerClient

    with BrokerClient.connect(["http://127.0.0.1:7364"], tenant="acme") as client:
        task_id = client.submit("mail", b"to: ada", priority=5)
        print(client.result(task_id))

        with client.transaction() as transaction:        # all of them or none
            transaction.submit("bill", b"1")
            transaction.submit("bill", b"2")

Same calls, same errors as `broker.client.client.AsyncBrokerClient`, which says what they do; any number of threads may
use one client at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from broker.client.client import DEFAULT_LOG, TIMEOUT_S, AsyncBrokerClient, OpenTransaction
from broker.client.new_task import NewTask, TaskOptions
from broker.client.shapes import (
    BatchSubmitted,
    Change,
    Code,
    Event,
    Explanation,
    Limits,
    Overview,
    Slot,
    Status,
    Task,
    TaskPage,
    Tenant,
    Transaction,
    Worker,
)
from broker.client.task_calls import Order
from broker.core.policies import TenantPolicy
from ledger.tls import TlsSettings
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.errors import RsmError
from rsm_spark.store.loop_thread import LoopThread

__all__ = ["BlockingTransaction", "BrokerClient"]


class BlockingTransaction:
    """A transaction; see `broker.client.client.OpenTransaction`."""

    def __init__(self, thread: LoopThread, inner: OpenTransaction) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def transaction(self) -> int:
        """Its id."""
        return self._inner.transaction

    @property
    def task_count(self) -> int:
        """Tasks submitted so far."""
        return self._inner.task_count

    def submit(
        self, task: NewTask | str, payload: bytes | str = b"", *, request_key: str = "", **options: Unpack[TaskOptions]
    ) -> int:
        """Submit a task."""
        return self._thread.run(self._inner.submit(task, payload, request_key=request_key, **options))

    def submit_many(self, tasks: Iterable[NewTask], *, batch: int = 1_000) -> BatchSubmitted:
        """Submit tasks."""
        return self._thread.run(self._inner.submit_many(list(tasks), batch=batch))


class BrokerClient:
    """See the module. Made by `connect`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, AsyncBrokerClient]]) -> None:
        self.thread = LoopThread()
        try:
            self.asynchronous = self.thread.run(make())
        except BaseException:
            self.thread.close()
            raise
        self._is_closed = False

    @classmethod
    def connect(
        cls,
        urls: Sequence[str] = (),
        *,
        metadata_uri: str | None = None,
        token: str = "",
        tenant: str = "",
        log: str = DEFAULT_LOG,
        rsm_root: str = DEFAULT_RSM_ROOT,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | TlsSettings | None = None,
    ) -> Self:
        """Return a client; see `AsyncBrokerClient.connect`."""
        return cls(
            lambda: AsyncBrokerClient.connect(
                urls,
                metadata_uri=metadata_uri,
                token=token,
                tenant=tenant,
                log=log,
                rsm_root=rsm_root,
                timeout_s=timeout_s,
                tls=tls,
            )
        )

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Disconnect."""
        if not self._is_closed:
            self._is_closed = True
            self.thread.run(self._end())
            self.thread.close()

    async def _end(self) -> None:
        """Give up what still waits, an executor's work too, and disconnect."""
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self.asynchronous.close()

    @property
    def url(self) -> str:
        """URL of the broker in use; "" while none is."""
        return self.asynchronous.url

    # ---- submitting

    def submit(
        self,
        task: NewTask | str,
        payload: bytes | str = b"",
        *,
        request_key: str = "",
        transaction: int = 0,
        limit_s: float | None = None,
        **options: Unpack[TaskOptions],
    ) -> int:
        """Submit a task, once, whatever fails meanwhile; return its id."""
        return self.thread.run(
            self.asynchronous.submit(
                task, payload, request_key=request_key, transaction=transaction, limit_s=limit_s, **options
            )
        )

    def submit_many(
        self,
        tasks: Iterable[NewTask],
        *,
        batch: int = 1_000,
        request_key: str = "",
        transaction: int = 0,
        limit_s: float | None = None,
    ) -> BatchSubmitted:
        """Submit tasks in batches, each whole or not at all."""
        return self.thread.run(
            self.asynchronous.submit_many(
                list(tasks), batch=batch, request_key=request_key, transaction=transaction, limit_s=limit_s
            )
        )

    @contextlib.contextmanager
    def transaction(self, *, ttl_s: float = 300.0) -> Iterator[BlockingTransaction]:
        """Submit many tasks, all or none: committed at the end of the block, rolled back if it raises."""
        begun = self.thread.run(self.asynchronous.begin(ttl_s=ttl_s))
        inner = OpenTransaction(self.asynchronous, begun.transaction, begun.expires_ms)
        try:
            yield BlockingTransaction(self.thread, inner)
        except BaseException:
            with contextlib.suppress(RsmError):  # what was raised counts; it expires by itself at the latest
                self.thread.run(self.asynchronous.rollback(begun.transaction, limit_s=5.0))
            raise
        inner.task_count = self.thread.run(self.asynchronous.commit(begun.transaction)) or inner.task_count

    # ---- tasks

    def get(self, task_id: int) -> Task:
        """Return a task, with payload and result."""
        return self.thread.run(self.asynchronous.get(task_id))

    def page(
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
    ) -> TaskPage:
        """Return tasks by filter, by id, without payload and result."""
        return self.thread.run(
            self.asynchronous.page(
                status=status, type=type, worker=worker, slot=slot, key=key, after=after, count=count, order=order
            )
        )

    def tasks(
        self,
        *,
        status: str | Sequence[str] = (),
        type: str = "",  # noqa: A002 - what it is called everywhere
        worker: str = "",
        slot: str = "",
        key: str = "",
        count: int | None = None,
        order: Order = "oldest",
    ) -> Iterator[Task]:
        """Iterate over tasks by filter, page after page."""
        return self.thread.iterate(
            self.asynchronous.tasks(
                status=status, type=type, worker=worker, slot=slot, key=key, count=count, order=order
            )
        )

    def wait(self, task_id: int, *, timeout_s: float | None = None) -> Task:
        """Wait until a task has ended, however; return it."""
        return self.thread.run(self.asynchronous.wait(task_id, timeout_s=timeout_s))

    def result(self, task_id: int, *, timeout_s: float | None = None) -> bytes:
        """Wait until a task has ended; return its result, or raise what it ended in."""
        return self.thread.run(self.asynchronous.result(task_id, timeout_s=timeout_s))

    def explain(self, task_id: int) -> Explanation:
        """Return why a task is where it is."""
        return self.thread.run(self.asynchronous.explain(task_id))

    def cancel(self, *task_ids: int) -> Change:
        """Cancel tasks."""
        return self.thread.run(self.asynchronous.cancel(*task_ids))

    def change(
        self,
        task_id: int,
        *,
        priority: int | None = None,
        group: int | None = None,
        resources: dict[str, int] | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        """Change a task that has not ended."""
        self.thread.run(
            self.asynchronous.change(
                task_id, priority=priority, group=group, resources=resources, deadline_ms=deadline_ms
            )
        )

    def replay_dead(self, *task_ids: int, type: str = "", outcome: str = "") -> Change:  # noqa: A002
        """Have dead letters wait again."""
        return self.thread.run(self.asynchronous.replay_dead(*task_ids, type=type, outcome=outcome))

    def events(self, from_revision: int | None = None) -> Iterator[Event]:
        """Iterate over what is logged, for ever."""
        return self.thread.iterate(self.asynchronous.events(from_revision))

    # ---- the broker, its tenants, limits and code

    def status(self) -> Status:
        """Return what the broker in use says of itself."""
        return self.thread.run(self.asynchronous.status())

    def overview(self) -> Overview:
        """Return counts."""
        return self.thread.run(self.asynchronous.overview())

    def workers(self) -> list[Worker]:
        """Return all workers, by id."""
        return self.thread.run(self.asynchronous.workers())

    def remove_worker(self, worker_id: str) -> None:
        """Forget a dead worker."""
        self.thread.run(self.asynchronous.remove_worker(worker_id))

    def slots(self) -> Iterator[Slot]:
        """Iterate over the slots that are taken."""
        return self.thread.iterate(self.asynchronous.slots())

    def transactions(self) -> list[Transaction]:
        """Return the open transactions, by id."""
        return self.thread.run(self.asynchronous.transactions())

    def tenants(self) -> Iterator[Tenant]:
        """Iterate over tenants, by name."""
        return self.thread.iterate(self.asynchronous.tenants())

    def tenant(self, tenant: str) -> Tenant:
        """Return a tenant."""
        return self.thread.run(self.asynchronous.tenant(tenant))

    def set_tenant(self, tenant: str, policy: TenantPolicy) -> None:
        """Set the policy of a tenant, whole."""
        self.thread.run(self.asynchronous.set_tenant(tenant, policy))

    def change_tenant(self, tenant: str, **changes: Any) -> TenantPolicy:
        """Set some fields of a tenant's policy and leave the others."""
        return self.thread.run(self.asynchronous.change_tenant(tenant, **changes))

    def remove_tenant(self, tenant: str) -> None:
        """Go back to the default policy."""
        self.thread.run(self.asynchronous.remove_tenant(tenant))

    def limits(self) -> Limits:
        """Return resources and holds."""
        return self.thread.run(self.asynchronous.limits())

    def hold(self, **hold: Any) -> None:
        """Hold tasks back; see `AsyncBrokerClient.hold`."""
        self.thread.run(self.asynchronous.hold(**hold))

    def release(self, *, tenant: str = "", type: str = "", key: str = "") -> None:  # noqa: A002
        """End a hold."""
        self.thread.run(self.asynchronous.release(tenant=tenant, type=type, key=key))

    def limit(self, resource: str, amount_max: int | None, *, tenant: str = "", type: str = "") -> None:  # noqa: A002
        """Limit what all workers together use of a resource."""
        self.thread.run(self.asynchronous.limit(resource, amount_max, tenant=tenant, type=type))

    def codes(self) -> list[Code]:
        """Return the code pools, by name."""
        return self.thread.run(self.asynchronous.codes())

    def deploy_code(self, path: Path | str, *, name: str = "", ttl_s: float = 0.0) -> str:
        """Pack code and keep it at the broker; return its name."""
        return self.thread.run(self.asynchronous.deploy_code(path, name=name, ttl_s=ttl_s))

    def remove_code(self, name: str) -> None:
        """Forget a code pool."""
        self.thread.run(self.asynchronous.remove_code(name))
