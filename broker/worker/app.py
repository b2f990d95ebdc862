"""The worker process: everything is wired here. `rsm worker run` ends in `run_worker`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from broker.worker.executors.executor import Executor
from broker.worker.settings import WorkerSettings
from broker.worker.worker import Worker
from ledger.http.probe_server import ProbeServer
from ledger.process_guard import STALL_S, STOP_S, ProcessGuard
from rsm_spark.codecs.framing import PayloadCodec
from rsm_spark.transport.security import Security


class WorkerReady(msgspec.Struct, frozen=True):
    """The line by which a worker says that a broker serves it."""

    ready: bool
    worker_id: str
    incarnation: str
    broker: str
    pid: int
    threads: int
    executor: str
    http_address: str = ""


OpenHttp = Callable[[Worker], Awaitable[ProbeServer | None]]
"""Opens the HTTP port of a worker; None = there is none."""


async def work(
    settings: WorkerSettings,
    executor: Executor,
    *,
    brokers: Sequence[str] = (),
    metadata_uri: str | None = None,
    security: Security | None = None,
    codec: PayloadCodec | None = None,
    on_ready: Callable[[WorkerReady], None] | None = None,
    stall_s: float = STALL_S,
    open_http: OpenHttp | None = None,
) -> None:
    """Run a worker until SIGTERM or SIGINT, which drain it; the second one ends it at once.

    Args:
        settings: What it is and offers.
        executor: What runs its tasks.
        brokers: Addresses of any of the brokers; empty = the leader is found through ZooKeeper.
        metadata_uri: Where that is; None = as the environment says.
        security: TLS and token; None = as the environment says.
        codec: Decodes payloads and encodes results.
        on_ready: Called once a broker serves it.
        stall_s: How long the event loop may stand still before the process ends; 0 = for ever. Tasks run elsewhere.
        open_http: Opens the HTTP port; None = there is none.

    Raises:
        UsageError: A setting makes no sense, the executor cannot start, or another process works by its name.

    """
    worker = Worker(settings, executor, brokers=brokers, metadata_uri=metadata_uri, security=security, codec=codec)
    loop = asyncio.get_running_loop()

    def _on_signal() -> None:
        if worker.is_draining:
            worker.stop()
        else:
            worker.drain()

    guard = ProcessGuard(f"worker {settings.worker_id}", stall_s=stall_s, stop_s=None, on_signal=_on_signal)
    async with worker:
        with guard:
            http = None if open_http is None else await open_http(worker)
            guard.ready()
            address = "" if http is None else http.address
            announcing = loop.create_task(_announce(worker, settings, executor, on_ready, address))
            try:
                await worker.wait_left()
            finally:
                if http is not None:
                    await http.stop()
                announcing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await announcing
                guard.end_within(STOP_S)


def run_worker(
    settings: WorkerSettings,
    executor: Executor,
    *,
    brokers: Sequence[str] = (),
    metadata_uri: str | None = None,
    security: Security | None = None,
    codec: PayloadCodec | None = None,
    on_ready: Callable[[WorkerReady], None] | None = None,
    stall_s: float = STALL_S,
    open_http: OpenHttp | None = None,
) -> None:
    """Do what `work` does, and block until it is over. For the main thread of a program that is nothing but a worker.

    Raises:
        UsageError: See `work`.

    """
    running = work(
        settings,
        executor,
        brokers=brokers,
        metadata_uri=metadata_uri,
        security=security,
        codec=codec,
        on_ready=on_ready,
        stall_s=stall_s,
        open_http=open_http,
    )
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        asyncio.run(running)
    else:
        uvloop.run(running)


async def _announce(
    worker: Worker,
    settings: WorkerSettings,
    executor: Executor,
    on_ready: Callable[[WorkerReady], None] | None,
    http_address: str,
) -> None:
    if on_ready is None:
        return
    address = await worker.wait_connected()
    kind = type(executor).__name__.removesuffix("Executor").lower()
    pid, threads = os.getpid(), settings.threads
    on_ready(WorkerReady(True, worker.worker_id, worker.incarnation, address, pid, threads, kind, http_address))  # noqa: FBT003
