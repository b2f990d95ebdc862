"""Reads that are tried on the event loop first: which, and whose.

A text that was not quick goes to a thread for the next minute. An owner one of whose reads was given up because it took
too long has all its reads on threads for a hundred times as long as that took: who looks for texts that are slow takes
a hundredth of the event loop with them at most.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rsm_spark.sql.engine.quick_reader import QUICK_S, QuickReader
from rsm_spark.sql.engine.reader import SliceReply
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlQuery
from rsm_spark.sql.system_tables import system_names
from rsm_spark.sql.table_rights import TableRights

_TEXT_CHARS_MAX: Final = 1_000
_TEXTS_MAX: Final = 1_000
_SLOW_S: Final = 60.0
_OWNERS_MAX: Final = 256
_BARRED_FOR: Final = 100


class QuickReads:
    """See the module. For one event loop.

    Args:
        path: Of the file; it is there.
        settings: Limits.
        clock_s: Monotonic seconds.

    """

    def __init__(self, path: Path, settings: SqlSettings, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._reader = QuickReader(path, settings.cache_mib, clock_s)
        # Texts and owners -> time until which threads read for them; what was noted first stands first.
        self._texts: OrderedDict[str, float] = OrderedDict()
        self._owners: OrderedDict[str, float] = OrderedDict()

    def read(self, query: SqlQuery, owner: str, rights: TableRights | None = None) -> SliceReply | None:
        """Return all rows of a query as of the last commit; None = a thread is to read.

        Args:
            query: The query.
            owner: Whose it is.
            rights: Tables that the owner has; None = all.

        """
        sql, now_s = query.sql, self._clock_s()
        if now_s < self._texts.get(sql, now_s) or now_s < self._owners.get(owner, now_s):
            return None
        if len(sql) > _TEXT_CHARS_MAX or system_names(sql):
            return None
        found = self._reader.read(query, rights)
        if found is None and self._reader.was_slow:
            _note(self._texts, sql, now_s + _SLOW_S, _TEXTS_MAX)
            took_s = self._clock_s() - now_s
            if took_s > QUICK_S:
                _note(self._owners, owner, now_s + _BARRED_FOR * took_s, _OWNERS_MAX)
        return found

    def close(self) -> None:
        """Close its connection."""
        self._reader.close()


def _note(noted: OrderedDict[str, float], key: str, until_s: float, count_max: int) -> None:
    noted[key] = until_s
    noted.move_to_end(key)
    if len(noted) > count_max:
        noted.popitem(last=False)
