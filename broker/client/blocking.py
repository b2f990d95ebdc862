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

Written by tools/generate_blocking.py: `make blocking` writes it anew.
"""
# ruff: noqa: A002 - what it is called everywhere

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from broker.client.blocking_base import BlockingBrokerBase
from broker.client.client import TIMEOUT_S, AsyncBrokerClient, OpenTransaction
from broker.client.shapes import (
    BatchSubmitted,
    BrokerStatus,
    Change,
    Code,
    Event,
    Explanation,
    Limits,
    Overview,
    Slot,
    TaskPage,
    Tenant,
    Transaction,
    WorkerSummary,
)
from broker.client.task import NewTask, Task, TaskOptions
from broker.client.task_calls import Order
from broker.machine.limits import DEFAULT_LOG
from broker.machine.policies import TenantPolicy
from ledger.blocking_base import BlockingCalls
from ledger.tls import TlsSettings
from rsm_spark.codecs.framing import PayloadCodec
from rsm_spark.core.chain import DEFAULT_RSM_ROOT

__all__ = ["BlockingTransaction", "BrokerClient"]


class BlockingTransaction(BlockingCalls[OpenTransaction]):
    """`OpenTransaction` for code that blocks."""

    @property
    def transaction(self) -> int:
        """Its id."""
        return self.asynchronous.transaction

    @property
    def expires_ms(self) -> int:
        """Time at which it is rolled back by itself, ms since 1970."""
        return self.asynchronous.expires_ms

    @property
    def task_count(self) -> int:
        """Tasks submitted so far."""
        return self.asynchronous.task_count

    def submit(
        self, task: NewTask | str, payload: bytes | str = b"", *, request_key: str = "", **options: Unpack[TaskOptions]
    ) -> int:
        """Submit a task; see `AsyncBrokerClient.submit`."""
        return self.thread.run(self.asynchronous.submit(task, payload, request_key=request_key, **options))

    def submit_many(self, tasks: Iterable[NewTask], *, batch: int = 1_000) -> BatchSubmitted:
        """Submit tasks; see `AsyncBrokerClient.submit_many`."""
        return self.thread.run(self.asynchronous.submit_many(list(tasks), batch=batch))


class BrokerClient(BlockingBrokerBase):
    """`AsyncBrokerClient` for code that blocks."""

    @classmethod
    def connect(
        cls,
        urls: Sequence[str] = (),
        *,
        metadata_uri: str | None = None,
        token: str = "",
        token_file: Path | str | None = None,
        tenant: str = "",
        log: str = DEFAULT_LOG,
        rsm_root: str = DEFAULT_RSM_ROOT,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | TlsSettings | None = None,
        codec: PayloadCodec | None = None,
    ) -> Self:
        """Return a client. See `AsyncBrokerClient.connect`."""
        return cls(
            lambda: AsyncBrokerClient.connect(
                urls,
                metadata_uri=metadata_uri,
                token=token,
                token_file=token_file,
                tenant=tenant,
                log=log,
                rsm_root=rsm_root,
                timeout_s=timeout_s,
                tls=tls,
                codec=codec,
            )
        )

    @property
    def url(self) -> str:
        """URL of the broker in use; "" while none is."""
        return self.asynchronous.url

    @contextlib.contextmanager
    def transaction(self, *, ttl_s: float = 300.0) -> Iterator[BlockingTransaction]:
        """Submit many tasks, all or none: committed at the end of the block, rolled back if it raises.

        See `AsyncBrokerClient.transaction`. What it raises while the block runs is told at the end of the block.
        """
        with self.thread.enter(self.asynchronous.transaction(ttl_s=ttl_s)) as entered:
            yield BlockingTransaction(self.thread, entered)

    def events(self, from_revision: int | None = None) -> Iterator[Event]:
        """Iterate over what is logged, for ever: each event once, in order, through failovers.

        See `AsyncBrokerClient.events`.
        """
        return self.thread.iterate(self.asynchronous.events(from_revision))

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
        """Submit a task, once, whatever fails meanwhile; return its id. See `AsyncBrokerClient.submit`."""
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
        """Submit tasks in batches, each whole or not at all; those whose slot is taken are told, not raised.

        See `AsyncBrokerClient.submit_many`.
        """
        return self.thread.run(
            self.asynchronous.submit_many(
                list(tasks), batch=batch, request_key=request_key, transaction=transaction, limit_s=limit_s
            )
        )

    def begin(self, *, ttl_s: float = 300.0, limit_s: float | None = None) -> Transaction:
        """Begin a transaction, which is rolled back by itself after `ttl_s`."""
        return self.thread.run(self.asynchronous.begin(ttl_s=ttl_s, limit_s=limit_s))

    def commit(self, transaction: int, *, limit_s: float | None = None) -> int:
        """Have the tasks of a transaction wait to be run, all at once; return how many there are.

        See `AsyncBrokerClient.commit`.
        """
        return self.thread.run(self.asynchronous.commit(transaction, limit_s=limit_s))

    def rollback(self, transaction: int, *, limit_s: float | None = None) -> None:
        """Forget the tasks of a transaction."""
        self.thread.run(self.asynchronous.rollback(transaction, limit_s=limit_s))

    def get(self, task_id: int, *, limit_s: float | None = None) -> Task:
        """Return a task, with payload and result. See `AsyncBrokerClient.get`."""
        return self.thread.run(self.asynchronous.get(task_id, limit_s=limit_s))

    def page(
        self,
        *,
        status: str | Sequence[str] = (),
        type: str = "",
        worker: str = "",
        slot: str = "",
        key: str = "",
        after: int = 0,
        count: int = 100,
        order: Order = "oldest",
        limit_s: float | None = None,
    ) -> TaskPage:
        """Return tasks by filter, by id, without payload and result: `count` at most, those after an id."""
        return self.thread.run(
            self.asynchronous.page(
                status=status,
                type=type,
                worker=worker,
                slot=slot,
                key=key,
                after=after,
                count=count,
                order=order,
                limit_s=limit_s,
            )
        )

    def tasks(
        self,
        *,
        status: str | Sequence[str] = (),
        type: str = "",
        worker: str = "",
        slot: str = "",
        key: str = "",
        count: int | None = None,
        order: Order = "oldest",
    ) -> Iterator[Task]:
        """Iterate over tasks by filter, page after page; at most `count` of them."""
        return self.thread.iterate(
            self.asynchronous.tasks(
                status=status, type=type, worker=worker, slot=slot, key=key, count=count, order=order
            )
        )

    def wait(self, task_id: int, *, timeout_s: float | None = None) -> Task:
        """Wait until a task has ended, however; return it. See `AsyncBrokerClient.wait`."""
        return self.thread.run(self.asynchronous.wait(task_id, timeout_s=timeout_s))

    def result(self, task_id: int, *, timeout_s: float | None = None) -> bytes:
        """Wait until a task has ended; return its result. See `AsyncBrokerClient.result`."""
        return self.thread.run(self.asynchronous.result(task_id, timeout_s=timeout_s))

    def explain(self, task_id: int, *, limit_s: float | None = None) -> Explanation:
        """Return why a task is where it is: the exact limit, or its place."""
        return self.thread.run(self.asynchronous.explain(task_id, limit_s=limit_s))

    def cancel(self, *task_ids: int, limit_s: float | None = None) -> Change:
        """Cancel tasks: those that wait at once, those that run by asking their workers, which confirm."""
        return self.thread.run(self.asynchronous.cancel(*task_ids, limit_s=limit_s))

    def change(
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
        self.thread.run(
            self.asynchronous.change(
                task_id, priority=priority, group=group, resources=resources, deadline_ms=deadline_ms, limit_s=limit_s
            )
        )

    def replay_dead(self, *task_ids: int, type: str = "", outcome: str = "", limit_s: float | None = None) -> Change:
        """Have dead letters wait again: these, or all that fit type and outcome; all of them or none.

        See `AsyncBrokerClient.replay_dead`.
        """
        return self.thread.run(self.asynchronous.replay_dead(*task_ids, type=type, outcome=outcome, limit_s=limit_s))

    def delete_dead(self, *task_ids: int, limit_s: float | None = None) -> Change:
        """Forget dead letters before their time; what is none, or none any more, is passed over."""
        return self.thread.run(self.asynchronous.delete_dead(*task_ids, limit_s=limit_s))

    def status(self) -> BrokerStatus:
        """Return what the broker in use says of itself."""
        return self.thread.run(self.asynchronous.status())

    def overview(self) -> Overview:
        """Return counts: of the tenant, or of all for an administrator who names none."""
        return self.thread.run(self.asynchronous.overview())

    def workers(self) -> list[WorkerSummary]:
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
        """Iterate over tenants with a policy or with tasks, by name."""
        return self.thread.iterate(self.asynchronous.tenants())

    def tenant(self, tenant: str) -> Tenant:
        """Return a tenant. See `AsyncBrokerClient.tenant`."""
        return self.thread.run(self.asynchronous.tenant(tenant))

    def set_tenant(self, tenant: str, policy: TenantPolicy) -> None:
        """Set the policy of a tenant, whole; it holds from the next dispatch, for waiting tasks too."""
        self.thread.run(self.asynchronous.set_tenant(tenant, policy))

    def change_tenant(self, tenant: str, **changes: Any) -> TenantPolicy:
        """Set some fields of a tenant's policy and leave the others; return the policy.

        See `AsyncBrokerClient.change_tenant`.
        """
        return self.thread.run(self.asynchronous.change_tenant(tenant, **changes))

    def remove_tenant(self, tenant: str) -> None:
        """Go back to the default policy."""
        self.thread.run(self.asynchronous.remove_tenant(tenant))

    def limits(self) -> Limits:
        """Return resources with their limits and use, and holds."""
        return self.thread.run(self.asynchronous.limits())

    def hold(
        self,
        *,
        tenant: str = "",
        type: str = "",
        key: str = "",
        is_paused: bool = True,
        is_draining: bool = False,
        until_ms: int = 0,
        reason: str = "",
    ) -> None:
        """Hold tasks back by tenant, type and key; "" = any. See `AsyncBrokerClient.hold`."""
        self.thread.run(
            self.asynchronous.hold(
                tenant=tenant,
                type=type,
                key=key,
                is_paused=is_paused,
                is_draining=is_draining,
                until_ms=until_ms,
                reason=reason,
            )
        )

    def release(self, *, tenant: str = "", type: str = "", key: str = "") -> None:
        """End a hold."""
        self.thread.run(self.asynchronous.release(tenant=tenant, type=type, key=key))

    def limit(self, resource: str, amount_max: int | None, *, tenant: str = "", type: str = "") -> None:
        """Limit what all workers together use of a resource, in all or of one tenant or type; None = no limit."""
        self.thread.run(self.asynchronous.limit(resource, amount_max, tenant=tenant, type=type))

    def codes(self) -> list[Code]:
        """Return the code pools, by name."""
        return self.thread.run(self.asynchronous.codes())

    def deploy_code(
        self,
        path: Path | str,
        *,
        entries: Sequence[str] = (),
        network: bool = False,
        name: str = "",
        ttl_s: float = 0.0,
    ) -> str:
        """Pack a folder, package or module and keep it at the broker; return its name, for `NewTask.code`.

        See `AsyncBrokerClient.deploy_code`.
        """
        return self.thread.run(
            self.asynchronous.deploy_code(path, entries=entries, network=network, name=name, ttl_s=ttl_s)
        )

    def put_code(self, name: str, archive: bytes, *, ttl_s: float = 0.0) -> str:
        """Keep a zip at the broker; return its name."""
        return self.thread.run(self.asynchronous.put_code(name, archive, ttl_s=ttl_s))

    def code(self, name: str) -> bytes:
        """Return the zip of a code pool."""
        return self.thread.run(self.asynchronous.code(name))

    def remove_code(self, name: str) -> None:
        """Forget a code pool; refused while a task that has not ended needs it."""
        self.thread.run(self.asynchronous.remove_code(name))
