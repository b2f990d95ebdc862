"""Manifest of a backup: everything that must be there, with its hash. Written last; without it there is no backup.

    <place>/<log>/<log id>/entries/<first revision>-<last revision>-<16 hex of its hash>.entries
    <place>/<log>/<log id>/snapshots/<revision>-<8 hex of the prefix hash>/<table>.parquet
    <place>/<log>/<log id>/contents/<number>-<16 hex of its digest>-<part>.content
    <place>/<log>/<log id>/backups/<last revision>-<made, ms>.json

Files are never changed. A later backup names the files of the one before and adds its own.

* `BackupError`            a `LogError`: a backup cannot be made, or does not hold what was asked of it
    * `NoSuchBackupError`  there is none that holds it
    * `CorruptBackupError` what lies there is not what the backup must be: cut, swapped, changed, of another history
    * `RetentionError`     a backup was made, but older ones cannot be removed
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from ledger.decoding import json_decoder
from rsm_spark.core.chain import Ancestry, LogChain, LogOrigin
from rsm_spark.core.contents import CHUNK_BYTES, DIGEST_BYTES, KnownContent
from rsm_spark.errors import LogError
from rsm_spark.snapshots.checks import snapshot_name
from rsm_spark.snapshots.manifest import SnapshotManifest

BACKUP_FORMAT = 1
CONTENTS_FORMAT = 2
"""Format of a backup with contents beside the entries: versions that know of none refuse it."""
MANIFEST_BYTES_MAX = 64 << 20
SEGMENT_BYTES_MAX = 1 << 30
"""No file of entries is longer: a backup begins the next one far below."""
PART_CHUNKS = 64
"""Chunks of one file of a content."""

_SEGMENT_NAME = re.compile(r"[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\.entries")
_MANIFEST_NAME = re.compile(r"[0-9]{20}-([0-9]{13})\.json")
_CONTENT_NAME = re.compile(r"[0-9]{20}-[0-9a-f]{16}-[0-9]{5}\.content")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_SNAPSHOT_PATH = re.compile(r"[0-9]{20}-[0-9a-f]{8}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_HEX_ID = re.compile(r"[0-9a-f]{32}")
_HEX_HASH = re.compile(r"[0-9a-f]{64}")


class BackupError(LogError):
    """A backup cannot be made, or does not hold what was asked of it."""


class NoSuchBackupError(BackupError):
    """There is no backup that holds it."""


class CorruptBackupError(BackupError):
    """A file of a backup is not what it must be."""


class RetentionError(BackupError):
    """Older backups are not removed."""


class BackupLedger(msgspec.Struct, frozen=True):
    """A ledger that entries came from; see `ChainLedger`."""

    ledger_id: int
    leader_epoch: int
    key_id: str


class BackupSegment(msgspec.Struct, frozen=True):
    """One file of entries that follow each other.

    Attributes:
        name: In the folder `entries`.
        bytes: Size of the file.
        sha256: Of the whole file, hex.
        first_revision: Of its first record.
        last_revision: Of its last record.
        before: Prefix hash that its first entry names, hex.
        after: Prefix hash after its last entry, hex.
        last_ms: Logged time of its last entry.
        ledger_id, entry_id: Where its last entry lay.
        entries: How many.

    """

    name: str
    bytes: int
    sha256: str
    first_revision: int
    last_revision: int
    before: str
    after: str
    last_ms: int
    ledger_id: int
    entry_id: int
    entries: int


class BackupContent(KnownContent, frozen=True):
    """Content that states of the log name.

    Attributes:
        is_kept: The backup has it. If not, it was gone, or could not be read, when the backup was made: the last state
            does not name it.

    """

    is_kept: bool = True


class BackupManifest(msgspec.Struct, frozen=True):
    """One backup of one log.

    Attributes:
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        made_ms: Wall clock of who made it.
        made_by: Who.
        chain: Of the log when the backup was made.
        ledgers: All that entries of the segments came from.
        segments: Oldest first; each continues the one before.
        snapshots: As they were taken over, with their files.
        format: Of the backup.
        tail_revision: Of a record that the log held when the backup began: a backup that does not reach it lacks its
            tail. 0 = by a version that did not look.
        contents: Contents beside the log that its entries and snapshots name, by number, ascending.

    """

    log: str
    log_id: str
    made_ms: int
    made_by: str
    chain: LogChain
    ledgers: tuple[BackupLedger, ...] = ()
    segments: tuple[BackupSegment, ...] = ()
    snapshots: tuple[SnapshotManifest, ...] = ()
    format: int = BACKUP_FORMAT
    tail_revision: int = 0
    contents: tuple[BackupContent, ...] = ()

    @property
    def name(self) -> str:
        """Name of its file: names sort by how far they reach."""
        return f"{self.last_revision:020d}-{self.made_ms:013d}.json"

    @property
    def folder(self) -> str:
        """Folder of the log in the place of backups."""
        return f"{self.log}/{self.log_id}"

    @property
    def first_revision(self) -> int:
        """Of the first record that it holds."""
        return self.segments[0].first_revision if self.segments else 1

    @property
    def last_revision(self) -> int:
        """Of the last record that it holds; 0 if there is none."""
        return self.segments[-1].last_revision if self.segments else 0

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Keys that its entries are sealed with, sorted."""
        return tuple(sorted({ledger.key_id for ledger in self.ledgers} - {""}))

    @property
    def files(self) -> dict[str, int]:
        """Size of each file that it names, by its path below `folder`."""
        found = {segment_path(segment): segment.bytes for segment in self.segments}
        for snapshot in self.snapshots:
            found.update({snapshot_path(snapshot, file.name): file.bytes for file in snapshot.files})
        for content in self.contents:
            if content.is_kept:
                found.update(content_files(content))
        return found


