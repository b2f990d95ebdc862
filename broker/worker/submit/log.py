"""Log and output of an application, or of its launcher: the end is kept, and what Spark says of itself is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable

_LINE_BYTES_MAX = 4096
_STAMP = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d "
_SPARKS_CHATTER = re.compile(rf"{_STAMP}(?:INFO|DEBUG|TRACE) ")
_APPLICATION = re.compile(
    rf"{_STAMP}INFO .*\b(app-\d{{14}}-\d{{4,9}}|application_\d{{10,16}}_\d{{4,9}}|spark-[0-9a-f]{{32}})\b"
)
_SUBMISSION = re.compile(
    rf"{_STAMP}INFO (?:ClientEndpoint: Driver successfully submitted as (driver-\d{{14}}-\d{{4,9}})$"
    r"|Client: Submitted application (application_\d{10,16}_\d{4,9})$"
    r"|LoggingPodStatusWatcherImpl: .*submission ID ([a-z0-9.-]{1,100}:[a-z0-9.-]{1,250}) )"
)
_DRIVER_HOST = re.compile(rf"{_STAMP}INFO ClientEndpoint: Driver running on ([A-Za-z0-9_.-]{{1,250}}):\d+ ")
_DRIVER_END = re.compile(
    rf"{_STAMP}INFO ClientEndpoint: State of driver driver-[\d-]{{1,40}} is ([A-Z]{{1,20}}), exiting"
)


class OutputTail:
    """End of what a process writes.

    Args:
        bytes_max: So much of it is kept.
        on_line: Hears each line, without its end; long ones in pieces.

    """

    def __init__(self, bytes_max: int, on_line: Callable[[str], None] | None = None) -> None:
        self._bytes_max = bytes_max
        self._on_line = on_line
        self._kept = bytearray()
        self._rest = b""
        self.size = 0

    def feed(self, chunk: bytes) -> None:
        """Take what has come."""
        self.size += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._bytes_max:
            del self._kept[: -self._bytes_max]
        if self._on_line is None:
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._on_line(line[:_LINE_BYTES_MAX].decode(errors="replace").rstrip())

    @property
    def text(self) -> str:
        """Text that is kept; if something is missing, it begins with a whole line where there is one."""
        kept = bytes(self._kept[-self._bytes_max :])
        if self.size <= len(kept):
            return kept.decode(errors="replace")
        _, newline, lines = kept.partition(b"\n")
        return "[…]\n" + (lines if newline else kept).decode(errors="replace")


class ApplicationLog:
    """Standard error of spark-submit.

    Args:
        bytes_max: So much of its end is kept, and as much of what is no chatter of Spark's.

    Attributes:
        application_id: That Spark's own lines name; "" = none yet.
        submission_id: By which a cluster knows what was submitted; "" = none yet.
        driver_host: Where the cluster runs the driver; "" = not said.
        driver_end: State in which a standalone cluster's driver has ended; "" = not said.
        last_line: For people.

    """

    def __init__(self, bytes_max: int) -> None:
        self._whole = OutputTail(bytes_max, self._on_line)
        self._troubles = OutputTail(bytes_max)
        self.application_id = ""
        self.submission_id = ""
        self.driver_host = ""
        self.driver_end = ""
        self.last_line = ""

    def feed(self, chunk: bytes) -> None:
        """Take what has come."""
        self._whole.feed(chunk)

    @property
    def text(self) -> str:
        """End of the log."""
        return self._whole.text

    @property
    def troubles(self) -> str:
        """End of the log without what Spark only mentions: warnings, errors, and what the application writes."""
        return self._troubles.text

    def _on_line(self, line: str) -> None:
        if line.strip():
            self.last_line = line
        if not _SPARKS_CHATTER.match(line):
            self._troubles.feed(line.encode() + b"\n")
            return
        # The first one counts: nobody talks Spark out of it later.
        if not self.application_id and (found := _APPLICATION.match(line)):
            self.application_id = found[1]
        if not self.submission_id and (found := _SUBMISSION.match(line)):
            self.submission_id = next(part for part in found.groups() if part)
        if not self.driver_host and (found := _DRIVER_HOST.match(line)):
            self.driver_host = found[1]
        if not self.driver_end and (found := _DRIVER_END.match(line)):
            self.driver_end = found[1]
