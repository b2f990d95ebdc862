"""Look at the tasks of a broker, over its HTTP API: how many wait, and whether anybody runs their types.

The console asks with its own token (`RSM_BROKER_TOKEN_FILE`), which never travels in plain text beyond loopback.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from ledger.decoding import json_decoder
from ledger.errors import UsageError
from ledger.tls import TlsSettings, client_context, is_loopback
from rsm_spark.client.http_connections import HttpConnectionPool
from rsm_spark.client.http_wire import BadResponseError, Origin, parse_origin
from rsm_spark.client.shown_token import ShownToken
from rsm_spark.console.core.view import TasksView, TaskTypeRow
from rsm_spark.transport.security import Security

_ANSWER_S = 3.0
_TYPES_MAX = 200
_NAME_MAX = 200
_OK = 200


class _Type(msgspec.Struct, frozen=True):
    type: str
    by_status: dict[str, int]


class _Overview(msgspec.Struct, frozen=True):
    """Counts of a broker, as far as they are shown."""

    by_status: dict[str, int]
    types: list[_Type]
    workers_by_status: dict[str, int]
    threads: int
    oldest_waiting_ms: int = 0


class _Offer(msgspec.Struct, frozen=True):
    threads_max: int = 1
    threads_by_type: dict[str, int] = {}
    any_type_threads: int | None = None

    def runs(self, name: str) -> bool:
        """Return whether it has threads for a type."""
        if not self.threads_max:
            return False
        own = self.threads_by_type.get(name)
        if own is not None:
            return own > 0
        return not self.threads_by_type if self.any_type_threads is None else self.any_type_threads > 0


class _Worker(msgspec.Struct, frozen=True):
    status: str
    offer: _Offer


class _Workers(msgspec.Struct, frozen=True):
    workers: list[_Worker]


class TasksLook:
    """See the module.

    Raises:
        UsageError: The file of the token cannot be used, or one of TLS.

    """

    def __init__(self) -> None:
        path = os.environ.get("RSM_BROKER_TOKEN_FILE")
        self._token = None if not path else ShownToken(Path(path), now_s=time.monotonic())
        given = Security.from_environment()
        files = TlsSettings(ca=given.tls_ca, cert=given.tls_cert, key=given.tls_key)
        self._pool = HttpConnectionPool(client_context(files) if given.calls_encrypted else None)

    async def look(self, log: str, url: str) -> TasksView:
        """Return the tasks of the broker of a log, or why they are not known.

        Args:
            log: Name of the log.
            url: Of a broker of it; "" = none has an HTTP API.

        """
        if not url:
            return TasksView(log=log, problem="no broker of this log serves HTTP")
        try:
            origin = parse_origin(url)
            async with asyncio.timeout(_ANSWER_S):
                overview = await self._ask(origin, "/api/v1/overview", _Overview)
                workers = await self._ask(origin, "/api/v1/workers", _Workers) if overview.by_status else None
        except TimeoutError:
            return TasksView(log=log, url=url, problem=f"{url} has not answered for {_ANSWER_S:g} s")
        except (OSError, EOFError, BadResponseError, UsageError, msgspec.MsgspecError) as error:
            return TasksView(log=log, url=url, problem=f"{url}: {error}"[:1_000])
        return tasks_view(log, url, overview, [] if workers is None else workers.workers)

    def close(self) -> None:
        """Close what is connected."""
        self._pool.close()

    async def _ask(self, origin: Origin, path: str, kind: Any) -> Any:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            if not origin.is_tls and not is_loopback(origin.host):
                raise UsageError("the token is not sent in plain text: the broker needs a certificate")
            headers["Authorization"] = f"Bearer {self._token.look(time.monotonic())}"
        response = await self._pool.request(origin, "GET", path, headers, None)
        if response.head.status != _OK:
            hint = "; RSM_BROKER_TOKEN_FILE names the console's token" if response.head.status in (401, 403) else ""
            raise UsageError(f"{path} answered {response.head.status}{hint}")
        return json_decoder(kind).decode(response.body)


def tasks_view(log: str, url: str, overview: _Overview, workers: list[_Worker]) -> TasksView:
    """Return what is shown of a broker's answers."""
    offers = [one.offer for one in workers if one.status == "connected"]
    counts = overview.by_status
    types = tuple(
        TaskTypeRow(
            one.type[:_NAME_MAX], one.by_status.get("waiting", 0), one.by_status.get("running", 0),
            one.by_status.get("error", 0), any(offer.runs(one.type) for offer in offers),
        )
        for one in overview.types[:_TYPES_MAX]
    )  # fmt: skip
    return TasksView(
        log=log,
        url=url,
        waiting=counts.get("waiting", 0),
        running=counts.get("running", 0),
        delayed=counts.get("delayed", 0),
        error=counts.get("error", 0),
        finished=counts.get("finished", 0),
        workers=overview.workers_by_status.get("connected", 0),
        threads=overview.threads,
        oldest_waiting_ms=overview.oldest_waiting_ms,
        types=types,
    )
