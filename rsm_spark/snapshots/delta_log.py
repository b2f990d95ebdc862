"""The commits of a Delta table in a folder of this machine, read from their files.

`deltalake` counts versions back from the newest commit and refuses a table whose newest commit is torn: after a power
failure it may be, and the snapshots before it are then needed most.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.snapshots.delta_sync import contained

_NAME = re.compile(r"(\d{20})\.json")


class Commit(NamedTuple):
    """One commit of a table.

    Attributes:
        version: Of the table.
        details: What the writer said of it (`commitInfo`); None if the commit cannot be read.
        added: Files that it added, relative to the table, with their sizes.
        missing: Those that are not there in that size (any more).

    """

    version: int
    details: dict[str, Any] | None
    added: tuple[tuple[str, int], ...] = ()
    missing: tuple[str, ...] = ()


class CommitLog:
    """The commits of one table; each is read once, as long as its file stays as it is.

    Args:
        folder: Of the table.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Version -> (size, time of change, what was read).
        self._read: dict[int, tuple[int, int, Commit]] = {}

    def commits(self, limit: int | None = None) -> list[Commit]:
        """Return the newest commits, newest first; none if there is no table.

        Raises:
            OSError: The folder cannot be read.

        """
        log = self._folder / "_delta_log"
        if not log.is_dir():
            return []
        versions = sorted(
            (int(match[1]) for path in log.iterdir() if (match := _NAME.fullmatch(path.name))), reverse=True
        )
        self._read = {version: self._read[version] for version in versions if version in self._read}
        return [self._commit(log / f"{version:020d}.json", version) for version in versions[:limit]]

    def _commit(self, path: Path, version: int) -> Commit:
        seen = path.stat()
        known = self._read.get(version)
        if known is None or known[:2] != (seen.st_size, seen.st_mtime_ns):
            known = (seen.st_size, seen.st_mtime_ns, decode_commit(path.read_bytes(), version))
            self._read[version] = known
        commit = known[2]
        missing = tuple(name for name, size in commit.added if not self._holds(name, size))
        return commit._replace(missing=missing)

    def _holds(self, name: str, size: int) -> bool:
        """Return whether the table holds this file; a file that lies outside of its folder is none of it."""
        try:
            return _is_there(self._folder / contained(name), size)
        except CorruptSnapshotError:
            return False


def set_torn_commit_aside(folder: Path) -> Path | None:
    """Rename the newest commit if it cannot be read, so that the table can be written again; return its new name.

    Only what nobody was ever told of can be torn: a writer syncs its commit before it tells.

    Raises:
        OSError: The folder cannot be changed.

    """
    commits = CommitLog(folder).commits(1)
    if not commits or commits[0].details is not None:
        return None
    path = folder / "_delta_log" / f"{commits[0].version:020d}.json"
    aside = path.with_name(f".damaged-{path.name}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f".damaged-{number}-{path.name}")
    return path.rename(aside)


def decode_commit(text: bytes, version: int) -> Commit:
    """Return what a commit says; one that is torn says nothing."""
    details: dict[str, Any] | None = None
    added: list[tuple[str, int]] = []
    try:
        for line in text.splitlines():
            action: dict[str, Any] = msgspec.json.decode(line)
            details = action.get("commitInfo", details)
            if "add" in action:
                added.append((action["add"]["path"], action["add"]["size"]))
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return Commit(version, None)
    return Commit(version, details, tuple(added))


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
