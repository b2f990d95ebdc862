"""Consumers of a client's watches: their positions stand in the metadata store, so that the log is held for them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from ledger.ports import MetadataStore
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import ConsumerError, LogConsumers

_MOVE_S = 1.0


class ClientConsumers:
    """Consumers of one log that one client speaks for.

    Args:
        store: Session with the metadata store.
        log: Name of the log.
        rsm_root: Where logs live.
        clock: Monotonic seconds; None = the event loop's.
        kind: What these consumers are, in one word.

    """

    def __init__(
        self,
        store: MetadataStore,
        log: str,
        rsm_root: str,
        *,
        clock: Callable[[], float] | None = None,
        kind: str = "watch",
    ) -> None:
        self._store = store
        self._log = log
        self._root = rsm_root
        self._clock = clock
        self._kind = kind
        self._holder = os.urandom(16).hex()
        self._found: LogConsumers | None = None
        self._written: dict[str, int] = {}  # By consumer, the position that stands in the store.
        self._processed: dict[str, int] = {}
        self._written_s: dict[str, float] = {}

    async def begin(self, name: str, revision: int | None) -> int | None:
        """Register a consumer, or take over the one of this name.

        Args:
            name: Of the consumer.
            revision: Last revision that it has processed; None = as its registration says.

        Returns:
            The last revision that it has processed; None if nobody is registered and `revision` does not say.

        Raises:
            ConsumerError: It cannot be registered.
            NoSuchLogError: There is no such log.
            MetadataError: The metadata store cannot be asked.

        """
        consumers = await self._consumers()
        if revision is None:
            known = {one.name: one for one in await consumers.present()}.get(name)
            if known is None:
                return None
            if known.problem:
                raise ConsumerError(f"consumer {name} of log {self._log}: {known.problem}; say where to begin")
            revision = known.state.revision
        what = f"{self._kind}, process {os.getpid()} on {socket.gethostname()}"
        await consumers.register(self._log, name, revision, what=what, holder=self._holder)
        self._written[name] = self._processed[name] = revision
        return revision

    async def processed(self, name: str, revision: int) -> None:
        """Let go of what a consumer has processed, at most once a second; `flush` writes what is left.

        Raises:
            ConsumerError: It is not registered by this client; or not any more.
            MetadataError: The metadata store cannot be asked; the position may have moved.

        """
        if name not in self._written:
            raise ConsumerError(
                f"consumer {name} of log {self._log}: no watch of this client has that name (watch(consumer=…))"
            )
        self._processed[name] = max(revision, self._processed[name])
        if self._now() - self._written_s.get(name, float("-inf")) >= _MOVE_S:
            await self._write(name)

    def written(self, name: str) -> int:
        """Return the last revision that is written down as processed."""
        return self._written[name]

    async def flush(self) -> None:
        """Write down what has been processed.

        Raises:
            ConsumerError, MetadataError: See `processed`.

        """
        for name in self._written:
            await self._write(name)

    async def _write(self, name: str) -> None:
        revision = self._processed[name]
        if revision > self._written[name]:
            self._written_s[name] = self._now()
            await (await self._consumers()).advance(name, revision, holder=self._holder)
            self._written[name] = max(revision, self._written[name])

    async def _consumers(self) -> LogConsumers:
        if self._found is None:
            chain, _ = await ChainStore(self._store, self._log, self._root).read()
            self._found = LogConsumers(self._store, chain.log_id, self._root)
        return self._found

    def _now(self) -> float:
        return self._clock() if self._clock is not None else asyncio.get_running_loop().time()
