"""Backups that somebody has changed: each is refused in words, nothing of it is used, nothing outside is touched."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rsm_spark.backup.manifest import (
    BackupError,
    CorruptBackupError,
    segment_name,
    segment_path,
    snapshot_path,
)
from rsm_spark.backup.segments import MAGIC
from rsm_spark.backup.verifying import verify_backup
from rsm_spark.core.seal import KeyRing, LogKey, key_id_of
from tests.unit.rsm_spark.backup.made_backup import CHECKED, MadeBackup, whole_backup


@pytest.fixture
def made(tmp_path: Path) -> MadeBackup:
    return whole_backup(tmp_path)


def refuse(made: MadeBackup, *words: str, **more: Any) -> None:
    with pytest.raises(BackupError) as refused:
        verify_backup(made.place, made.chosen(), **more)
    for word in words:
        assert word in str(refused.value)


def segment(made: MadeBackup, number: int) -> Path:
    return made.root / segment_path(made.segments[number])


def put(made: MadeBackup, number: int, content: bytes) -> None:
    """Replace a segment's content, with hash, size and name made right in the manifest."""
    before = made.segments[number]
    digest = sha256(content).hexdigest()
    name = segment_name(before.first_revision, before.last_revision, digest)
    (made.root / "entries" / name).write_bytes(content)

    def change(document: Any) -> None:
        document["segments"][number] |= {"name": name, "sha256": digest, "bytes": len(content)}

    made.rewrite(change)


@pytest.mark.parametrize("length", [0, 4, 30, -1, -500])
def test_a_file_that_was_cut(made: MadeBackup, length: int) -> None:
    content = segment(made, 1).read_bytes()
    segment(made, 1).write_bytes(content[:length])
    refuse(made, "cut or changed")


def test_a_cut_that_was_hidden(made: MadeBackup) -> None:
    put(made, 2, segment(made, 2).read_bytes()[:-7])
    refuse(made, "whole entries and", "bytes more")


def test_a_file_that_grew(made: MadeBackup) -> None:
    with segment(made, 1).open("ab") as file:
        file.write(b"x" * 5_000_000)
    refuse(made, "more than")


def test_a_file_that_is_gone(made: MadeBackup) -> None:
    segment(made, 1).unlink()
    refuse(made, "it is not there")


def test_swapped_files(made: MadeBackup) -> None:
    one, other = segment(made, 0), segment(made, 1)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    refuse(made, "should be")


def test_swapped_entries_under_right_hashes(made: MadeBackup) -> None:
    entries = list(made.entries[12:25])
    entries[3], entries[4] = entries[4], entries[3]
    swapped = made.write_segment(entries)
    put(made, 1, (made.root / segment_path(swapped)).read_bytes())
    refuse(made, "does not continue the entry before it")


def test_a_changed_value_under_a_right_hash_of_the_file(made: MadeBackup) -> None:
    content = bytearray(segment(made, 1).read_bytes())
    content[-3] ^= 1
    put(made, 1, bytes(content))
    refuse(made, "ends otherwise than its manifest says")


def test_entries_of_another_log(made: MadeBackup, tmp_path: Path) -> None:
    other = MadeBackup(tmp_path / "other", seed=2)
    foreign = made.write_segment(other.entries[12:25])
    put(made, 1, (made.root / segment_path(foreign)).read_bytes())
    refuse(made, "is of log 0202")


def test_an_older_manifest_in_the_place_of_a_newer(made: MadeBackup) -> None:
    newest = made.chosen()
    older = msgspec.structs.replace(newest, made_ms=500, segments=newest.segments[:2])
    (made.root / "backups" / newest.name).write_bytes(msgspec.json.encode(older))
    with pytest.raises(BackupError, match="an older one in the place of a newer"):
        made.chosen()


def test_a_backup_without_its_tail(made: MadeBackup) -> None:
    whole = made.chosen()
    older = msgspec.structs.replace(whole, segments=whole.segments[:-1], tail_revision=whole.last_revision)
    (made.root / "backups" / whole.name).unlink()
    (made.root / "backups" / older.name).write_bytes(msgspec.json.encode(older))
    with pytest.raises(BackupError, match="its tail is missing"):
        made.chosen()


def test_an_older_chain_in_the_place_of_a_newer(made: MadeBackup) -> None:
    made.rewrite(lambda document: document["chain"].update(leader_epoch=0))
    with pytest.raises(BackupError, match="an older chain"):
        made.chosen()


def test_a_backup_under_the_name_of_another_log(made: MadeBackup) -> None:
    shutil.copytree(made.root, made.root.parent / ("cd" * 16))
    shutil.rmtree(made.root)
    with pytest.raises(BackupError, match="it is of log shop with id 0101"):
        made.chosen()


