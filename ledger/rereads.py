"""Files of rights that a process reads again while it runs: each change is a line of its audit, and told to listeners.

A process may have several readers of one file; the file's change is told once. What is told are names, roles, ids of
keys and fingerprints of certificates: never a secret, nor the hash of one.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ledger.audit_lines import AuditLine, tell

_NAMES_MAX = 20
_FILES_MAX = 1_000


class Reread(NamedTuple):
    """A file that was read again.

    Attributes:
        what: "principals", "tokens", "certificate", "log key", "users".
        path: Of the file.
        changed: What is another now, in words.
        failure: Why it is not used; "" = it is in force.

    """

    what: str
    path: str
    changed: str
    failure: str = ""

    def line(self) -> AuditLine:
        """Return the line of the audit: nobody knows who edited a file, but what came of it."""
        return AuditLine(
            source=f"file {self.path} on {socket.gethostname()}",
            action=f"{self.what} read again",
            target=self.changed or "nothing",
            outcome=f"not used: {self.failure}" if self.failure else "in force",
        )


_listeners: list[Callable[[Reread], None]] = []
# (what, path) -> the version of the file that was told last; the oldest goes first.
_told: dict[tuple[str, str], object] = {}
_lock = threading.Lock()  # Certificates are looked at by threads of gRPC.


def reread(found: Reread, version: object) -> None:
    """Tell that a file was read again and something is another now, unless another reader of it has told so.

    Args:
        found: What was found.
        version: Tells one state of the file from another: its stamp.

    """
    with _lock:
        place = (found.what, found.path)
        if _told.get(place) == version:
            return
        _told.pop(place, None)
        if len(_told) >= _FILES_MAX:
            del _told[next(iter(_told))]
        _told[place] = version
        listeners = list(_listeners)
    tell(msgspec.structs.asdict(found.line()))
    for listener in listeners:
        listener(found)


def on_reread(listener: Callable[[Reread], None]) -> Callable[[], None]:
    """Call a listener with each file that is read again, from whatever thread; return what ends that."""
    with _lock:
        _listeners.append(listener)

    def _end() -> None:
        with _lock:
            if listener in _listeners:
                _listeners.remove(listener)

    return _end


def names_changed(before: Sequence[str], after: Sequence[str]) -> str:
    """Return which names came and went, in words; "" = none did."""
    went = [f"-{name}" for name in sorted(set(before) - set(after))]
    came = [f"+{name}" for name in sorted(set(after) - set(before))]
    return shortened([*came, *went])


def shortened(words: Sequence[str]) -> str:
    """Return words in a row, not more than a line of the audit can bear."""
    more = f", and {len(words) - _NAMES_MAX} more" if len(words) > _NAMES_MAX else ""
    return ", ".join(words[:_NAMES_MAX]) + more
