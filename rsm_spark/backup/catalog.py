"""Finds the backups of a place, and removes those beyond the newest."""

from __future__ import annotations

import logging

import msgspec

from rsm_spark.backup.manifest import (
    MANIFEST_BYTES_MAX,
    BackupError,
    BackupManifest,
    CorruptBackupError,
    decode_backup,
    encode_backup,
    is_log_id,
)
from rsm_spark.backup.place import BackupPlace
from rsm_spark.backup.plan import expired, unused_files

_LOGGER = logging.getLogger(__name__)


class BackupList(msgspec.Struct):
    """Backups of a place.

    Attributes:
        whole: Whose manifests are right, newest first. Their files are looked at when they are verified or restored.
        damaged: Why the others are of no use, a line each.

    """

    whole: list[BackupManifest] = []
    damaged: list[str] = []


def find_backups(place: BackupPlace, log: str | None = None, log_id: str | None = None) -> BackupList:
    """Return the backups of a log, or of all.

    Raises:
        BackupError: The place cannot be read.

    """
    found = BackupList()
    for path in sorted(place.sizes("" if log is None else log)):
        parts = (path if log is None else f"{log}/{path}").split("/")
        if len(parts) != 4 or parts[2] != "backups" or not is_log_id(parts[1]) or log_id not in {None, parts[1]}:
            continue
        try:
            text = place.read("/".join(parts), MANIFEST_BYTES_MAX)
            found.whole.append(decode_backup(text, log=parts[0], log_id=parts[1], name=parts[3]))
        except CorruptBackupError as error:
            found.damaged.append(str(error))
    found.whole.sort(key=lambda one: (one.made_ms, one.last_revision), reverse=True)
    return found


def choose_backup(
    place: BackupPlace, log: str, *, log_id: str | None = None, name: str | None = None, revision: int | None = None
) -> BackupManifest:
    """Return the backup to use: the one named, else the newest that holds a revision.

    Raises:
        BackupError: There is none.

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
    raise BackupError(
        f"{place.shown}: there is no backup of log {log}{wanted}. There are: {there or 'none'}"
        f"{''.join(f'; {line}' for line in found.damaged)}"
    )


def keep_backup(place: BackupPlace, manifest: BackupManifest) -> None:
    """Write a manifest; all that it names is there already: from here on there is a backup."""
    with place.create(f"{manifest.folder}/backups/{manifest.name}") as file:
        file.write(encode_backup(manifest))


def remove_expired(place: BackupPlace, log: str, log_id: str, keep: int) -> list[str]:
    """Remove the backups of a log beyond the newest ones; return their names.

    The manifest goes first: what is broken off leaves files that nobody names, never a backup without its files.
    """
    found = find_backups(place, log, log_id)
    gone = expired(found.whole, keep)
    if not gone or found.damaged:
        for line in found.damaged:
            _LOGGER.warning("no backup of log %s is removed while one is damaged: %s", log, line)
        return []
    for manifest in gone:
        place.delete(f"{manifest.folder}/backups/{manifest.name}")
    for path in unused_files(gone, [one for one in found.whole if one not in gone]):
        place.delete(f"{gone[0].folder}/{path}")
    return [one.name for one in gone]
