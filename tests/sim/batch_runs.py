"""Writers of batches of a simulated log: drivers of queries that crash, and run their batches until they have ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ledger.errors import LedgerError
from ledger.testing.hosts import SimHost
from rsm_spark.core.writer_marks import MarkedReply, MarkedStatus, MarkKind, WriterMark
from rsm_spark.errors import RsmError

_PATIENCE_S = 3.0

Row = tuple[bytes | None, bytes]
"""Key and payload."""

MakeRow = Callable[..., Row]
"""(writer, batch, part, chunk, row) -> the row, the same at each run."""


class MarkedLogWriter(Protocol):
    """Writer of a log, plain or partitioned."""

    async def write_marked(
        self,
        mark: WriterMark,
        payloads: Sequence[bytes] = (),
        *,
        keys: Sequence[bytes | None] | None = None,
        owner: str = "",
    ) -> MarkedReply: ...


class BatchTruth(Protocol):
    """Witness of what was said of batches."""

    ended: set[bytes]
    ending: set[bytes]

    def fail(self, name: str, what: str) -> None: ...


class MarkedLogs(Protocol):
    """Simulated cluster of one log."""

    is_over: bool

    @property
    def writers(self) -> Mapping[str, MarkedLogWriter]: ...

    @property
    def truth(self) -> BatchTruth: ...


def rows_of_batch(make_row: MakeRow, writer: str, batch: int) -> dict[tuple[int, int], list[Row]]:
    """Return the rows of a batch by part and chunk, the same at each run."""
    draw = random.Random(f"{writer}.{batch}")
    parts = {part: draw.randrange(1, 4) for part in range(draw.randrange(1, 4))}
    return {
        (part, chunk): [make_row(writer, batch, part, chunk, row) for row in range(draw.randrange(1, 3))]
        for part, chunks in parts.items()
        for chunk in range(chunks)
    }


class BatchRuns:
    """See the module.

    Args:
        cluster: Has the log.
        make_row: Makes the rows.
        rng: Of the cluster.

    Attributes:
        batched: Ends of batches that were acknowledged.
        ending: Set while the end of some batch is sent.

    """

    def __init__(self, cluster: MarkedLogs, make_row: MakeRow, rng: random.Random) -> None:
        self.batched = 0
        self.ending = asyncio.Event()
        self._cluster = cluster
        self._make_row = make_row
        self._rng = rng
        # Of each host the next batch, as a checkpoint has it: it outlives the host's crashes.
        self._checkpoints: dict[str, int] = {}

    async def write(self, host: SimHost) -> None:
        """Be the driver of a query: each batch is run until its end is acknowledged, some are run again after that."""
        rng = random.Random(self._rng.random())
        while not self._cluster.is_over:
            batch, run = self._checkpoints.setdefault(host.name, 0), f"{rng.getrandbits(32):08x}"
            if await self._run_batch(host.name, run, batch, rng) and rng.random() < 0.8:
                self._checkpoints[host.name] = batch + 1
            await asyncio.sleep(rng.choice((0.0, 0.05, 0.5)))

    async def _run_batch(self, writer: str, run: str, batch: int, rng: random.Random) -> bool:
        """Send the chunks of all parts, then the end; return whether that was acknowledged."""
        rows = rows_of_batch(self._make_row, writer, batch)
        parts = {part: max(chunk for one, chunk in rows if one == part) + 1 for part, _ in rows}

        def mark(kind: MarkKind, part: int = 0, chunk: int = 0) -> WriterMark:
            named = tuple(parts.items()) if kind is MarkKind.END else ()
            return WriterMark(writer, kind, "checkpoint", run, batch, part, chunk, parts=named)

        async def send_part(part: int) -> bool:
            sent = [await self._send(mark(MarkKind.CHUNK, part, chunk), rows[part, chunk], rng)
                    for chunk in range(parts[part])]  # fmt: skip
            return all(sent)

        if not all(await asyncio.gather(*map(send_part, parts))):
            return False
        payloads = {payload for some in rows.values() for _, payload in some}
        self._cluster.truth.ending |= payloads
        self.ending.set()
        has_ended = await self._send(mark(MarkKind.END), [], rng)
        self.ending.clear()
        if not has_ended:
            return False
        self._cluster.truth.ended |= payloads
        self.batched += 1
        return True

    async def _send(self, mark: WriterMark, rows: Sequence[Row], rng: random.Random) -> bool:
        """Send it to writers of the log until one has answered; some answers are lost."""
        cluster = self._cluster
        keys, payloads = [key for key, _ in rows], [payload for _, payload in rows]
        while not cluster.is_over:
            open_ones = sorted(cluster.writers)
            try:
                if open_ones:
                    async with asyncio.timeout(_PATIENCE_S):
                        reply = await cluster.writers[rng.choice(open_ones)].write_marked(mark, payloads, keys=keys)
                    if reply.status in (MarkedStatus.APPLIED, MarkedStatus.DONE):
                        if rng.random() > 0.2:
                            return True
                    elif "was taken over from" in reply.reason:
                        return False  # An earlier life of this host is still on its way.
                    else:
                        cluster.truth.fail("batch-known", reply.reason)
            except (RsmError, LedgerError, TimeoutError):
                pass
            await asyncio.sleep(rng.choice((0.01, 0.3)))
        return False
