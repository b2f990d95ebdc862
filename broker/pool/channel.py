"""The connection of a worker to its pool's keeper: lines of JSON, each with proof that its sender knows the secret.

    keeper   rsm-pool 1 NONCE
    worker   NONCE PROOF                    proof: it knows the secret
    both     MAC JSON                       each direction numbers its lines: none is forged, lost, or played again

The secret is made by the keeper and given to each worker by whatever starts it. The lines say nothing that is secret,
and are not encrypted.

* `ChannelError(RsmError)`   the other side is none of this pool
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from typing import Any

import msgspec

from broker.pool.core.messages import FromController, FromMember
from ledger.decoding import json_decoder
from rsm_spark.errors import RsmError

LINE_BYTES_MAX = 64 * 1024
_GREETING = b"rsm-pool 1 "
_NONCE_BYTES = 16
_SHAKE_S = 10.0
_KEEPER, _MEMBER = b"keeper", b"member"


class ChannelError(RsmError):
    """The other side is none of this pool, or does not speak as one."""


class _End:
    """One end of a connection whose other end has proved itself, or does so with its first line."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes, *, ours: bytes, theirs: bytes
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._key = key
        self._ours, self._theirs = ours, theirs
        self._sent = self._received = 0

    def _send(self, body: bytes) -> None:
        self._sent += 1
        self._writer.write(b"%s %s\n" % (_mac(self._key, self._ours, self._sent, body), body))

    async def _receive(self) -> bytes | None:
        """Return the next line's JSON; None = the other side has hung up."""
        line = await _line(self._reader)
        if not line:
            return None
        self._received += 1
        mac, _, body = line.partition(b" ")
        if not hmac.compare_digest(mac, _mac(self._key, self._theirs, self._received, body)):
            raise ChannelError("a line comes from somebody who does not know the pool's secret")
        return body

    def close(self) -> None:
        self._writer.close()


class ControllerEnd(_End):
    """A keeper's end."""

    def say(self, message: FromController) -> None:
        """Send an order."""
        self._send(msgspec.json.encode(message))

    async def hear(self) -> FromMember | None:
        """Return what the worker says next; None = it has hung up.

        Raises:
            ChannelError: It is none of this pool.

        """
        body = await self._receive()
        message: FromMember | None = None if body is None else _decoded(body, FromMember)
        return message


class MemberEnd(_End):
    """A worker's end."""

    def say(self, message: FromMember) -> None:
        self._send(msgspec.json.encode(message))

    async def hear(self) -> FromController | None:
        """Return the next order; None = the keeper has hung up.

        Raises:
            ChannelError: It is not the keeper.

        """
        body = await self._receive()
        message: FromController | None = None if body is None else _decoded(body, FromController)
        return message


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> ControllerEnd:
    """Have a worker prove itself.

    Raises:
        ChannelError: It does not, or not in time.

    """
    ours = os.urandom(_NONCE_BYTES).hex().encode()
    writer.write(_GREETING + ours + b"\n")
    theirs, _, proof = (await _line_soon(reader)).partition(b" ")
    if not hmac.compare_digest(proof, _digest(secret, _MEMBER, ours, theirs)):
        raise ChannelError("a worker does not know this pool's secret")
    return ControllerEnd(reader, writer, _session(secret, ours, theirs), ours=_KEEPER, theirs=_MEMBER)


async def connect(host: str, port: int, secret: bytes) -> MemberEnd:
    """Connect to a keeper.

    Raises:
        ChannelError: There is none, or not in time.

    """
    try:
        async with asyncio.timeout(_SHAKE_S):
            reader, writer = await asyncio.open_connection(host, port, limit=LINE_BYTES_MAX)
    except (OSError, TimeoutError) as error:
        why = str(error) or type(error).__name__
        raise ChannelError(f"the pool's driver does not answer at {host}:{port}: {why}") from None
    try:
        greeting = await _line_soon(reader)
        if not greeting.startswith(_GREETING):
            raise ChannelError(f"{host}:{port} is no pool's driver")  # noqa: TRY301
        theirs = greeting.removeprefix(_GREETING)
        ours = os.urandom(_NONCE_BYTES).hex().encode()
        writer.write(b"%s %s\n" % (ours, _digest(secret, _MEMBER, theirs, ours)))
    except BaseException:
        writer.close()
        raise
    return MemberEnd(reader, writer, _session(secret, theirs, ours), ours=_MEMBER, theirs=_KEEPER)


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return json_decoder(kind).decode(body)
    except msgspec.MsgspecError as error:
        raise ChannelError(f"a line cannot be understood, is the other side of another version? {error}") from None


async def _line_soon(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(_SHAKE_S):
            return await _line(reader)
    except TimeoutError:
        raise ChannelError(f"the other side said nothing within {_SHAKE_S:g} s") from None


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return a line without its end; b"" = the other side has hung up."""
    try:
        line = await reader.readline()
    except ValueError:
        raise ChannelError(f"a line of more than {LINE_BYTES_MAX} bytes") from None
    except OSError as error:
        raise ChannelError(f"the connection is broken: {error}") from None
    return line[:-1] if line.endswith(b"\n") else b""


def _session(secret: bytes, keeper: bytes, member: bytes) -> bytes:
    return hmac.digest(secret, b"session|%s|%s" % (keeper, member), hashlib.sha256)


def _digest(secret: bytes, who: bytes, keeper: bytes, member: bytes) -> bytes:
    return hmac.digest(secret, b"proof|%s|%s|%s" % (who, keeper, member), hashlib.sha256).hex().encode()


def _mac(key: bytes, who: bytes, number: int, body: bytes) -> bytes:
    return hmac.digest(key, b"%s|%d|%s" % (who, number, body), hashlib.sha256)[:16].hex().encode()
