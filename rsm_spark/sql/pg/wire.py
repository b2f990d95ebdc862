"""PostgreSQL's wire protocol, version 3.0, from clients: bytes in, requests out. Pure.

A frame is cut out only when somebody takes it: a packet of ten thousand small ones costs nothing before its turn.

* `PgBrokenError(RsmError)`   a client sends what the protocol does not allow
"""

# Longer than 400 lines: each request and how it is read, in one list.

from __future__ import annotations

import struct
from typing import Final

import msgspec

from rsm_spark.errors import RsmError

STARTUP_BYTES_MAX: Final = 10_000
SECRET_BYTES_MAX: Final = 10_000
MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024
"""Of one request: above all that a transaction may change."""
PARAMETERS_MAX: Final = 32_766
_AHEAD_BYTES: Final = 64 * 1024
_COMPACT_BYTES: Final = 64 * 1024

_CANCEL: Final = 80877102
_SSL: Final = 80877103
_GSS: Final = 80877104
_LENGTH = struct.Struct("!i")
_HEAD = struct.Struct("!ci")
_SHORT = struct.Struct("!h")
_COUNT = struct.Struct("!H")


class PgBrokenError(RsmError):
    """A client sends what the protocol does not allow."""


class PgStartupRequest(msgspec.Struct, frozen=True):
    """First request: who asks for what.

    Attributes:
        minor: Version of the protocol, 3.x.
        parameters: By name: user, database, settings.

    """

    minor: int
    parameters: dict[str, str]


class PgEncryptionRequest(msgspec.Struct, frozen=True):
    """Asks whether the connection may be encrypted: by TLS, or otherwise."""

    is_tls: bool


class PgCancelRequest(msgspec.Struct, frozen=True):
    """Asks to end what another connection has under way."""

    process_id: int
    secret: int


class PgSecretAnswer(msgspec.Struct, frozen=True):
    """Answer to a question of authentication, as it is."""

    content: bytes


class PgQuery(msgspec.Struct, frozen=True):
    """A text of statements."""

    sql: str


class PgParseRequest(msgspec.Struct, frozen=True):
    """A statement to prepare.

    Attributes:
        name: Of it; "" = the unnamed one.
        sql: Of it.
        types: Of its parameters; 0 = not said.

    """

    name: str
    sql: str
    types: tuple[int, ...]


class PgBindRequest(msgspec.Struct, frozen=True):
    """A portal to make of a prepared statement.

    Attributes:
        portal: Its name.
        statement: Name of the statement.
        formats: Of the values; 1 = binary.
        values: As they came.
        result_formats: Of the columns.

    """

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


class PgDescribeRequest(msgspec.Struct, frozen=True):
    """Asks for the columns of a portal or a statement."""

    is_portal: bool
    name: str


class PgExecuteRequest(msgspec.Struct, frozen=True):
    """Asks for rows of a portal; 0 = all."""

    portal: str
    rows_max: int


class PgCloseRequest(msgspec.Struct, frozen=True):
    """Ends a portal or a statement."""

    is_portal: bool
    name: str


class PgSyncRequest(msgspec.Struct, frozen=True):
    """Ends a series of requests."""


class PgFlushRequest(msgspec.Struct, frozen=True):
    """Asks for all answers so far."""


class PgTerminateRequest(msgspec.Struct, frozen=True):
    """Says good-bye."""


class PgCopyRequest(msgspec.Struct, frozen=True):
    """A part of a copy.

    Attributes:
        content: Of rows.
        is_end: There are no more.
        failure: Why the client gives the copy up; "" = it does not.

    """

    content: bytes = b""
    is_end: bool = False
    failure: str = ""


PgRequest = (
    PgQuery
    | PgParseRequest
    | PgBindRequest
    | PgDescribeRequest
    | PgExecuteRequest
    | PgCloseRequest
    | PgSyncRequest
    | PgFlushRequest
    | PgTerminateRequest
    | PgSecretAnswer
    | PgCopyRequest
)
PgGreeting = PgStartupRequest | PgEncryptionRequest | PgCancelRequest


