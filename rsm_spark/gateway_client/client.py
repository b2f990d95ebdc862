"""The client of gateways: appends each record exactly once, reads pages and tails, and goes on through failovers.

    async with await LogGatewayClient.connect(["https://a:8090", "https://b:8090"], token_file="token") as client:
        producer = client.producer("visits")
        await producer.append(b"page=/", key=b"ann")
        async for record in client.tail("visits", "begin"):
            print(record.place, record.payload)

It needs neither ZooKeeper nor bookies. `rsm_spark.gateway_client.blocking` has the same without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast

import msgspec
from msgspec import UNSET

from ledger.decoding import json_decoder
from ledger.errors import UsageError
from ledger.tls import TlsSettings, client_context
from rsm_spark.client.event_lines import EventLines, SentEvent
from rsm_spark.client.http_wire import BadResponseError
from rsm_spark.client.shown_token import ShownToken
from rsm_spark.core.writer_marks import MarkedReply, MarkedStatus, WriterMark
from rsm_spark.gateway_client.calls import GatewayCalls, GatewayRequest
from rsm_spark.gateway_client.errors import gone
from rsm_spark.gateway_client.producer import GatewayProducer
from rsm_spark.gateway_client.shapes import (
    AppendBody,
    AppendedPlaces,
    GrowBody,
    GrownLog,
    MarkedBody,
    MarkedOutcome,
    NamedLog,
    NamesPage,
    PolicyBody,
    ReadRecord,
    RecordBody,
    RecordsPage,
    TrimmedNotice,
    TruncateBody,
)

_LOGGER = logging.getLogger(__name__)
_SILENCE_S_MAX = 45.0
"""A stream is never silent for so long: the gateway sends signs of life."""
_RECONNECT_S = 0.5
TIMEOUT_S = 60.0
"""Long enough for any take-over: a session timeout, a recovery, and an append."""

_Shape = TypeVar("_Shape")


class TailedRecord(NamedTuple):
    """A record of a tail.

    Attributes:
        place: Where a later tail goes on behind it: `tail(log, behind=place)`.
        position: Its revision in its log, or in its partition.
        txid: Its transaction id.
        key: As it was appended; None = without one.
        payload: As it was appended.
        logged_ms: Logged time, milliseconds since 1970.
        partition: Where it is; None = the log has no partitions.

    """

    place: str
    position: int
    txid: int
    key: bytes | None
    payload: bytes
    logged_ms: int
    partition: int | None = None


class LogGatewayClient:
    """See the module. For one event loop; any number of tasks may use it at once. Made by `connect`."""

    def __init__(self, calls: GatewayCalls, *, timeout_s: float = TIMEOUT_S) -> None:
        self._calls = calls
        self._timeout_s = timeout_s

    @classmethod
    async def connect(
        cls,
        urls: Sequence[str],
        *,
        token: str = "",
        token_file: Path | str | None = None,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | TlsSettings | None = None,
    ) -> Self:
        """Return a client. Nothing is sent before it is asked for something.

        Args:
            urls: Of gateways of one cluster: any or all of them.
            token: Who calls; "" = as `token_file` says.
            token_file: Holds the token, and is read again when it has changed. Without either, gateways on loopback.
            timeout_s: Time limit of every call.
            tls: Whom to trust where a URL begins with https; None = as the system does.

        Raises:
            UsageError: A URL is none, or would have the token travel in plain text beyond loopback, or is not of
                https though `tls` is given; or a file cannot be used.

        """
        if token and token_file is not None:
            raise UsageError("a token and a file of one were given: give either")
        shown = None if token_file is None else ShownToken(Path(token_file), now_s=time.monotonic())
        context = client_context(tls) if isinstance(tls, TlsSettings) else tls
        return cls(GatewayCalls(urls, token=token, shown=shown, tls=context), timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Disconnect."""
        self._calls.close()

    async def _call(self, request: GatewayRequest, kind: type[_Shape]) -> _Shape:
        return await self._calls.call(request, kind, timeout_s=self._timeout_s)

    # ---- appending

    def producer(self, log: str, producer: str = "") -> GatewayProducer:
        """Return a new producer of a log.

        Args:
            log: Its name, of a plain log or a partitioned one.
            producer: Its id, which nobody else uses and none has used; "" = one is drawn.

        """

        async def send(body: AppendBody) -> list[int]:
            return (await self._call(GatewayRequest("POST", (log, "records"), body=body), AppendedPlaces)).positions

        async def count_partitions() -> int | None:
            count = (await self.info(log)).get("partition_count")
            return None if count is None else int(count)

        return GatewayProducer(producer or os.urandom(16).hex(), send, count_partitions)

    async def write_marked(
        self,
        log: str,
        mark: WriterMark,
        payloads: Sequence[bytes] = (),
        *,
        keys: Sequence[bytes | None] | None = None,
        txids: Sequence[int] | None = None,
        timeout_s: float | None = None,
    ) -> MarkedReply:
        """Append rows of a writer's batch, once, however often they are sent; or end a batch that came in chunks.

        Args:
            log: Its name, of a plain log or a partitioned one.
            mark: Digest, payload and how rows may be repeated are not sent.
            payloads: Of the records, 10,000 and 4 MB in all; none but with CHUNK and WHOLE.
            keys: One for each; None = without keys.
            txids: Transaction id of each, none below the one before; None = that of the record before. A partitioned
                log takes none.
            timeout_s: How long it is sent again; None = as the client says.

        Returns:
            APPLIED = it is in the log, DONE = it was before, REFUSED, GONE = with the reason.

        Raises:
            OutcomeUnknownError, GatewayUnavailableError: It was not answered in time: sending it again is safe.
            TransactionIdError: One is below that of the record before; nothing was appended.
            LogError: The gateway refuses it, and nothing was appended.

        """
        given = [None] * len(payloads) if keys is None else keys
        body = MarkedBody(
            mark.writer,
            cast("Any", mark.kind.name.lower()),
            mark.checkpoint,
            mark.run,
            mark.batch,
            mark.part,
            mark.chunk,
            mark.row_count,
            mark.takes_over_from,
            list(mark.parts),
            [RecordBody(payload=payload, key=key) for payload, key in zip(payloads, given, strict=True)],
            mark.is_passing,
            [] if txids is None else list(txids),
        )
        patience_s = self._timeout_s if timeout_s is None else timeout_s
        request = GatewayRequest("POST", (log, "batches"), body=body)
        found = await self._calls.call(request, MarkedOutcome, timeout_s=patience_s)
        return MarkedReply(MarkedStatus[found.status.upper()], found.reason)

    # ---- reading

    async def page(
        self, log: str, start: int | str = "begin", *, limit: int = 1_000, wait_s: float = 0.0
    ) -> RecordsPage:
        """Return a page of records, and where the next one begins.

        Args:
            log: Its name.
            start: "begin", "end", a position, or `next` of a page.
            limit: At most so many records, 10,000 at most.
            wait_s: How long to wait for the first one, 30 at most.

        Raises:
            NoSuchLogError: There is no log of this name.
            MissingLogError: The place has left the log.
            AccessDeniedError: The token is missing, not known, or not entitled to this.
            GatewayUnavailableError: No gateway answers.

        """
        query = {"from": start, "limit": limit, "wait_s": wait_s}
        return await self._call(GatewayRequest("GET", (log, "records"), query, wait_s=wait_s), RecordsPage)

    async def tail(self, log: str, start: int | str = "end", *, behind: str = "") -> AsyncIterator[TailedRecord]:
        """Iterate over the records of a log, and wait for those to come: each once, in order, through failovers.

        Args:
            log: Its name.
            start: "begin", "end", a position, or `next` of a page.
            behind: `place` of a record behind which to begin, whatever `start` says.

        Raises:
            NoSuchLogError, MissingLogError, AccessDeniedError: See `page`.

        """
        if not behind and start == "end":
            start = (await self.page(log, "end", limit=1)).next  # So that nothing is missed if the stream breaks.
        place = behind
        while True:
            headers = {"Last-Event-ID": place} if place else {}
            request = GatewayRequest("GET", (log, "tail"), {} if place else {"from": start})
            try:
                async with self._calls.stream(request, headers) as pieces:
                    async for event in _events(pieces):
                        if event.name == "ended":
                            return
                        record = _record(log, event)
                        place = record.place
                        yield record
            except (OSError, EOFError) as error:
                words = str(error) or type(error).__name__
                _LOGGER.info("tail of log %s: begun again: %s", log, words, extra={"log": log})
            await asyncio.sleep(_RECONNECT_S)

    # ---- logs as a whole

    async def logs(self, prefix: str = "") -> list[str]:
        """Return the names of the logs that the caller may touch, ascending."""
        names: list[str] = []
        while True:
            query = {"prefix": prefix, "after": names[-1] if names else ""}
            page = await self._call(GatewayRequest("GET", (), query), NamesPage)
            names += page.logs
            if not page.has_more or not page.logs:
                return names

    async def info(self, log: str) -> dict[str, Any]:
        """Return what is known of a log without reading it, as `rsm log info --json` shows it.

        Raises:
            NoSuchLogError: There is no log of this name.

        """
        return await self._call(GatewayRequest("GET", (log,)), dict[str, Any])

    async def create(
        self,
        log: str,
        *,
        retention_s: float | None = None,
        retention_bytes: int | None = None,
        until_read: bool = False,
        partitions: int | None = None,
    ) -> None:
        """Make a log, with limits of what it keeps; one that is there stays as it is. See `Logs.create`."""
        body = PolicyBody(retention_s, retention_bytes, until_read, partitions)
        await self._call(GatewayRequest("PUT", (log,), body=body), NamedLog)

    async def grow(self, log: str, partitions: int) -> None:
        """Give a partitioned log more partitions."""
        await self._call(GatewayRequest("POST", (log, "partitions"), body=GrowBody(partitions)), GrownLog)

    async def truncate(self, log: str, position: int) -> None:
        """Let go of all records up to a position."""
        await self._call(GatewayRequest("POST", (log, "truncate"), body=TruncateBody(position)), dict[str, Any])

    async def delete(self, log: str) -> None:
        """Delete a log with all that it holds.

        Raises:
            NoSuchLogError: There is no log of this name.

        """
        await self._call(GatewayRequest("DELETE", (log,)), NamedLog)


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[SentEvent]:
    """Iterate over events, until the stream ends or is silent for too long."""
    lines = EventLines()
    with contextlib.suppress(StopAsyncIteration):
        while True:
            async with asyncio.timeout(_SILENCE_S_MAX):
                piece = await anext(pieces)
            for event in lines.feed(piece):
                yield event


def _record(log: str, event: SentEvent) -> TailedRecord:
    """Read an event.

    Raises:
        MissingLogError: The place has left the log.
        BadResponseError: It is no event of a gateway.

    """
    try:
        if event.name == "trimmed":
            notice = json_decoder(TrimmedNotice).decode(event.text)
            where = "" if notice.partition is None else f", partition {notice.partition}"
            text = f"log {log}{where}: it begins with {notice.oldest_position} now: what was to be read has left it"
            raise gone(text, notice.oldest_position, notice.partition)
        shape = json_decoder(ReadRecord).decode(event.text)
    except msgspec.MsgspecError as error:
        raise BadResponseError(f"log {log}: not an event of a gateway: {error}") from None
    partition = None if shape.partition is UNSET else shape.partition
    return TailedRecord(event.place, shape.position, shape.txid, shape.key, shape.payload, shape.logged_ms, partition)
