"""Context that a codec binds an encoded value to, so that a server can neither move nor exchange values."""

from __future__ import annotations


def value_place(log: str, key: bytes) -> bytes:
    """Return the place of a key of a map."""
    return b"map\0" + log.encode() + b"\0" + key


def payload_place(task_type: str) -> bytes:
    """Return the place of a payload: its task has no id yet when it is encoded."""
    return b"payload\0" + task_type.encode()


def result_place(task_id: int) -> bytes:
    """Return the place of a task's result."""
    return b"result\0%d" % task_id
