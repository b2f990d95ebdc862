"""Requests of one connection that would bring a ledger into being, and wait until somebody vouches for it.

They wait as frames: with a yes they are handled as if they came now, all of a ledger in their order; else each is
answered with a refusal. Requests for other ledgers go past them.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from ledger.bookie.births import ANY_KEY, Births, KeyNotFound
from ledger.core.key_questions import AskerRank
from ledger.frame_pot import FrameShare
from ledger.wire import packets as p
from ledger.wire.codes import Status
from ledger.wire.digests import MASTER_KEY_BYTES

_BYTES_MAX: Final = 4 << 20
_LEDGERS_MAX: Final = {AskerRank.PROVEN: 64, AskerRank.NEW: 1, AskerRank.REFUSED: 1}


class WaitingBirths:
    """See the module.

    Args:
        births: Whom it asks.
        share: Told how many bytes wait.
        unpark: Gets the frames of a ledger, joined, that may be handled now.
        refuse: Gets a frame and how it is to be answered.

    Attributes:
        byte_count: Bytes that wait.

    Invariants: `_frames` holds no empty list; `byte_count` is the sum of all.

    """

    def __init__(
        self,
        births: Births,
        share: FrameShare,
        unpark: Callable[[bytes], None],
        refuse: Callable[[bytes, Status], None],
    ) -> None:
        self._births = births
        self._share = share
        self._unpark = unpark
        self._refuse = refuse
        self._frames: dict[int, list[tuple[bytes, bytes]]] = {}  # (key, frame)
        self._found_count = self._refused_count = 0
        self.byte_count = 0

    @property
    def rank(self) -> AskerRank:
        """Rank of its questions, by the answers that it had so far."""
        if self._refused_count > self._found_count:
            return AskerRank.REFUSED
        return AskerRank.PROVEN if self._found_count else AskerRank.NEW

    def wait(self, ledger_id: int, key: bytes, frame: bytes) -> bool:
        """Let a request wait, or refuse it if the metadata cannot be had; False: too many wait, give it again."""
        frames = self._frames.get(ledger_id)
        if self._frames:
            if self.byte_count + len(frame) > _BYTES_MAX:
                return False
            if frames is None and len(self._frames) >= _LEDGERS_MAX[self.rank]:
                return False
        if frames is None:
            if not self._births.ask(ledger_id, self):
                self._refuse(frame, Status.ETOOMANYREQUESTS)
                return True
            frames = self._frames[ledger_id] = []
        frames.append((key, frame))
        self._count(len(frame))
        return True

    def on_key(self, ledger_id: int, found: bytes | KeyNotFound) -> None:
        """Hear the key of a ledger, or why there is none."""
        waiting = self._frames.pop(ledger_id, [])
        self._count(-sum(len(frame) for _, frame in waiting))
        good: list[bytes] = []
        for key, frame in waiting:
            if isinstance(found, KeyNotFound):
                self._refuse(frame, Status.EUA if found.is_certain else Status.ETOOMANYREQUESTS)
            elif found == ANY_KEY or compare_digest(found, key):
                good.append(frame)
            else:
                self._refuse(frame, Status.EUA)
        if good:
            self._found_count += 1
        elif not isinstance(found, KeyNotFound) or found.is_certain:
            self._refused_count += 1
        self._unpark(b"".join(good))

    def clear(self) -> None:
        """Forget all: the connection is over."""
        self._births.forget(list(self._frames), self)
        self._frames.clear()
        self._count(-self.byte_count)

    def _count(self, change: int) -> None:
        self.byte_count += change
        self._share.set(self.byte_count, is_new_frame=False)


def key_of_birth(request: p.Request) -> bytes | None:
    """Return the key that a request would pin if its ledger is not known; None if it brings nothing into being."""
    match request:
        case p.AddRequest() | p.WriteLacRequest():
            key: bytes | None = request.master_key
        case p.ReadRequest() | p.BatchReadRequest() if request.is_fencing:
            key = request.master_key
        case _:
            return None
    return key if key is not None and len(key) == MASTER_KEY_BYTES else None
