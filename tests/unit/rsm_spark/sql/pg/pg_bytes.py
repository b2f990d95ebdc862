"""Frames as a PostgreSQL client writes and reads them, for tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def frame(kind: bytes, content: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


def startup(**parameters: str) -> bytes:
    said = b"".join(name.encode() + b"\0" + value.encode() + b"\0" for name, value in parameters.items()) + b"\0"
    return struct.pack("!ii", len(said) + 8, 3 << 16) + said


def query(sql: str) -> bytes:
    return frame(b"Q", sql.encode() + b"\0")


def parse(name: str, sql: str, *types: int) -> bytes:
    return frame(
        b"P", name.encode() + b"\0" + sql.encode() + b"\0" + struct.pack(f"!H{len(types)}I", len(types), *types)
    )


def bind(
    portal: str, name: str, *values: bytes | None, formats: Sequence[int] = (), results: Sequence[int] = ()
) -> bytes:
    said = portal.encode() + b"\0" + name.encode() + b"\0" + struct.pack(f"!H{len(formats)}h", len(formats), *formats)
    said += struct.pack("!H", len(values))
    for value in values:
        said += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return frame(b"B", said + struct.pack(f"!H{len(results)}h", len(results), *results))


def describe(kind: str, name: str) -> bytes:
    return frame(b"D", kind.encode() + name.encode() + b"\0")


def execute(portal: str, rows_max: int = 0) -> bytes:
    return frame(b"E", portal.encode() + b"\0" + struct.pack("!i", rows_max))


def close(kind: str, name: str) -> bytes:
    return frame(b"C", kind.encode() + name.encode() + b"\0")


SYNC = frame(b"S")
FLUSH = frame(b"H")
TERMINATE = frame(b"X")


def split(text: bytes) -> list[tuple[str, bytes]]:
    """Return the frames of what a server has said."""
    found: list[tuple[str, bytes]] = []
    while text:
        (length,) = struct.unpack_from("!i", text, 1)
        assert len(text) > length, "the last frame is not whole"
        found.append((text[:1].decode(), text[5 : 1 + length]))
        text = text[1 + length :]
    return found


def told(text: bytes) -> list[str]:
    """Return what a server has said, in short: the kind of each frame, and the words of some."""
    return [_short(kind, content) for kind, content in split(text)]


def _short(kind: str, content: bytes) -> str:
    if kind == "C":
        return f"C {content[:-1].decode()}"
    if kind in ("E", "N"):
        fields = {part[:1].decode(): part[1:].decode() for part in content.split(b"\0") if part}
        return f"{kind} {fields['C']}"
    if kind == "Z":
        return f"Z {content.decode()}"
    if kind == "D":
        return f"D {row(content)}"
    return kind


def row(content: bytes) -> list[bytes | None]:
    (count,) = struct.unpack_from("!h", content)
    at, values = 2, list[bytes | None]()
    for _ in range(count):
        (size,) = struct.unpack_from("!i", content, at)
        at += 4
        values.append(None if size < 0 else content[at : at + size])
        at += max(0, size)
    assert at == len(content)
    return values


def columns(content: bytes) -> list[tuple[str, int, int]]:
    """Return (name, type, format) of each column."""
    (count,) = struct.unpack_from("!h", content)
    at, found = 2, list[tuple[str, int, int]]()
    for _ in range(count):
        end = content.index(b"\0", at)
        _, _, kind, _, _, form = struct.unpack_from("!ihihih", content, end + 1)
        found.append((content[at:end].decode(), kind, form))
        at = end + 19
    return found
