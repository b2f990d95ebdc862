"""Finds the backups of a place, and removes those beyond the newest.

The backups of a log lie below the name that it had at the first one. Where it is renamed, `NEW/ID/former` says where.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rsm_spark.backup.manifest import (
    MANIFEST_BYTES_MAX,
    BackupError,
    BackupManifest,
    CorruptBackupError,
    NoSuchBackupError,
    RetentionError,
    decode_backup,
    encode_backup,
    is_log_id,
    made_ms_of,
)
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.plan import expired, unused_files

_FORMER = "former"
_NAME_BYTES_MAX = 4_096


class BackupList(msgspec.Struct):
    """Backups of a place.

    Attributes:
        whole: Whose manifests are right, newest first. Their files are looked at when they are verified or restored.
        damaged: Why the others are of no use, a line each.
        damaged_names: Names of those.

    """

    whole: list[BackupManifest] = []
    damaged: list[str] = []
    damaged_names: list[str] = []


def find_backups(place: BackupPlace, log: str | None = None, log_id: str | None = None) -> BackupList:
    """Return the backups of a log, under the present name or a former one, or of all.

    Raises:
        BackupError: The place cannot be read.

    """
    found = BackupList()
    paths = sorted(place.sizes("" if log is None else log))
    homes = [(log, log_id, paths)]
    for parts in (path.split("/") for path in paths if log is not None):
        if len(parts) == 2 and parts[1] == _FORMER and is_log_id(parts[0]) and log_id in {None, parts[0]}:
            former = _former(place, f"{log}/{parts[0]}/{_FORMER}")
            if former != log:
                homes.append((former, parts[0], sorted(place.sizes(former))))
    for home, wanted_id, there in homes:
        _look(place, found, home, wanted_id, there)
    found.whole.sort(key=lambda one: (one.made_ms, one.last_revision), reverse=True)
    return found


def home_of(place: BackupPlace, log: str, log_id: str, former_names: Sequence[str]) -> str:
    """Return the name below which the backups of a log lie, and have its present name tell.

    Args:
        place: Of the backups.
        log: Name of the log.
        log_id: Its id.
        former_names: Names that it had.

    Raises:
        BackupError: The place cannot be read or written.

    """
    there = place.sizes(f"{log}/{log_id}")
    if _FORMER in there:
        return _former(place, f"{log}/{log_id}/{_FORMER}")
    if any(path.startswith("backups/") for path in there):
        return log
    for name in former_names:
        home = name
        below = place.sizes(f"{name}/{log_id}")
        if _FORMER in below:
            home = _former(place, f"{name}/{log_id}/{_FORMER}")
        elif not any(path.startswith("backups/") for path in below):
            continue
        if home == log:
            return log
        place.put(f"{log}/{log_id}/{_FORMER}", home.encode())
        return home
    return log


def _former(place: BackupPlace, path: str) -> str:
    name = place.read(path, _NAME_BYTES_MAX).decode(errors="replace")
    if not name or "/" in name or name in {".", ".."}:
        raise CorruptBackupError(f"{place.shown}/{path}: it should hold a former name of the log: remove that file")
    return name


def _look(place: BackupPlace, found: BackupList, log: str | None, log_id: str | None, paths: Sequence[str]) -> None:
    for path in paths:
        parts = (path if log is None else f"{log}/{path}").split("/")
        if len(parts) != 4 or parts[2] != "backups" or not is_log_id(parts[1]) or log_id not in {None, parts[1]}:
            continue
        try:
            text = place.read("/".join(parts), MANIFEST_BYTES_MAX)
            found.whole.append(decode_backup(text, log=parts[0], log_id=parts[1], name=parts[3]))
        except CorruptBackupError as error:
            found.damaged.append(str(error))
            found.damaged_names.append(parts[3])


def choose_backup(
    place: BackupPlace, log: str, *, log_id: str | None = None, name: str | None = None, revision: int | None = None
) -> BackupManifest:
    """Return the backup to use: the one named, else the newest that holds a revision.

    Raises:
        NoSuchBackupError: There is none.
        BackupError: There are backups of several logs of this name.

    """
    found = find_backups(place, log, log_id)
    ids = {one.log_id for one in found.whole}
    if len(ids) > 1:
        raise BackupError(
            f"{place.shown}: there are backups of {len(ids)} logs that were named {log}: {', '.join(sorted(ids))}: "
            "say which one by --log-id"
        )
    for manifest in found.whole:
        holds = revision is None or manifest.first_revision <= revision <= manifest.last_revision
        if holds and name in {None, manifest.name}:
            return manifest
    wanted = f" of name {name}" if name else f" that holds revision {revision}" if revision is not None else ""
    there = ", ".join(f"{one.name} ({one.first_revision} to {one.last_revision})" for one in found.whole[:5])
    raise NoSuchBackupError(
        f"{place.shown}: there is no backup of log {log}{wanted}. There are: {there or 'none'}"
        f"{''.join(f'; {line}' for line in found.damaged)}"
    )


def keep_backup(place: BackupPlace, manifest: BackupManifest) -> None:
    """Write a manifest; all that it names is there already: from here on there is a backup."""
    place.put(f"{manifest.folder}/backups/{manifest.name}", encode_backup(manifest))


def remove_expired(place: BackupPlace, log: str, log_id: str, keep: int) -> list[str]:
    """Remove the backups of a log beyond the newest ones; return their names.

    The manifest goes first: what is broken off leaves files that nobody names, never a backup without its files. Of a
    damaged backup nobody knows which files it needs: one that would be removed too goes with the others.

    Raises:
        RetentionError: One that would stay is damaged: nothing is removed.
        BackupError: The place cannot be written.

    """
    found = find_backups(place, log, log_id)
    gone = expired(found.whole, keep)
    if not gone:
        return []
    oldest_kept = min(one.made_ms for one in found.whole if one not in gone)
    staying = [
        line
        for name, line in zip(found.damaged_names, found.damaged, strict=True)
        if (made_ms := made_ms_of(name)) is None or made_ms >= oldest_kept
    ]
    if staying:
        raise RetentionError(
            f"log {log}: no older backup is removed while one is damaged, since nobody knows which files it needs: "
            f"{'; '.join(staying)}. Put it back, or remove that one file"
        )
    names = [*(one.name for one in gone), *found.damaged_names]
    for name in names:
        place.delete(f"{gone[0].folder}/backups/{name}")
    for path in unused_files(gone, [one for one in found.whole if one not in gone]):
        place.delete(f"{gone[0].folder}/{path}")
    return names
