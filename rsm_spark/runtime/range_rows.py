"""Rows of a range of keys in a file, as they were at one revision, and moved on from there.

The file lies in the replica's folder and has no name any more, so a range of any size holds little memory and nothing
stays behind.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock

import msgspec

from rsm_spark.core.machine import Row
from rsm_spark.errors import InvalidCommandError
from rsm_spark.runtime.change_feed import FeedEntry
from rsm_spark.runtime.change_filter import ChangeFilter, TableChange

ROW_BYTES_MAX = 1 << 30
"""Of the file of one past."""
_PAGE_BYTES = 4096
_CACHE_KIB = 4096
_ROWS_AT_ONCE = 1_000
OLDS_BYTES = 4 * 1024 * 1024
"""Of old rows that are in memory at once for one watch, before the last of them."""
_TABLE = "CREATE TABLE past (key BLOB PRIMARY KEY, row BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID"
_PUT = "INSERT OR REPLACE INTO past VALUES (?, ?, ?)"
_COUNT = """SELECT count(*) FROM past
    WHERE substr(key, 1, 1) = ? AND plain(key) >= ? AND plain(key) < ?"""
_LIST = """SELECT plain(key), row, revision FROM past
    WHERE substr(key, 1, 1) = ? AND plain(key) >= ? AND plain(key) < ?
    ORDER BY substr(key, 1, 1), plain(key) LIMIT ?"""
_BEHIND_ALL = b"\xff" * 65_537
"""Behind every key: machines have shorter ones."""

OldRow = tuple[bytes, int]
"""A row, and the revision of the record that wrote it."""


class RangeRows:
    """Rows of a range in a file. Its calls block, and may be made by any thread, one at a time.

    Args:
        folder: In which the file is made.
        chosen: The range, in one table or in several: changes are those of the first one, unless a call says it.
        bytes_max: Largest size of the file.

    """

    def __init__(self, folder: Path, *chosen: ChangeFilter, bytes_max: int = ROW_BYTES_MAX) -> None:
        self._chosen = chosen
        self._lock = Lock()
        self._is_closed = False
        folder.mkdir(parents=True, exist_ok=True)
        number, path = tempfile.mkstemp(prefix="past-rows-", dir=folder)
        os.close(number)
        try:
            self._rows = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            for setting in (
                f"page_size={_PAGE_BYTES}", "journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE",
                f"cache_size=-{_CACHE_KIB}", f"max_page_count={max(2, bytes_max // _PAGE_BYTES)}",
            ):  # fmt: skip
                self._rows.execute(f"PRAGMA {setting}")
            self._rows.execute(_TABLE)
            self._rows.execute("BEGIN")
        finally:
            Path(path).unlink()

    def load(self, rows: Iterable[Row]) -> None:
        """Take the rows of a snapshot that are in the range.

        Raises:
            CorruptSnapshotError: They are not what the snapshot's manifest says.
            InvalidCommandError: There is no room for them.

        """
        taken: list[tuple[bytes, bytes, int]] = []
        with self._turn():
            for row in rows:
                place = next((place for place, one in enumerate(self._chosen) if one.holds(row)), None)
                if place is not None:
                    taken.append((_stored(place, row.key), row.row, row.revision))
                    if len(taken) >= _ROWS_AT_ONCE:
                        self._take(taken)
                        taken = []
                if self._is_closed:
                    return
            self._take(taken)

    def _take(self, rows: list[tuple[bytes, bytes, int]]) -> None:
        try:
            self._rows.executemany(_PUT, rows)
        except sqlite3.Error as error:
            raise _no_room(error) from error

    def clear(self) -> None:
        """Begin anew, without rows."""
        with self._turn():
            if not self._is_closed:
                self._rows.execute("DELETE FROM past")

    def fold(self, entries: Sequence[FeedEntry], up_to: int | None = None) -> None:
        """Fold entries.

        Args:
            entries: Of the log.
            up_to: Only of commands whose last record has this revision or a lower one; None = all.

        Raises:
            InvalidCommandError: There is no room for their rows.

        """
        with self._turn():
            for entry in entries:
                last = None if up_to is None or entry.last_revision <= up_to else _last_whole(entry, up_to)
                for place, chosen in enumerate(self._chosen):
                    for change in chosen.take(entry, 0):
                        if self._is_closed:
                            return
                        if last is None or change.revision <= last:
                            self._replace(place, change)

    def move(self, changes: Sequence[TableChange], start: int) -> tuple[dict[int, OldRow], int]:
        """Fold changes from a place on; return what they have replaced or removed by revision, and the next place.

        It ends early when the old rows are some MiB: they are told before more are read.

        Raises:
            InvalidCommandError: There is no room for the new rows.

        """
        olds: dict[int, OldRow] = {}
        room, place = OLDS_BYTES, start
        with self._turn():
            while place < len(changes) and room > 0 and not self._is_closed:
                change = changes[place]
                old = self._replace(0, change)
                if old is not None:
                    olds[change.revision] = old
                    room -= len(old[0])
                place += 1
        return olds, place

    def row(self, table: int, key: bytes) -> OldRow | None:
        """Return a row as it is now.

        Args:
            table: Place of the row's table among those chosen.
            key: Canonical bytes of its key.

        """
        with self._turn():
            return None if self._is_closed else self._find(_stored(table, key))

    def items(self) -> list[tuple[bytes, bytes]]:
        """Return keys and rows of the first table chosen: of few rows."""
        with self._turn():
            if self._is_closed:
                return []
            rows = self._rows.execute("SELECT key, row FROM past ORDER BY key").fetchall()
        return [(key[1:], row) for key, row in rows if key[0] == 0]

    def replace(self, table: int, change: TableChange) -> OldRow | None:
        """Fold a change of a table; return what it has replaced or removed.

        Raises:
            InvalidCommandError: There is no room for the new row.

        """
        with self._turn():
            return None if self._is_closed else self._replace(table, change)

    def sort(self) -> None:
        """Make ready for `listed` and `count`: what is stored of keys has another order than the keys.

        Raises:
            InvalidCommandError: There is no room for the order.

        """
        with self._turn():
            if self._is_closed:
                return
            self._rows.create_function("plain", 1, _plain, deterministic=True)
            try:
                self._rows.execute("CREATE INDEX by_key ON past (substr(key, 1, 1), plain(key))")
            except sqlite3.Error as error:
                raise _no_room(error) from error

    def count(self, table: int, start: bytes, end: bytes | None) -> int:
        """Return how many keys of a sorted table are in a range."""
        with self._turn():
            if self._is_closed:
                return 0
            (found,) = self._rows.execute(_COUNT, _wanted(table, start, end)).fetchone()
            return int(found)

    def listed(
        self, table: int, start: bytes, end: bytes | None, *, limit: int | None, bytes_max: int
    ) -> list[tuple[bytes, bytes, int]]:
        """Return keys of a sorted table with their rows, in order.

        Args:
            table: Place of the table among those chosen.
            start: First key.
            end: Exclusive; None = to the last.
            limit: So many at most; None = all.
            bytes_max: The last one that is returned may pass this many bytes.

        """
        found: list[tuple[bytes, bytes, int]] = []
        with self._turn():
            if self._is_closed:
                return found
            rows = self._rows.execute(_LIST, (*_wanted(table, start, end), -1 if limit is None else limit))
            for key, row, revision in rows:
                found.append((key, row, revision))
                bytes_max -= len(key) + len(row)
                if bytes_max < 0:
                    break
            rows.close()
        return found

    def _replace(self, table: int, change: TableChange) -> OldRow | None:
        key = _stored(table, change.key)
        try:
            old = self._find(key)
            if change.row is not None:
                self._rows.execute(_PUT, (key, change.row, change.revision))
            elif old is not None:
                self._rows.execute("DELETE FROM past WHERE key = ?", (key,))
        except sqlite3.Error as error:
            raise _no_room(error) from error
        return old

    def _find(self, key: bytes) -> OldRow | None:
        found: OldRow | None = self._rows.execute("SELECT row, revision FROM past WHERE key = ?", (key,)).fetchone()
        return found

    def _turn(self) -> _Turn:
        return _Turn(self)

    def close(self) -> None:
        """Give the file back; at once, or when the call under way has ended."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            self._rows.close()
            self._lock.release()


