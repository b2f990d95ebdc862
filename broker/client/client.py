"""The asyncio client of the broker, over its HTTP API.

    async with await AsyncBrokerClient.connect(["http://127.0.0.1:7364"], tenant="acme") as client:
        task_id = await client.submit("mail", b"to: ada", priority=5)
        print(await client.result(task_id))

        async with client.transaction() as transaction:      # all of them or none
            await transaction.submit("bill", b"1")
            await transaction.submit("bill", b"2")

The client finds the leader among the URLs that it is given, or through ZooKeeper (`metadata_uri`), follows it through
failovers, and sends a request again with the same key until it has the answer: nothing is submitted twice.
`broker.client.blocking.BrokerClient` has the same calls for programs without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from broker.client.admin_calls import AdminCalls
from broker.client.calls import BrokerCalls, Request, path_of
from broker.client.directory import BrokerDirectory, FoundBrokers, NamedBrokers
from broker.client.errors import EventsGoneError
from broker.client.event_stream import EventParser
from broker.client.shapes import BatchSubmitted, Event
from broker.client.task import NewTask, TaskOptions
from broker.client.task_calls import TaskCalls
from broker.machine.limits import DEFAULT_LOG
from ledger.errors import UsageError
from ledger.ports import MetadataStore
from ledger.tls import TlsSettings, client_context
from rsm_spark.client.http_wire import parse_origin
from rsm_spark.client.shown_token import ShownToken
from rsm_spark.codecs.framing import PayloadCodec
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.errors import RsmError
from rsm_spark.log.discovery import Discovery

TIMEOUT_S = 30.0
"""Long enough for any failover: a session timeout, an election and a recovery."""
_SILENCE_S_MAX = 45.0
"""A stream of events is never silent for so long: the broker sends signs of life."""
_RECONNECT_S = 0.5


class OpenTransaction:
    """A transaction: what is submitted through it waits to be run when it is committed, all at once.

    Attributes:
        transaction: Its id.
        expires_ms: Time at which it is rolled back by itself, ms since 1970.
        task_count: Tasks submitted so far.

    """

    def __init__(self, client: AsyncBrokerClient, transaction: int, expires_ms: int) -> None:
        self._client = client
        self.transaction = transaction
        self.expires_ms = expires_ms
        self.task_count = 0

    async def submit(
        self, task: NewTask | str, payload: bytes | str = b"", *, request_key: str = "", **options: Unpack[TaskOptions]
    ) -> int:
        """Submit a task; see `AsyncBrokerClient.submit`."""
        task_id = await self._client.submit(
            task, payload, request_key=request_key, transaction=self.transaction, **options
        )
        self.task_count += 1
        return task_id

    async def submit_many(self, tasks: Iterable[NewTask], *, batch: int = 1_000) -> BatchSubmitted:
        """Submit tasks; see `AsyncBrokerClient.submit_many`."""
        submitted = await self._client.submit_many(tasks, batch=batch, transaction=self.transaction)
        self.task_count += len(submitted.task_ids) - len(submitted.refused)
        return submitted


class AsyncBrokerClient(TaskCalls, AdminCalls):
    """A client; see the module. For one event loop; any number of tasks may use it at once. Made by `connect`."""

    def __init__(
        self,
        calls: BrokerCalls,
        *,
        tenant: str = "",
        timeout_s: float = TIMEOUT_S,
        store: MetadataStore | None = None,
        codec: PayloadCodec | None = None,
    ) -> None:
        self._calls = calls
        self._tenant = tenant
        self._timeout_s = timeout_s
        self._codec = codec
        self._store = store

    @classmethod
    async def connect(
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
        """Return a client.

        Args:
            urls: Of brokers, any or all of them; without any, they are looked for in ZooKeeper.
            metadata_uri: Where ZooKeeper is; default `RSM_METADATA_URI`, else the local one.
            token: Who calls; "" = as `token_file` says.
            token_file: Holds the token, and is read again when it has changed; default `RSM_BROKER_TOKEN_FILE`. Without
                either, a broker on loopback that has no tokens.
            tenant: Whose tasks, where the token does not say so.
            log: Name of the broker's log, for ZooKeeper.
            rsm_root: Root of the logs in ZooKeeper.
            timeout_s: Time limit of every call that names none.
            tls: Whom to trust where a URL begins with https; None = as the system does.
            codec: Encodes payloads and decodes results; workers need the same one. See `rsm_spark.codecs`.

        Raises:
            UsageError: A URL is none, or would have the token travel in plain text beyond loopback, or is not of
                https though `tls` is given; or a file of `tls` cannot be used.
            MetadataUnavailableError: ZooKeeper does not answer.

        """
        headers = {"Accept": "application/json"}
        shown = None
        token_path = token_file or os.environ.get("RSM_BROKER_TOKEN_FILE")
        if token and token_file is not None:
            raise UsageError("a token and a file of one were given: give either")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif token_path:
            shown = ShownToken(Path(token_path), now_s=time.monotonic())
        if tenant:
            headers["X-Tenant"] = tenant
        context = client_context(tls) if isinstance(tls, TlsSettings) else tls
        directory: BrokerDirectory
        store: MetadataStore | None = None
        if urls:
            directory = NamedBrokers(urls)
        else:
            from ledger.zookeeper.session import connect  # noqa: PLC0415 - kazoo only where it is used
            from ledger.zookeeper.uri import MetadataUri  # noqa: PLC0415

            store = await connect(MetadataUri.of(metadata_uri).hosts)
            directory = FoundBrokers(Discovery(store, log, rsm_root), is_tls=context is not None)
        calls = BrokerCalls(directory, headers, tls=context, token=shown)
        for url in urls:
            unfit = calls.unfit(parse_origin(url))
            if unfit:
                raise UsageError(f"{url}: {unfit}")
        return cls(calls, tenant=tenant, timeout_s=timeout_s, store=store, codec=codec)

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Disconnect."""
        self._calls.close()
        if self._store is not None:
            await self._store.close()

    @property
    def url(self) -> str:
        """URL of the broker in use; "" while none is."""
        return self._calls.url

    @contextlib.asynccontextmanager
    async def transaction(self, *, ttl_s: float = 300.0) -> AsyncIterator[OpenTransaction]:
        """Submit many tasks, all or none: committed at the end of the block, rolled back if it raises.

        Args:
            ttl_s: It is rolled back by itself after so long.

        Raises:
            TransactionOverError: It had expired when it was to be committed: nothing of it will run.

        """
        begun = await self.begin(ttl_s=ttl_s)
        transaction = OpenTransaction(self, begun.transaction, begun.expires_ms)
        try:
            yield transaction
        except BaseException:
            with contextlib.suppress(RsmError):  # what was raised counts; it expires by itself at the latest
                await asyncio.shield(self.rollback(begun.transaction, limit_s=min(5.0, self._timeout_s)))
            raise
        transaction.task_count = await self.commit(begun.transaction) or transaction.task_count

    async def events(self, from_revision: int | None = None) -> AsyncIterator[Event]:
        """Iterate over what is logged, for ever: each event once, in order, through failovers.

        Args:
            from_revision: First revision of interest; None = from now on.

        Raises:
            EventsGoneError: They are not kept any more: read the state anew.
            NotAllowedError: The token is not entitled to this.

        """
        next_revision = from_revision
        while True:
            try:
                async with self.event_stream(next_revision) as events:
                    async for event in events:
                        next_revision = event.revision + 1
                        yield event
            except (OSError, EOFError):
                pass  # TimeoutError is one of them: a broker that is silent is left for another one.
            await asyncio.sleep(_RECONNECT_S)

    @contextlib.asynccontextmanager
    async def event_stream(
        self, from_revision: int | None = None, *, summary: bool = False
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Open one stream of events, which ends with its connection; inside the block it has begun.

        Args:
            from_revision: First revision of interest; None = from now on.
            summary: Not each event, but four times a second at most one whose `counts` says how many there were.

        Raises:
            OSError, EOFError: It broke off, or could not be begun.
            BrokerClientError: The broker says no.

        """
        query = {"from_revision": from_revision, "summary": "true" if summary else None}
        request = Request("GET", path_of("events"), query)
        async with self._calls.stream(request) as pieces:
            yield _events(pieces)


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    parser = EventParser()
    while True:
        async with asyncio.timeout(_SILENCE_S_MAX):
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:
                return
        for event in parser.feed(piece):
            if event.name == "trimmed":  # while it was read: the reader is slower than the log is cut
                oldest = event.fields.get("oldest_revision", "?")
                raise EventsGoneError(f"events: those before revision {oldest} are not kept any more", reason="trimmed")
            yield event