def segment_path(segment: BackupSegment) -> str:
    """Return where a file of entries lies, below the log's folder."""
    return f"entries/{segment.name}"


def snapshot_path(snapshot: SnapshotManifest, file: str) -> str:
    """Return where a file of a snapshot lies, below the log's folder."""
    return f"snapshots/{snapshot_name(snapshot)}/{file}"


def content_files(known: KnownContent) -> dict[str, int]:
    """Return the size of each file of a content, in their order, by its path below the log's folder.

    The first begins with the content's index; then follow the chunks, so many a file.
    """
    content, found = known.content, {}
    for part, first in enumerate(range(0, content.chunk_count, PART_CHUNKS)):
        size = min(content.size, (first + PART_CHUNKS) * CHUNK_BYTES) - first * CHUNK_BYTES
        name = f"{known.number:020d}-{content.digest.hex()[:16]}-{part:05d}.content"
        found[f"contents/{name}"] = size + (0 if part else content.chunk_count * DIGEST_BYTES)
    return found


def segment_name(first_revision: int, last_revision: int, sha256: str) -> str:
    """Return the name of a file of entries; another content has another name."""
    return f"{first_revision:020d}-{last_revision:020d}-{sha256[:16]}.entries"


def encode_backup(manifest: BackupManifest) -> bytes:
    """Return the JSON of a manifest."""
    return msgspec.json.encode(manifest)


def decode_backup(text: bytes, *, log: str, log_id: str, name: str) -> BackupManifest:
    """Read a manifest, and check all of it that can be checked without its files.

    Args:
        text: What `encode_backup` returned.
        log: Name of the log, as its folder says.
        log_id: Its id, as its folder says.
        name: Of the manifest's file.

    Raises:
        CorruptBackupError: It is none, or contradicts itself or its place.

    """
    place = f"backup {log}/{log_id}/backups/{name}"
    try:
        manifest = json_decoder(BackupManifest).decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptBackupError(f"{place}: it is no manifest of a backup: {error}") from error
    if not BACKUP_FORMAT <= manifest.format <= CONTENTS_FORMAT:
        raise CorruptBackupError(
            f"{place}: it has format {manifest.format}, this version reads up to {CONTENTS_FORMAT}: use a newer version"
        )
    wrong = _contradiction(manifest, log, log_id, name)
    if wrong:
        raise CorruptBackupError(f"{place}: {wrong}: it was changed, or is of another place. Take another backup")
    return manifest


def _contradiction(manifest: BackupManifest, log: str, log_id: str, name: str) -> str:
    if (manifest.log, manifest.log_id) != (log, log_id) or manifest.chain.log_id != log_id:
        return f"it is of log {manifest.log} with id {manifest.log_id}, whose chain has id {manifest.chain.log_id}"
    if not is_log_id(log_id):
        return f"{log_id!r} is no id of a log"
    if manifest.name != name:
        return f"it is that of {manifest.name}: an older one in the place of a newer, or the other way round"
    known = {ledger.ledger_id for ledger in manifest.ledgers}
    before: BackupSegment | None = None
    for segment in manifest.segments:
        wrong = _wrong_segment(segment, before)
        if wrong:
            return f"segment {segment.name!r}: {wrong}"
        if segment.ledger_id not in known:
            return f"segment {segment.name!r} ends in ledger {segment.ledger_id}, of which nothing is said"
        before = segment
    epoch = max((ledger.leader_epoch for ledger in manifest.ledgers), default=0)
    if epoch > manifest.chain.leader_epoch:
        return f"its chain is of epoch {manifest.chain.leader_epoch}, its entries go to epoch {epoch}: an older chain"
    if manifest.last_revision < manifest.tail_revision:
        return (
            f"it ends with revision {manifest.last_revision}, the log held revision {manifest.tail_revision} when it "
            "was begun: its tail is missing"
        )
    return _wrong_origins(manifest.chain) or _wrong_snapshots(manifest) or _wrong_contents(manifest)


