"""The worker process: everything is wired here. `rsm worker run` ends in `run_worker`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence

import msgspec

from broker.worker.executors.executor import Executor
from broker.worker.settings import WorkerSettings
from broker.worker.worker import Worker
from rsm_spark.grpc.security import Security

__all__ = ["WorkerReady", "run_worker", "work"]


class WorkerReady(msgspec.Struct, frozen=True):
    """The line by which a worker says that a broker serves it."""

    ready: bool
    worker_id: str
    incarnation: str
    broker: str
    pid: int
    threads: int
    executor: str


async def work(
    settings: WorkerSettings,
    executor: Executor,
    *,
    brokers: Sequence[str] = (),
    metadata_uri: str | None = None,
    security: Security | None = None,
    on_ready: Callable[[WorkerReady], None] | None = None,
) -> None:
    """Run a worker until SIGTERM or SIGINT, which drain it; the second one ends it at once.

    Args:
        settings: What it is and offers.
        executor: What runs its tasks.
        brokers: Addresses of any of the brokers; empty = the leader is found through ZooKeeper.
        metadata_uri: Where that is; None = as the environment says.
        security: TLS and token; None = as the environment says.
        on_ready: Called once a broker serves it.

    Raises:
        UsageError: A setting makes no sense, the executor cannot start, or another process works by its name.

    """
    worker = Worker(settings, executor, brokers=brokers, metadata_uri=metadata_uri, security=security)
    loop = asyncio.get_running_loop()

    def _on_signal() -> None:
        if worker.is_draining:
            worker.stop()
        else:
            worker.drain()

    async with worker:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _on_signal)
        announcing = loop.create_task(_announce(worker, settings, executor, on_ready))
        try:
            await worker.wait_left()
        finally:
            announcing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await announcing
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def run_worker(
    settings: WorkerSettings,
    executor: Executor,
    *,
    brokers: Sequence[str] = (),
    metadata_uri: str | None = None,
    security: Security | None = None,
    on_ready: Callable[[WorkerReady], None] | None = None,
) -> None:
    """Do what `work` does, and block until it is over. For the main thread of a program that is nothing but a worker.

    Raises:
        UsageError: See `work`.

    """
    running = work(settings, executor, brokers=brokers, metadata_uri=metadata_uri, security=security, on_ready=on_ready)
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        asyncio.run(running)
    else:
        uvloop.run(running)


async def _announce(
    worker: Worker, settings: WorkerSettings, executor: Executor, on_ready: Callable[[WorkerReady], None] | None
) -> None:
    if on_ready is None:
        return
    address = await worker.wait_connected()
    kind = type(executor).__name__.removesuffix("Executor").lower()
    on_ready(WorkerReady(True, worker.worker_id, worker.incarnation, address, os.getpid(), settings.threads, kind))  # noqa: FBT003
