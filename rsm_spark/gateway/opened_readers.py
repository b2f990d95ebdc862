"""Readers that a gateway opens for whoever asks: of a plain log, and of all partitions of a partitioned one.

Both hand out records with the place behind each, which is where a client that comes again goes on: the position of the
record in a plain log (what follows it is next), and in a partitioned one the next position of each partition.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

from ledger.http.pools import Holder, Pool
from ledger.http.problems import HttpProblem, retry_after
from rsm_spark.core.partition_cursor import decode_cursor, encode_cursor
from rsm_spark.errors import LogError
from rsm_spark.gateway_client.shapes import ReadRecord
from rsm_spark.logs.namespace import Logs
from rsm_spark.logs.partitioned_reader import PartitionedLogReader
from rsm_spark.logs.record_reader import PlainLogReader

PARTITIONS_A_SEAT = 4
"""Partitions whose read-ahead has as much memory as that of one plain log."""

_DIGITS_MAX = 16
_DRAIN_S = 15.0
"""In which it has to be known what partitions hold, beside the time for the first record."""


Start = int | Literal["begin", "end"] | dict[int, int]
"""First position; where the log begins; behind what is confirmed now; or the first position by partition."""


class PlacedRecord(NamedTuple):
    """A record, and the id of its event: the place from which a reader that comes again goes on."""

    place: str
    shape: ReadRecord


class PlacedPage(NamedTuple):
    """A page of records, and where the next one begins; see `RecordsPage`."""

    records: list[PlacedRecord]
    next: int | str
    is_ended: bool


class PlainReader:
    """Reader of a plain log.

    Args:
        reader: Of the log.
        known: Position up to which the log is known to be confirmed: it can be read, as soon as bookies tell so.

    Attributes:
        reader: Of the log.

    """

    def __init__(self, reader: PlainLogReader, known: int) -> None:
        self.reader = reader
        self._known = known

    @property
    def next(self) -> int | str:
        """Return the place where the next page begins."""
        return self.reader.position + 1

    @property
    def is_ended(self) -> bool:
        """True once the end mark was read."""
        return self.reader.is_ended

    def gives_up(self, left_s: float, *, is_empty: bool) -> bool:
        """Return whether a page is sent as it is after a read that brought nothing.

        What this gateway has confirmed, it shows: bookies may learn some ms later than the producer that it is.

        Args:
            left_s: Of the time that it may wait for its first record.
            is_empty: It has none yet.

        """
        if self.reader.read_through < self._known and left_s >= -_DRAIN_S:
            return False
        return not is_empty or left_s <= 0

    @property
    def partition_count(self) -> int:
        """Number of partitions that are read; 1 for a plain log."""
        return 1

    async def read(self, records_max: int) -> list[PlacedRecord]:
        """Return the next records, without waiting for any."""
        records = await self.reader.read(records_max)
        return [PlacedRecord(str(record.position), ReadRecord(*record)) for record in records]

    async def wait(self, timeout_s: float) -> None:
        """Wait until there may be more."""
        await self.reader.wait(timeout_s)

    async def close(self) -> None:
        """Let go of everything."""
        await self.reader.close()


class PartitionsReader:
    """Reader of all partitions of a log.

    Attributes:
        reader: Of the log.
        follow: It waits for what is appended later.

    """

    def __init__(self, reader: PartitionedLogReader, *, follow: bool) -> None:
        self.reader = reader
        self._follow = follow
        self._places = self._handed_out()

    def _handed_out(self) -> dict[int, int]:
        return {partition: position + 1 for partition, position in self.reader.positions.items() if position}

    @property
    def next(self) -> int | str:
        """Return the place where the next page begins."""
        return encode_cursor(self._places) or "begin"

    @property
    def is_ended(self) -> bool:
        """True once all partitions were read to their end marks."""
        return self.reader.has_ended

    def gives_up(self, left_s: float, *, is_empty: bool) -> bool:
        """Return whether a page is sent as it is after a read that brought nothing.

        Partitions are read ahead, so that no record at hand does not say that there is none in the log: a reader that
        does not follow the log goes on until it knows.

        Args:
            left_s: Of the time that it may wait for its first record.
            is_empty: It has none yet.

        Raises:
            TimeoutError: The partitions cannot be read in time.

        """
        if self._follow:
            return not is_empty or left_s <= 0
        if left_s >= -_DRAIN_S or self.reader.is_ended:
            return self.reader.is_ended
        if is_empty:
            raise TimeoutError("the partitions cannot be read in time")
        return True

    @property
    def partition_count(self) -> int:
        """Number of partitions that are read."""
        return len(self.reader.positions)

    async def read(self, records_max: int) -> list[PlacedRecord]:
        """Return the next records, without waiting for any."""
        found: list[PlacedRecord] = []
        places = self._places
        for partition, position, txid, key, payload, logged_ms in await self.reader.read(records_max, wait_s=0.0):
            places[partition] = position + 1
            shape = ReadRecord(position, txid, key, payload, logged_ms, partition)
            found.append(PlacedRecord(encode_cursor(places), shape))
        self._places = self._handed_out()  # The logs' own records have positions, too.
        return found

    async def wait(self, timeout_s: float) -> None:
        """Wait until there may be more."""
        await self.reader.wait(timeout_s)

    async def close(self) -> None:
        """Let go of everything."""
        await self.reader.close()


AnyReader = PlainReader | PartitionsReader


def parse_start(text: str) -> Start:
    """Read where a page or a stream begins.

    Raises:
        HttpProblem: 400: it says nothing of the kind.

    """
    if text == "begin":
        return "begin"
    if text == "end":
        return "end"
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return max(1, int(text))
    if ":" in text:
        try:
            return decode_cursor(text)
        except LogError as error:
            raise HttpProblem(400, "invalid", f"from: {error}") from None
    raise HttpProblem(400, "invalid", "from: begin, end, a position; of a partitioned log partition:position,…")


async def open_plain(logs: Logs, log: str, start: Start, known: int) -> PlainReader:
    """Open the reader of a plain log; `known`: see `PlainReader`.

    Raises:
        HttpProblem: 400: `start` is a place in a partitioned log.
        PartitionedLogError: It is one.
        RsmError, LedgerError: See `Logs.reader`.

    """
    if isinstance(start, dict):
        raise HttpProblem(400, "invalid", f"from: log {log} has no partitions: name a position, begin, or end")
    return PlainReader(await logs.reader(log, start), 0 if start == "end" else known)


async def open_partitions(logs: Logs, log: str, start: Start, *, follow: bool) -> PartitionsReader:
    """Open the reader of all partitions of a log.

    Raises:
        HttpProblem: 400: `start` is a position, which every partition has of its own.
        RsmError, LedgerError: See `Logs.partitioned_reader`.

    """
    if isinstance(start, int):
        raise HttpProblem(
            400, "invalid", f"from: log {log} has partitions: begin, end, or partition:position,… as in pages and ids"
        )
    return PartitionsReader(await logs.partitioned_reader(log, start, follow=follow), follow=follow)


class ReadingSlots:
    """Places among those who read, of one request; for use as a context.

    Args:
        streams: All places.
        holder: Whose request it is.

    """

    def __init__(self, streams: Pool, holder: Holder) -> None:
        self._streams = streams
        self._holder = holder
        self._taken = 0

    def fit(self, partition_count: int) -> None:
        """Have as many places as the memory of so many partitions needs.

        Raises:
            HttpProblem: 429, 503: there are none.

        """
        more = -(-partition_count // PARTITIONS_A_SEAT) - self._taken
        if more <= 0:
            return
        if not self._streams.has(more):
            raise HttpProblem(503, "too-many-readers", "so many read here that no more go", headers=retry_after(1))
        if not self._streams.has_for(more, self._holder):
            raise HttpProblem(
                429, "too-many-readers", "the readers of this token, or from this address, are as many as its part "
                "allows; one of a partitioned log counts for each 4 of its partitions", headers=retry_after(1),
            )  # fmt: skip
        self._streams.take(more, self._holder)
        self._taken += more

    def __enter__(self) -> Self:
        """Have the one place that everybody needs."""
        self.fit(1)
        return self

    def __exit__(self, *_: object) -> None:
        """Give all back."""
        self._streams.give(self._taken, self._holder)
        self._taken = 0
