"""Clients of lookup joins: one of each log and kind in a process, for all tasks that run there one after the other."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

from connectors.errors import OptionError
from ledger.loop_thread import LoopThread
from rsm_spark.core.chain import DEFAULT_RSM_ROOT

TIMEOUT_S = 60.0
LookupKind = Literal["map", "sql", "service"]
T = TypeVar("T")


class LookupSource(NamedTuple):
    """Source of what a frame is joined with.

    Attributes:
        kind: A map, SQL tables, or a service with typed queries.
        log: Its name.
        metadata_uri: None = environment or default.
        rsm_root: Where the logs are registered.
        read_from: "leader", or "followers", which ask the leader how far the log is: as fresh, and it reads nothing.
        timeout_s: How long a call is sent again while no replica leads.

    """

    kind: LookupKind
    log: str
    metadata_uri: str | None
    rsm_root: str
    read_from: Any
    timeout_s: float


class LookupOptions(TypedDict, total=False):
    """Options of a lookup: where its source is, and how it is asked.

    Attributes:
        metadata_uri: None = as the executors' environment says.
        rsm_root: Root of the logs in ZooKeeper.
        read_from: "leader"; or "followers", whose answers are as fresh, and which spare the leader the reads.
        timeout_s: How long a task waits for an answer.

    """

    metadata_uri: str | None
    rsm_root: str
    read_from: str
    timeout_s: float


def lookup_source(kind: LookupKind, log: str, options: LookupOptions) -> LookupSource:
    """Return the source that options name.

    Raises:
        OptionError: It cannot be.

    """
    read_from = options.get("read_from", "leader")
    if read_from not in {"leader", "followers"}:
        raise OptionError(f"read_from is {read_from!r}: it may be leader or followers")
    return LookupSource(
        kind,
        log,
        options.get("metadata_uri"),
        options.get("rsm_root", DEFAULT_RSM_ROOT),
        read_from,
        options.get("timeout_s", TIMEOUT_S),
    )


class LookupLink:
    """Client of one log.

    Attributes:
        client: A `MapClient`, `SqlClient` or `ServiceClient`, whose calls `run` waits for.

    """

    _present: dict[LookupSource, LookupLink] = {}  # noqa: RUF012 - of the process

    def __init__(self, source: LookupSource) -> None:
        self._pid = os.getpid()
        self._thread = LoopThread("ledger-lookup")
        self.client: Any = self._thread.run(_connect(source))

    @classmethod
    def of_process(cls, source: LookupSource) -> LookupLink:
        """Return that of this process; a forked child has none of its parent's threads and makes its own."""
        found = cls._present.get(source)
        if found is None or found._pid != os.getpid():
            found = cls._present[source] = cls(source)
        return found

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a call of the client."""
        return self._thread.run(work)


async def _connect(source: LookupSource) -> Any:
    # A task needs one of them.
    match source.kind:
        case "map":
            from rsm_spark.map import MapClient as Client  # noqa: PLC0415
        case "sql":
            from rsm_spark.sql import SqlClient as Client  # type: ignore[assignment]  # noqa: PLC0415
        case "service":
            from rsm_spark.client.service_client import ServiceClient as Client  # type: ignore[assignment]  # noqa: PLC0415
    return await Client.connect(
        source.log,
        source.metadata_uri,
        read_from=source.read_from,
        rsm_root=source.rsm_root,
        timeout_s=source.timeout_s,
    )
