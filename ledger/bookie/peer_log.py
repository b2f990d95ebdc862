"""Log lines that a peer can bring about at will: so many a minute, and then a count of those that were left out."""

from __future__ import annotations

import logging
from typing import Final

_LINES_MAX: Final = 60
_WINDOW_S: Final = 60.0


class PeerLog:
    """See the module.

    Args:
        log: Where the lines go.

    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._window_began_s = 0.0
        self._line_count = 0
        self._left_out_count = 0

    def warning(self, now_s: float, peer: object, message: str, *args: object) -> None:
        """Log about one peer, if there is room for it in this minute."""
        if now_s - self._window_began_s >= _WINDOW_S:
            if self._left_out_count:
                self._log.warning("%d lines about connections were left out: too many", self._left_out_count)
            self._window_began_s, self._line_count, self._left_out_count = now_s, 0, 0
        if self._line_count >= _LINES_MAX:
            self._left_out_count += 1
            return
        self._line_count += 1
        self._log.warning(message, *args, extra={"peer": peer})
