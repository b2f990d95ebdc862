"""A worker of a pool: runs in whatever process it was started in, until the pool's keeper lets it go.

It begins when the keeper says so, and ends when it is told to; when the keeper has not been there for a while; when the
broker has another one of its name; or when its executor can do no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from broker.machine.commands import EndedRun
from broker.pool.core.messages import Hello, Left, Order, Report
from broker.pool.link import PoolLink
from broker.worker.codec import load_codec
from broker.worker.executors.executor import Executor
from broker.worker.work_options import WorkOptions
from broker.worker.worker import Worker
from ledger.errors import UsageError
from rsm_spark.errors import RsmError
from rsm_spark.transport.security import Security

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 0.25
_LEAVE_S = 20.0
"""Time beyond its drain that a worker may take before it is left as it is."""


class MemberSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Description of one worker of a pool, given to it at its start; it travels as JSON.

    Attributes:
        pool: Name of the pool: its workers are called `pool-index`.
        index: Place in the pool.
        launch: Which start it belongs to.
        host: Where the keeper listens.
        port: Its port.
        secret: Of the pool, as hexadecimal digits.
        brokers: Addresses of any of the brokers; empty = the leader is found through ZooKeeper.
        metadata_uri: Where that is; None = as the worker's environment says.
        work: What the worker does, as for `rsm worker run`; its own name and place excepted.
        security: Files of keys and of the token, on the worker's machine; None = as its environment says.
        orphaned_s: Without its keeper for so long, the worker drains.
        folder: Relative paths of `security` are also looked for there.

    """

    pool: str
    index: int
    launch: int
    host: str
    port: int
    secret: str
    brokers: list[str] = []
    metadata_uri: str | None = None
    work: WorkOptions = WorkOptions()
    security: Security | None = None
    orphaned_s: float = 20.0
    folder: str = ""

    @property
    def worker_id(self) -> str:
        """Its name at the broker: the same for every start of this place."""
        return f"{self.pool}-{self.index}"

    def found_security(self) -> Security | None:
        """Return the files, those that were shipped with the code by where they are now."""
        if self.security is None:
            return None
        paths = msgspec.structs.asdict(self.security)
        found: dict[str, Any] = {name: path and self._found(path) for name, path in paths.items()}
        return Security(**found)

    def _found(self, path: str) -> str:
        shipped = Path(self.folder) / path
        return str(shipped) if self.folder and not Path(path).exists() and shipped.exists() else path


# Made once, at the import: msgspec looks a type up at its first use, and threads that do so at once crash the process.
_SPECS = msgspec.json.Decoder(MemberSpec)


def run_member(spec_text: str, attempt: int, folder: str = "") -> str:
    """Work, and block until it is over.

    Args:
        spec_text: A `MemberSpec` as JSON.
        attempt: Which attempt of its launch this is: 0 at first.
        folder: Where files that were shipped with the code lie.

    Returns:
        "" if it has left in good order, or the keeper knows why not; else why it ended.

    """
    spec = msgspec.structs.replace(_SPECS.decode(spec_text), folder=folder)
    return asyncio.run(_Member(spec, attempt).run())


class _CountingWorker(Worker):
    ended = 0

    def on_ended(self, ends: Sequence[EndedRun]) -> None:
        self.ended += len(ends)
        super().on_ended(ends)


class _Member:
    def __init__(self, spec: MemberSpec, attempt: int) -> None:
        self._spec = spec
        self._location = f"{socket.gethostname()}:{os.getpid()}"
        hello = Hello(spec.index, spec.launch, attempt, os.urandom(8).hex(), self._location)
        self._link = PoolLink(spec.host, spec.port, bytes.fromhex(spec.secret), hello, self._on_order)
        self._worker: _CountingWorker | None = None
        self._is_to_begin = asyncio.Event()
        self._order = Order.DRAIN

    async def run(self) -> str:
        keeping = asyncio.create_task(self._link.keep(self._spec.orphaned_s))
        beginning = asyncio.create_task(self._is_to_begin.wait())
        try:
            await asyncio.wait([keeping, beginning], return_when=asyncio.FIRST_COMPLETED)
            if keeping.done():
                return keeping.result()
            if self._order is not Order.WORK:
                return ""
            left = await self._work(keeping)
            await self._link.leave(left)
            return left.why
        finally:
            for task in (beginning, keeping):
                task.cancel()
            await asyncio.wait([beginning, keeping])

    def _on_order(self, order: Order) -> None:
        self._order = order
        self._is_to_begin.set()
        if self._worker is not None and order is Order.DRAIN:
            self._worker.drain()
        elif self._worker is not None and order is Order.STOP:
            self._worker.stop()

    async def _work(self, keeping: asyncio.Task[str]) -> Left:
        spec = self._spec
        try:
            executor = spec.work.make_executor()
            self._worker = worker = _CountingWorker(
                spec.work.settings(spec.worker_id, self._location),
                executor,
                brokers=spec.brokers,
                metadata_uri=spec.metadata_uri,
                security=spec.found_security(),
                codec=load_codec(spec.work.codec) if spec.work.codec else None,
            )
            async with worker:
                if self._order is not Order.WORK:
                    worker.drain()  # It was told while it was being made.
                return await self._until_left(worker, executor, keeping)
        except UsageError as error:
            return Left(str(error), is_fault=True)
        except RsmError as error:
            return Left(str(error))

    async def _until_left(self, worker: _CountingWorker, executor: Executor, keeping: asyncio.Task[str]) -> Left:
        leaving = asyncio.create_task(worker.wait_left())
        said = Report()
        leave_by_s = float("inf")
        loop = asyncio.get_running_loop()
        why = ""
        try:
            while not leaving.done():
                types = executor.types
                report = Report(
                    worker.is_connected,
                    worker.running,
                    worker.ended,
                    None if types is None else list(types),
                    "" if worker.is_connected else worker.trouble,
                )
                if report != said:
                    self._link.report(report)
                    said = report
                if keeping.done() and not worker.is_draining:
                    why = keeping.result()
                    _LOGGER.warning("drains: %s", why)
                    worker.drain()
                if worker.is_draining and leave_by_s == float("inf"):
                    leave_by_s = loop.time() + self._spec.work.worker.drain_s + _LEAVE_S
                if loop.time() > leave_by_s:
                    worker.stop()
                await asyncio.wait([leaving], timeout=_LOOK_S)
            leaving.result()
            self._link.report(msgspec.structs.replace(said, running=0, ended=worker.ended))
        finally:
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError, RsmError, UsageError):
                await leaving
        return Left(why)
