"""The catalog as it was: kept beside the file's own, for readers of the log that begin at a revision of before.

It is this replica's alone, and no part of the state. It begins where the replica's file does: with the log, with the
snapshot that it was made of, or with the first start of a version that keeps it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rsm_spark.core.machine import RowChange
from rsm_spark.core.records import pack
from rsm_spark.sql.engine.catalog import SqlCatalog
from rsm_spark.sql.engine.guard import INTERNAL_PREFIX
from rsm_spark.sql.engine.shapes import Execute
from rsm_spark.sql.records import CatalogRow

NOTES_MAX = 10_000
"""Changes of the schema that are kept; half of them are forgotten at once."""
_SINCE = f"{INTERNAL_PREFIX}catalog_since"
_NOTES = f"{INTERNAL_PREFIX}catalog_notes"
_decode: Any = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class CatalogHistory:
    """See the module.

    Args:
        execute: Runs a statement of the replica itself.
        catalog: Of the tables, as they are now.
        notes_max: Changes that are kept.

    """

    def __init__(self, execute: Execute, catalog: SqlCatalog, *, notes_max: int = NOTES_MAX) -> None:
        self._execute = execute
        self._catalog = catalog
        self._notes_max = notes_max
        self._since = 0
        # Of what each object was from a revision on, None = there was none; revisions ascend.
        self._notes: list[tuple[int, str, CatalogRow | None]] = []
        self._kept_count = 0  # Notes that the file has.
        self._is_written_anew = False
        self._is_restored = False

    def make(self) -> None:
        """Make its tables, if they are not there."""
        self._execute(f"CREATE TABLE IF NOT EXISTS {_SINCE} (one INTEGER PRIMARY KEY, revision INTEGER)")
        self._execute(f"CREATE TABLE IF NOT EXISTS {_NOTES} (revision INTEGER, name TEXT, row BLOB)")

    def load(self, revision: int) -> None:
        """Read what the file has: at the beginning, and after a rollback.

        Args:
            revision: Of the last commit.

        """
        self._is_restored = False
        found = self._execute(f"SELECT revision FROM {_SINCE}").fetchall()
        if not found:
            self._begin(revision)
            return
        rows = self._execute(f"SELECT revision, name, row FROM {_NOTES} ORDER BY rowid").fetchall()
        self._notes = [(at, name, None if row is None else CatalogRow(*_decode(row))) for at, name, row in rows]
        self._since, self._kept_count, self._is_written_anew = found[0][0], len(rows), False

    def _begin(self, revision: int) -> None:
        self._since = revision
        self._notes = [(revision, name, row) for name, row in self._catalog.objects.items()]
        self._is_written_anew = True

    def begin_anew(self) -> None:
        """Forget all: another state takes the place of this one, and is told of with the next commit."""
        self._is_restored = True

    def note(self, revision: int, change: RowChange) -> None:
        """Take note of a change of the catalog that was folded."""
        if not self._is_restored:
            (name,) = _decode(change.key)
            self._notes.append((revision, name, None if change.new is None else CatalogRow(*_decode(change.new))))

    def commit(self, revision: int) -> None:
        """Keep what was noted, with the commit of a revision."""
        if self._is_restored:
            self._is_restored = False
            self._begin(revision)
        if len(self._notes) > self._notes_max:
            self._forget_half()
        if self._is_written_anew:
            self._execute(f"DELETE FROM {_SINCE}")
            self._execute(f"DELETE FROM {_NOTES}")
            self._execute(f"INSERT INTO {_SINCE} VALUES (1, ?)", (self._since,))
            self._is_written_anew, self._kept_count = False, 0
        for at, name, row in self._notes[self._kept_count :]:
            self._execute(f"INSERT INTO {_NOTES} VALUES (?, ?, ?)", (at, name, None if row is None else pack(row)))
        self._kept_count = len(self._notes)

    def _forget_half(self) -> None:
        since = self._notes[len(self._notes) // 2][0]
        objects = self.at(since) or {}
        later = [note for note in self._notes if note[0] > since]
        self._since = since
        self._notes = [(since, name, row) for name, row in objects.items()] + later
        self._is_written_anew = True

    def at(self, revision: int) -> dict[str, CatalogRow] | None:
        """Return the objects by name as they were right after a revision that is confirmed; None = it is not known."""
        if revision < self._since or self._is_restored:
            return None
        objects: dict[str, CatalogRow] = {}
        for at, name, row in self._notes:
            if at > revision:
                break
            objects.pop(name, None)
            if row is not None:
                objects[name] = row
        return objects
