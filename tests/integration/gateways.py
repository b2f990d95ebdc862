"""Gateways of logs: in this process, and as processes that are killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from ledger.client.client import LedgerClient
from rsm_spark.gateway.service import LogGateway
from rsm_spark.gateway.settings import GatewayHttpSettings, GatewaySettings
from rsm_spark.runtime.settings import ReplicaSettings


@contextlib.asynccontextmanager
async def gateway(
    uri: str, *, http: dict[str, Any] | None = None, replica: ReplicaSettings | None = None, **settings: Any
) -> AsyncIterator[LogGateway]:
    """Run a gateway in this process."""
    client = await LedgerClient.connect(uri, session_timeout_ms=4_000)
    made = GatewaySettings(http=GatewayHttpSettings(**(http or {})), **settings)
    try:
        async with LogGateway(client, made, replica) as one:
            yield one
    finally:
        await client.close()


def asking(url: str, token: str = "") -> httpx.AsyncClient:
    """Return a client of one gateway, that follows nobody."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=60)


def batch(producer: str, sequence: int, *texts: str) -> dict[str, Any]:
    """Return the body of an append."""
    return {"producer": producer, "sequence": sequence, "records": [{"text": text} for text in texts]}


class GatewayProcess:
    """One `rsm log serve`.

    Attributes:
        url: Where it is.
        grpc_address: The same over gRPC; "" = it does not serve it.

    """

    def __init__(self, process: asyncio.subprocess.Process, url: str, grpc_address: str = "") -> None:
        self.process = process
        self.url = url
        self.grpc_address = grpc_address

    @classmethod
    async def start(cls, uri: str, port: int = 0, *more: str) -> GatewayProcess:
        command = [sys.executable, "-m", "rsm_spark", "log", "serve", "--metadata-uri", uri, "--http-port", str(port)]
        process = await asyncio.create_subprocess_exec(
            *command, *more, "--session-timeout-ms", "2000", "--json", stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        line = await process.stdout.readline()
        told = json.loads(line)
        return cls(process, told["url"], told["grpc_address"])

    async def stop(self) -> None:
        """End it in good order: its logs are free for the next one at once."""
        try:
            self.process.terminate()
            async with asyncio.timeout(60):
                assert await self.process.wait() == 0
        finally:
            await self.kill()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


def records_of(page: httpx.Response) -> list[str]:
    """Return the payloads of a page, as text."""
    assert page.status_code == 200, page.text
    return [msgspec.convert(one["payload"], bytes).decode() for one in page.json()["records"]]