def _wrong_segment(segment: BackupSegment, before: BackupSegment | None) -> str:
    if not _SEGMENT_NAME.fullmatch(segment.name):
        return "that is no name of a file of entries"
    if segment.name != segment_name(segment.first_revision, segment.last_revision, segment.sha256):
        return "its name is not that of its revisions and its hash"
    if not all(map(_HEX_HASH.fullmatch, (segment.sha256, segment.before, segment.after))):
        return "a hash is none"
    if not 0 < segment.bytes <= SEGMENT_BYTES_MAX or segment.entries < 1:
        return f"{segment.entries} entries in {segment.bytes} bytes cannot be"
    if not 1 <= segment.first_revision <= segment.last_revision:
        return "it has no records"
    if before is not None and (segment.first_revision, segment.before) != (before.last_revision + 1, before.after):
        return f"it does not continue the one that ends with revision {before.last_revision}"
    return ""


def _wrong_origins(chain: LogChain) -> str:
    last = 0
    for origin in chain.origins:
        if origin.revision <= last or not is_log_id(origin.log_id):
            return f"its origin {origin.log!r} at revision {origin.revision} cannot be"
        last = origin.revision
    return ""


def _wrong_snapshots(manifest: BackupManifest) -> str:
    for snapshot in manifest.snapshots:
        place = f"snapshot of revision {snapshot.revision}"
        if snapshot.log_id != manifest.log_id or snapshot.contradiction:
            return f"{place}: it is of log {snapshot.log_id}, or is evidence"
        if not manifest.first_revision <= snapshot.revision <= manifest.last_revision:
            return f"{place}: the entries do not reach it"
        if not _HEX_HASH.fullmatch(snapshot.prefix_hash):
            return f"{place}: its hash is none"
        for file in snapshot.files:
            if not _FILE_NAME.fullmatch(file.name) or file.bytes < 0 or not _HEX_HASH.fullmatch(file.sha256):
                return f"{place}: it names the file {file.name!r}"
    return ""


def _wrong_contents(manifest: BackupManifest) -> str:
    last = -1
    for one in manifest.contents:
        if not last < one.number < 1 << 63 or not one.content.is_whole or one.named <= 0 or one.freed < 0:
            return f"its content {one.number} cannot be"
        if not one.is_kept and not one.freed:
            return f"it names content {one.number} to its end, and does not have it"
        last = one.number
    return ""


def is_backup_file(path: str) -> bool:
    """Return whether a path below a log's folder is one of entries, a snapshot or a content, as backups name them."""
    folder, _, name = path.partition("/")
    if folder == "entries":
        return _SEGMENT_NAME.fullmatch(name) is not None
    if folder == "contents":
        return _CONTENT_NAME.fullmatch(name) is not None
    return folder == "snapshots" and _SNAPSHOT_PATH.fullmatch(name) is not None


def made_ms_of(name: str) -> int | None:
    """Return when a backup was made, by the name of its manifest; None = that is no such name."""
    found = _MANIFEST_NAME.fullmatch(name)
    return None if found is None else int(found[1])


def is_log_id(text: str) -> bool:
    """Return whether a text is the id of a log."""
    return _HEX_ID.fullmatch(text) is not None


def ancestry_of(manifest: BackupManifest) -> Ancestry:
    """Return the ids that the entries of a backup bear."""
    return manifest.chain.ancestry


def origins_at(origins: Iterable[LogOrigin], end: LogOrigin) -> tuple[LogOrigin, ...]:
    """Return the origins of a log that is made of another one up to a revision.

    Args:
        origins: Of the other one.
        end: The other one, up to that revision.

    """
    found: list[LogOrigin] = []
    for origin in origins:
        if origin.revision >= end.revision:
            # Cut within the history of an older log: it ends there, and what came later is not taken.
            changed = msgspec.structs.replace(
                end, log=origin.log, log_id=origin.log_id, source=f"{end.source}, of log {end.log}"
            )
            return (*found, changed)
        found.append(origin)
    return (*found, end)
