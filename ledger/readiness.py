"""Readiness of a bookie, in a file of its folder: for `rsm bookie ready`, `rsm ps` and supervisors.

A bookie writes this file every second, whether it has an HTTP port or not; an old one tells that the process has ended,
that its event loop stands still, or that its disk does.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Final

import msgspec

from ledger.decoding import json_decoder

READINESS_FILE: Final = "ready.json"
AGE_S_MAX: Final = 5.0
"""An older file says nothing any more."""


class Readiness(msgspec.Struct, frozen=True):
    """Statement of a bookie about its readiness.

    Attributes:
        is_ready: Clients can write to it.
        words: Why, or why not.
        pid: Of the process; 0 = there is none.
        said_at_s: Monotonic time.

    """

    is_ready: bool
    words: str
    pid: int = 0
    said_at_s: float = 0.0


def read_readiness(folder: Path, now_s: float) -> Readiness:
    """Return what the bookie of this folder says.

    Args:
        folder: Where its first segments lie (`ledgers/current`).
        now_s: Monotonic time.

    """
    try:
        said = json_decoder(Readiness).decode((folder / READINESS_FILE).read_bytes())
    except FileNotFoundError:
        return Readiness(is_ready=False, words="it does not serve: it has not started, or has ended in good order")
    except (OSError, msgspec.DecodeError) as error:
        return Readiness(is_ready=False, words=f"{folder / READINESS_FILE} cannot be read: {error}")
    age_s = now_s - said.said_at_s
    if 0 <= age_s <= AGE_S_MAX:
        return said
    words = f"pid {said.pid} has said nothing for {age_s:.0f} s: it has ended, or its loop or its disk stands still"
    return Readiness(is_ready=False, words=words, pid=said.pid, said_at_s=said.said_at_s)


def write_readiness(folder: Path, said: Readiness) -> None:
    """Replace the file; who reads it sees the old one or the new one.

    Raises:
        OSError: The disk refuses.

    """
    path = folder / READINESS_FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(said))
    temporary.replace(path)


def notify_supervisor(said: Readiness) -> None:
    """Tell systemd, if it started this process with Type=notify: that it serves, and what it says of itself."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    place = f"\0{address[1:]}" if address.startswith("@") else address
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
        sender.sendto(f"READY=1\nSTATUS={said.words}".encode(), place)