def test_a_segment_left_out(made: MadeBackup) -> None:
    made.rewrite(lambda document: document["segments"].pop(1))
    with pytest.raises(BackupError, match="does not continue the one that ends with"):
        made.chosen()


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "a/b", "..", ".hidden", "", "x" * 300, "a\0b"])
def test_paths_that_leave_the_folder(made: MadeBackup, name: str) -> None:
    text = max((made.root / "backups").iterdir()).read_text()
    made.rewrite(lambda document: document["segments"][0].update(name=name))
    with pytest.raises(BackupError, match="no name of a file of entries"):
        made.chosen()
    max((made.root / "backups").iterdir()).write_text(text)
    made.rewrite(lambda document: document["snapshots"][0]["files"][0].update(name=name))
    with pytest.raises(BackupError, match="it names the file"):
        made.chosen()


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a//b", "."])
def test_a_place_touches_nothing_outside(made: MadeBackup, path: str) -> None:
    for attempt in (lambda: made.place.read(path, 10), lambda: made.place.delete(path)):
        with pytest.raises(CorruptBackupError, match="leaves the place"):
            attempt()


def test_links_are_no_files_of_a_backup(made: MadeBackup, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    segment(made, 1).rename(elsewhere)
    segment(made, 1).symlink_to(elsewhere)
    refuse(made, "a link")
    segment(made, 1).unlink()
    elsewhere.rename(segment(made, 1))
    (made.root / "entries").rename(tmp_path / "entries")
    (made.root / "entries").symlink_to(tmp_path / "entries")
    refuse(made, "a link")


def test_a_length_that_nobody_could_hold(made: MadeBackup) -> None:
    put(made, 0, MAGIC + (1).to_bytes(8, "big") + bytes(8) + b"\xff\xff\xff\xff" + b"x" * 100)
    refuse(made, "an entry of 4,294,967,295 bytes")
    made.rewrite(lambda document: document["segments"][0].update(bytes=1 << 50))
    with pytest.raises(BackupError, match="cannot be"):
        made.chosen()


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"format": 99}'])
def test_what_is_no_manifest(made: MadeBackup, text: bytes) -> None:
    max((made.root / "backups").iterdir()).write_bytes(text)
    with pytest.raises(BackupError, match="no manifest of a backup"):
        made.chosen()


def test_a_manifest_of_a_later_format_says_so(made: MadeBackup) -> None:
    made.rewrite(lambda document: document.update(format=3))
    with pytest.raises(BackupError, match="has format 3, this version reads up to 2"):
        made.chosen()


def test_a_manifest_without_end(made: MadeBackup) -> None:
    path = max((made.root / "backups").iterdir())
    os.truncate(path, 1 << 30)
    with pytest.raises(BackupError, match="longer than"):
        made.chosen()


def _snapshot_file(made: MadeBackup) -> Path:
    snapshot = made.snapshots[0]
    return made.root / snapshot_path(snapshot, snapshot.files[0].name)


def test_a_snapshots_file_that_was_changed(made: MadeBackup) -> None:
    content = bytearray(_snapshot_file(made).read_bytes())
    content[100] ^= 1
    _snapshot_file(made).write_bytes(content)
    refuse(made, "sha256")


def test_a_snapshot_of_other_rows_under_right_hashes_of_its_files(made: MadeBackup, tmp_path: Path) -> None:
    other = MadeBackup(tmp_path / "other", seed=2)
    theirs = msgspec.to_builtins(other.add_snapshot(CHECKED))
    ours = made.snapshots[0]
    for file in theirs["files"]:
        source = other.root / snapshot_path(other.snapshots[0], file["name"])
        shutil.copyfile(source, made.root / snapshot_path(ours, file["name"]))
    made.rewrite(lambda document: document["snapshots"][0].update(files=theirs["files"]))
    refuse(made, "snapshot")
    # The digest made right too: the checkpoint that the log holds says otherwise.
    made.rewrite(
        lambda document: document["snapshots"][0].update(digest=theirs["digest"], row_count=theirs["row_count"])
    )
    refuse(made, "are not those that the log names")


def test_a_snapshot_of_another_history(made: MadeBackup) -> None:
    snapshot = made.snapshots[0]

    def change(document: Any) -> None:
        document["snapshots"][0]["prefix_hash"] = snapshot.prefix_hash[:8] + "0" * 56

    made.rewrite(change)
    refuse(made, "no entry ends there")


def test_a_history_that_somebody_rewrote_has_no_seals(made: MadeBackup) -> None:
    secret = b"k" * 32
    keys = KeyRing([LogKey(key_id_of(secret), secret)])

    def change(document: Any) -> None:
        for ledger in document["ledgers"]:
            ledger["key_id"] = keys.newest.key_id

    refuse(made, "a key was given, but no entry has a seal", keys=keys)
    made.rewrite(change)
    refuse(made, "has no seal", keys=keys)
    refuse(made, "has no seal")
