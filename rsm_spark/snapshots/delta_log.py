"""The commits of a Delta table in a folder of this machine, read from their files.

`deltalake` counts versions back from the newest commit and refuses a table whose newest commit is torn: after a power
failure it may be, and the snapshots before it are then needed most.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

__all__ = ["Commit", "read_commits", "set_torn_commit_aside"]

_NAME = re.compile(r"(\d{20})\.json")


class Commit(NamedTuple):
    """One commit of a table.

    Attributes:
        version: Of the table.
        details: What the writer said of it (`commitInfo`); None if the commit cannot be read.
        missing: Files that it added and that are not there in that size any more.

    """

    version: int
    details: dict[str, Any] | None
    missing: tuple[str, ...] = ()


def read_commits(folder: Path) -> list[Commit]:
    """Return the commits of a table, newest first; none if there is no table.

    Raises:
        OSError: The folder cannot be read.

    """
    log = folder / "_delta_log"
    if not log.is_dir():
        return []
    versions = sorted((int(match[1]) for path in log.iterdir() if (match := _NAME.fullmatch(path.name))), reverse=True)
    return [_commit(folder, version) for version in versions]


def set_torn_commit_aside(folder: Path) -> Path | None:
    """Rename the newest commit if it cannot be read, so that the table can be written again; return its new name.

    Only what nobody was ever told of can be torn: a writer syncs its commit before it tells.

    Raises:
        OSError: The folder cannot be changed.

    """
    commits = read_commits(folder)
    if not commits or commits[0].details is not None:
        return None
    path = folder / "_delta_log" / f"{commits[0].version:020d}.json"
    aside = path.with_name(f".damaged-{path.name}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f".damaged-{number}-{path.name}")
    return path.rename(aside)


def _commit(folder: Path, version: int) -> Commit:
    text = (folder / "_delta_log" / f"{version:020d}.json").read_bytes()
    details: dict[str, Any] | None = None
    missing: list[str] = []
    try:
        for line in text.splitlines():
            action: dict[str, Any] = msgspec.json.decode(line)
            details = action.get("commitInfo", details)
            added = action.get("add")
            if added is not None and not _is_there(folder / unquote(added["path"]), added["size"]):
                missing.append(added["path"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return Commit(version, None)
    return Commit(version, details, tuple(missing))


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
