"""Pages of a file store beside WebHDFS: health, readiness, status, metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ledger.http.replies import HttpReply
from ledger.rights.table import Right


class WebHdfsPage(NamedTuple):
    """A page.

    Attributes:
        right: That a caller needs; None = everybody may.
        answer: Makes it.

    """

    right: Right | None
    answer: Callable[[], Awaitable[HttpReply]]
