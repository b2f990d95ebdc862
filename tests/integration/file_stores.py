"""Servers of a file store as processes, and a client of WebHDFS, for tests."""

from __future__ import annotations

from typing import Any, Self
from urllib.parse import quote

import httpx

SERVE = ("rsm_spark", "files", "serve")


class FileCaller:
    """Asks one server over WebHDFS, as curl does.

    Args:
        address: "host:port" of the server.
        token: Shown to it; "" = none.

    """

    def __init__(self, address: str, token: str = "") -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.AsyncClient(base_url=f"http://{address}/webhdfs/v1", headers=headers, timeout=60)

    async def ask(self, method: str, path: str, operation: str, **parameters: Any) -> httpx.Response:
        return await self.http.request(method, quote(path), params={"op": operation, **parameters})

    async def create(self, path: str, content: bytes, **parameters: Any) -> httpx.Response:
        """Write a file by the two requests that WebHDFS has for it."""
        return await self._send("PUT", path, "CREATE", content, parameters)

    async def append(self, path: str, content: bytes) -> httpx.Response:
        return await self._send("POST", path, "APPEND", content, {})

    async def _send(
        self, method: str, path: str, operation: str, content: bytes, parameters: dict[str, Any]
    ) -> httpx.Response:
        first = await self.ask(method, path, operation, **parameters)
        if first.status_code != 307:
            return first
        return await self.http.request(method, first.headers["location"], content=content)

    async def read(self, path: str, **parameters: Any) -> bytes:
        answer = await self.ask("GET", path, "OPEN", **parameters)
        assert answer.status_code == 200, answer.text
        return answer.content

    async def names(self, path: str) -> list[str]:
        answer = await self.ask("GET", path, "LISTSTATUS")
        assert answer.status_code == 200, answer.text
        return [one["pathSuffix"] for one in answer.json()["FileStatuses"]["FileStatus"]]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()


def exception_of(answer: httpx.Response) -> str:
    """Return the exception of Hadoop's that an answer tells."""
    return str(answer.json()["RemoteException"]["exception"])