class _Fields:
    """Fields of one frame, in order."""

    __slots__ = ("_at", "_content", "_what")

    def __init__(self, content: bytes, what: str) -> None:
        self._content = content
        self._at = 0
        self._what = what

    def _broken(self) -> PgBrokenError:
        return PgBrokenError(f"the message {self._what} is not whole")

    def part(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._content):
            raise self._broken()
        part = self._content[self._at : end]
        self._at = end
        return part

    def text(self) -> str:
        end = self._content.find(b"\0", self._at)
        if end < 0:
            raise self._broken()
        part = self._content[self._at : end]
        self._at = end + 1
        try:
            return part.decode()
        except UnicodeDecodeError:
            raise PgBrokenError(f"the message {self._what} has a text that is not UTF-8") from None

    def number(self) -> int:
        return int(_LENGTH.unpack(self.part(4))[0])

    def count(self) -> int:
        return int(_COUNT.unpack(self.part(2))[0])

    def shorts(self) -> tuple[int, ...]:
        count = self.count()
        return struct.unpack(f"!{count}h", self.part(2 * count))

    def ints(self) -> tuple[int, ...]:
        count = self.count()
        return struct.unpack(f"!{count}I", self.part(4 * count))

    def end(self) -> None:
        if self._at != len(self._content):
            raise PgBrokenError(f"the message {self._what} is longer than its fields")