class _Turn:
    """One call of `RangeRows`; the last one closes the file if it was given back meanwhile."""

    def __init__(self, rows: RangeRows) -> None:
        self._of = rows

    def __enter__(self) -> None:
        self._of._lock.acquire()

    def __exit__(self, *_: object) -> None:
        if self._of._is_closed:
            self._of._rows.close()
        self._of._lock.release()


def _stored(table: int, key: bytes) -> bytes:
    return bytes((table,)) + key


def _plain(stored: bytes) -> bytes:
    """Return the first column of a stored key."""
    first: bytes = msgspec.msgpack.decode(stored[1:])[0]
    return first


def _wanted(table: int, start: bytes, end: bytes | None) -> tuple[bytes, bytes, bytes]:
    return bytes((table,)), start, _BEHIND_ALL if end is None else end


def _last_whole(entry: FeedEntry, up_to: int) -> int:
    """Return the revision of the last record of the last command that ends at a revision or before it."""
    end = 0
    for revision, record in enumerate(entry.records(), entry.first_revision):
        if record.command is not None:
            end = revision + record.command.record_count - 1
        elif revision > end:
            end = revision
        if end > up_to:
            return revision - 1
    return up_to


def _no_room(error: sqlite3.Error) -> InvalidCommandError:
    return InvalidCommandError(
        f"old values from before what is remembered need the rows of the range in a file of this replica, which has "
        f"room for {ROW_BYTES_MAX >> 20} MiB at most: {error}. Watch a narrower range, or without old values"
    )
