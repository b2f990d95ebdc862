"""Time limits of a connection: for one frame, for reading its answers, and for silence.

The server looks at all connections every few seconds; no connection has a timer of its own.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class TimeLimits(msgspec.Struct, frozen=True):
    """Times after which a slow client loses its connection.

    Attributes:
        frame_s: From the first byte of a frame to its last.
        answers_s: From where more answers wait than the connection holds to where a quarter of them is left.
        idle_s: Without any whole frame, while nothing is asked for; 0 is for ever.
        admission_s: From its opening to the end of the TLS and the log-in that are required, whatever it sends.

    """

    frame_s: float = 30.0
    answers_s: float = 60.0
    idle_s: float = 0.0
    admission_s: float = 30.0


class Overdue(StrEnum):
    """Reasons why a client was too slow."""

    FRAME = "a frame was begun and not ended in time"
    ANSWERS = "its answers are not read"
    ADMISSION = "it neither went over to TLS nor logged in"
    IDLE = "nothing was asked for in a long time"


class ConnectionTimes:
    """Progress of one connection, as the last looks at it found it.

    Attributes:
        since_s: Since when nothing came from it.

    """

    __slots__ = ("_opened_s", "_read_count", "_unwritable_since_s", "since_s")

    def __init__(self) -> None:
        self._read_count = -1
        self._opened_s = 0.0
        self.since_s = 0.0
        self._unwritable_since_s: float | None = None

    def on_opened(self, now_s: float) -> None:
        self._opened_s = self.since_s = now_s

    def on_writable(self, *, is_writable: bool, now_s: float) -> None:
        """Take note that answers wait, or that there is room for them again."""
        self._unwritable_since_s = None if is_writable else now_s

    def forgive(self, now_s: float) -> None:
        """Begin anew: this process itself stood still."""
        self._opened_s = self.since_s = now_s
        if self._unwritable_since_s is not None:
            self._unwritable_since_s = now_s

    def overdue(
        self, limits: TimeLimits, now_s: float, read_count: int, *, has_part: bool, is_busy: bool, is_admitted: bool
    ) -> Overdue | None:
        """Return what the client is too slow with, if anything.

        Args:
            limits: How slow it may be.
            now_s: The loop's time.
            read_count: Wake-ups so far that brought whole frames.
            has_part: A frame has begun and is not whole.
            is_busy: The bookie owes it something, or does not read from it at present.
            is_admitted: It has done what must come before any request.

        """
        if not is_admitted and now_s - self._opened_s > limits.admission_s:
            return Overdue.ADMISSION
        if self._unwritable_since_s is not None:
            return Overdue.ANSWERS if now_s - self._unwritable_since_s > limits.answers_s else None
        if is_busy or read_count != self._read_count:
            self._read_count, self.since_s = read_count, now_s
            return None
        quiet_s = now_s - self.since_s
        if has_part:
            return Overdue.FRAME if quiet_s > limits.frame_s else None
        return Overdue.IDLE if 0 < limits.idle_s < quiet_s else None
