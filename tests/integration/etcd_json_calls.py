"""etcd's API as JSON over HTTP, for tests: calls that block, and streams of lines."""

from __future__ import annotations

import http.client
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

CALL_S = 60.0


def b64(text: bytes) -> str:
    return b64encode(text).decode()


def raw(text: str) -> bytes:
    return b64decode(text, validate=True)


class JsonAnswer(NamedTuple):
    """Status and document of an answer."""

    status: int
    document: Any


class EtcdJsonCalls:
    """A connection to a JSON gateway.

    Args:
        address: "host:port".
        token: Sent with each call; "" = none.

    """

    def __init__(self, address: str, token: str = "") -> None:
        self.connection = http.client.HTTPConnection(address, timeout=CALL_S)
        self._headers = {"Authorization": token} if token else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def post(self, path: str, document: Any, **headers: str) -> JsonAnswer:
        """Ask; a document that is bytes is sent as it is."""
        response = self._ask(path, document, headers)
        return JsonAnswer(response.status, json.loads(response.read()))

    def lines(self, path: str, document: Any) -> Iterator[Any]:
        """Ask, and yield the lines of the answer."""
        response = self._ask(path, document, {})
        assert response.status == 200, response.read()
        while line := response.readline():
            yield json.loads(line)

    def get(self, path: str) -> JsonAnswer:
        self.connection.request("GET", path)
        response = self.connection.getresponse()
        return JsonAnswer(response.status, json.loads(response.read()))

    def _ask(self, path: str, document: Any, headers: dict[str, str]) -> http.client.HTTPResponse:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.connection.request("POST", f"/v3/{path}", body, self._headers | headers)
        return self.connection.getresponse()

    # ---- short forms

    def put(self, key: bytes, value: bytes, **more: Any) -> JsonAnswer:
        return self.post("kv/put", {"key": b64(key), "value": b64(value), **more})

    def range(self, key: bytes, range_end: bytes = b"", **more: Any) -> JsonAnswer:
        return self.post("kv/range", {"key": b64(key), "range_end": b64(range_end), **more})
