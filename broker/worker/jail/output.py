"""Output of jailed code: passed on to the worker's standard error, as readable lines, and bounded.

Through a pipe: by a descriptor of the worker's own log file the code could read it, or cut it off.
"""

from __future__ import annotations

import asyncio
import sys

_LINE_BYTES_MAX = 4096
_BYTES_PER_S = 64 * 1024


class JailOutput(asyncio.Protocol):
    """The reading end of such a pipe.

    Args:
        name: Put before each line.

    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        self._second = 0.0
        self._passed = 0

    def data_received(self, data: bytes) -> None:
        """Pass lines on; what is too much within a second is left out."""
        now = self._loop.time()
        if now - self._second >= 1.0:
            if self._passed > _BYTES_PER_S:
                self._print(f"[… {self._passed - _BYTES_PER_S:,} bytes more were left out]")
            self._second, self._passed = now, 0
        self._passed += len(data)
        if self._passed > _BYTES_PER_S:
            self._rest = b""
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._print(line[:_LINE_BYTES_MAX].decode(errors="replace"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever it was, it is over
        """Pass on what has no end of line."""
        if self._rest:
            self._print(self._rest.decode(errors="replace"))

    def _print(self, line: str) -> None:
        shown = "".join(letter if letter.isprintable() or letter == "\t" else "\ufffd" for letter in line)
        sys.stderr.write(f"{self._name}: {shown}\n")