class PgReader:
    """Bytes of one client, and the requests in them.

    Attributes:
        is_greeting: Frames have no kind yet: until a `PgStartupRequest` was taken.
        message_bytes_max: Of one frame from here on.

    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self.is_greeting = True
        self.message_bytes_max = SECRET_BYTES_MAX

    def feed(self, data: bytes) -> None:
        """Take bytes in."""
        self._buffer += data

    @property
    def held_bytes(self) -> int:
        """Bytes that were not taken."""
        return len(self._buffer) - self._at

    @property
    def is_full(self) -> bool:
        """True if no more needs to be read before something is taken."""
        return self.held_bytes >= max(_AHEAD_BYTES, self._frame_bytes())

    def _frame_bytes(self) -> int:
        """Return the length of the first frame, as far as it is known; at most what is allowed."""
        head = 4 if self.is_greeting else 5
        if self.held_bytes < head:
            return head
        (length,) = _LENGTH.unpack_from(self._buffer, self._at + head - 4)
        return int(min(max(length, 0) + head - 4, self.message_bytes_max + 5))

    def clear(self) -> None:
        """Forget all that was not taken."""
        self._buffer.clear()
        self._at = 0

    def _take(self, begin: int, end: int) -> bytes:
        content = bytes(self._buffer[begin:end])
        self._at = end
        if self._at == len(self._buffer):
            self.clear()
        elif self._at > _COMPACT_BYTES:
            del self._buffer[: self._at]
            self._at = 0
        return content

    def greeting(self) -> PgGreeting | None:
        """Return the next greeting; None = it is not whole yet.

        Raises:
            PgBrokenError: It is none.

        """
        if self.held_bytes < 4:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, self._at)
        if not 8 <= length <= STARTUP_BYTES_MAX:
            raise PgBrokenError("this is no client of PostgreSQL: the length of its first message makes no sense")
        if self.held_bytes < length:
            return None
        fields = _Fields(self._take(self._at + 4, self._at + length), "of startup")
        code = fields.number()
        if code in (_SSL, _GSS):
            fields.end()
            return PgEncryptionRequest(code == _SSL)
        if code == _CANCEL:
            found = PgCancelRequest(fields.number(), fields.number())
            fields.end()
            return found
        major, minor = code >> 16, code & 0xFFFF
        if major != 3:
            raise PgBrokenError(f"version {major}.{minor} of the protocol is not served: 3.0 is")
        parameters: dict[str, str] = {}
        while name := fields.text():
            parameters[name] = fields.text()
        fields.end()
        self.is_greeting = False
        return PgStartupRequest(minor, parameters)

    def request(self) -> PgRequest | None:
        """Return the next request; None = it is not whole yet.

        Raises:
            PgBrokenError: It is none, or too long.

        """
        if self.held_bytes < 5:
            return None
        kind, length = _HEAD.unpack_from(self._buffer, self._at)
        if length < 4:
            raise PgBrokenError("a message has no length")
        if length > self.message_bytes_max:
            raise PgBrokenError(f"a message has {length} bytes: at most {self.message_bytes_max} are taken")
        if self.held_bytes < length + 1:
            return None
        content = self._take(self._at + 5, self._at + 1 + length)
        direct = _DIRECT.get(kind)
        if direct is not None:
            return direct(content)
        decode = _REQUESTS.get(kind)
        if decode is None:
            raise PgBrokenError(f"a message of kind {kind!r} is not known")
        fields = _Fields(content, kind.decode())
        try:
            found = decode(fields)
        except struct.error:
            raise PgBrokenError(f"the message {kind.decode()} is not whole") from None
        fields.end()
        return found


def _query(fields: _Fields) -> PgRequest:
    return PgQuery(fields.text())


def _parse(fields: _Fields) -> PgRequest:
    return PgParseRequest(fields.text(), fields.text(), fields.ints())


def _is_portal(fields: _Fields) -> bool:
    kind = fields.part(1)
    if kind not in (b"P", b"S"):
        raise PgBrokenError(f"{kind!r} is neither a portal nor a statement")
    return kind == b"P"


def _describe(fields: _Fields) -> PgRequest:
    return PgDescribeRequest(_is_portal(fields), fields.text())


def _close(fields: _Fields) -> PgRequest:
    return PgCloseRequest(_is_portal(fields), fields.text())


def _rest(fields: _Fields) -> bytes:
    return fields.part(len(fields._content) - fields._at)


def _secret(fields: _Fields) -> PgRequest:
    return PgSecretAnswer(_rest(fields))


def _copy(fields: _Fields) -> PgRequest:
    return PgCopyRequest(_rest(fields))


def _copy_end(fields: _Fields) -> PgRequest:
    fields.end()
    return PgCopyRequest(is_end=True)


def _copy_failure(fields: _Fields) -> PgRequest:
    text = fields.text()
    fields.end()
    return PgCopyRequest(failure=text or "no reason was given")


_REQUESTS = {
    b"Q": _query,
    b"P": _parse,
    b"D": _describe,
    b"C": _close,
    b"H": lambda _fields: PgFlushRequest(),
    b"X": lambda _fields: PgTerminateRequest(),
    b"p": _secret,
    b"d": _copy,
    b"c": _copy_end,
    b"f": _copy_failure,
}


# ---- what comes with each statement, read without an object for its fields


def _broken(kind: str) -> PgBrokenError:
    return PgBrokenError(f"the message {kind} is not whole")


def _ended(kind: str, content: bytes, at: int) -> None:
    if at != len(content):
        raise _broken(kind) if at > len(content) else PgBrokenError(f"the message {kind} is longer than its fields")


def _name(kind: str, content: bytes, at: int) -> tuple[str, int]:
    """Return a text, and where the next field begins."""
    end = content.find(0, at)
    if end < 0:
        raise _broken(kind)
    if end == at:
        return "", end + 1
    try:
        return content[at:end].decode(), end + 1
    except UnicodeDecodeError:
        raise PgBrokenError(f"the message {kind} has a text that is not UTF-8") from None


def _formats(content: bytes, at: int) -> tuple[tuple[int, ...], int]:
    (count,) = _COUNT.unpack_from(content, at)
    if not count:
        return (), at + 2
    return struct.unpack_from(f"!{count}h", content, at + 2), at + 2 + 2 * count


def _bind(content: bytes) -> PgRequest:
    portal, at = _name("B", content, 0)
    statement, at = _name("B", content, at)
    values: list[bytes | None] = []
    try:
        formats, at = _formats(content, at)
        (count,) = _COUNT.unpack_from(content, at)
        at += 2
        for _ in range(count):
            (size,) = _LENGTH.unpack_from(content, at)
            at += 4
            if size == -1:
                values.append(None)
                continue
            end = at + size
            if size < 0 or end > len(content):
                raise _broken("B")
            values.append(content[at:end])
            at = end
        result_formats, at = _formats(content, at)
    except struct.error:
        raise _broken("B") from None
    _ended("B", content, at)
    return PgBindRequest(portal, statement, formats, tuple(values), result_formats)


def _execute(content: bytes) -> PgRequest:
    portal, at = _name("E", content, 0)
    try:
        (rows_max,) = _LENGTH.unpack_from(content, at)
    except struct.error:
        raise _broken("E") from None
    _ended("E", content, at + 4)
    return PgExecuteRequest(portal, rows_max)


_SYNC: Final = PgSyncRequest()


def _sync(content: bytes) -> PgRequest:
    _ended("S", content, 0)
    return _SYNC


_DIRECT: Final = {b"B": _bind, b"E": _execute, b"S": _sync}
