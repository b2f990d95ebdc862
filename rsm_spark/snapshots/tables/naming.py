"""Names of tables as folders, and names of columns as Delta takes them. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

TABLES_FOLDER = "_tables"
"""Of the typed tables, below the log's snapshots. By its underscore no VACUUM of those looks into it."""
REVISIONS_TABLE = "_revisions"
REVISION_COLUMN = "_revision"
"""Column of a typed table: revision of the record that wrote the row last."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_OTHER = re.compile(r"[^A-Za-z0-9-]")
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=`\x00-\x1f]")
_SHOWN = 60


def tables_place(place: str) -> str:
    """Return where the typed tables of a log lie, by where its snapshots do."""
    return f"{place.rstrip('/')}/{TABLES_FOLDER}"


def table_folder(name: str) -> str:
    """Return the name of a table's folder: its own one, if that is a plain one."""
    if _PLAIN.fullmatch(name):
        return name
    # No plain name has a "~": two tables never share a folder.
    return f"{_OTHER.sub('-', name[:_SHOWN])}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def column_names(names: Sequence[str], *, taken: Sequence[str] = ()) -> list[str]:
    """Return the names that columns have in Delta, whose names are told apart without regard to case.

    Args:
        names: Of the columns.
        taken: Names that others have.

    """
    used = {name.lower() for name in taken}
    found: list[str] = []
    for name in names:
        plain = _FORBIDDEN.sub("_", name) or "_"
        candidate, number = plain, 1
        while candidate.lower() in used:
            number += 1
            candidate = f"{plain}_{number}"
        used.add(candidate.lower())
        found.append(candidate)
    return found
