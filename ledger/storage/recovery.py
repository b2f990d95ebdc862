"""Recovery of a bookie's files before it serves: replay, judge, rewrite, index.

Nothing that the kernel's cache shows is trusted (safety 29): every journal file that is not free becomes a
segment that is written anew and synced. After that no journal file is appended to again; all start empty. Nor is a
file believed to be all that there was: the landmarks say what the disks must show.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from ledger.errors import CorruptStorageError
from ledger.storage.disk import Disk
from ledger.storage.flush import JournalFile
from ledger.storage.index import CorruptIndexError, Index
from ledger.storage.journal import JournalSettings
from ledger.storage.journal_format import parse_file_name, sealed_file_name
from ledger.storage.landmarks import Landmark, Landmarks
from ledger.storage.limbo import Limbo, load_limbo, save_limbo
from ledger.storage.segment_format import segment_file_name
from ledger.storage.segments import Segments
from ledger.storage.unreadable import is_unreadable

_LOGGER = logging.getLogger(__name__)
DOUBT_FILE_NAME = "index.doubt"
"""Its presence makes the next start rebuild the index."""


class IndexFactory(Protocol):
    """Opens the index."""

    def __call__(self, *, reset: bool) -> Index:
        """Open the index; `reset` throws it away first.

        Raises:
            CorruptIndexError: It cannot be opened as it is, or does not add up.

        """
        ...


class Recovered(msgspec.Struct, frozen=True):
    """The state of the files when serving may begin.

    Attributes:
        index: Open, and equal to the segments.
        next_sequence: Sequence number of the next journal file.
        free_files: (handle, path) of preallocated journal files.
        limbo: What is known to be lost.
        replayed_entry_count: Bodies found in journal files.
        landmarks: As they are now.

    """

    index: Index
    next_sequence: int
    free_files: list[tuple[int, str]]
    limbo: Limbo
    replayed_entry_count: int
    landmarks: Landmarks


def free_file_name(journal_id: int) -> str:
    """Name a journal file that holds nothing needed; it is renamed before it is written again."""
    return f"{journal_id:016x}.free"


def unreadable_file_name(journal_id: int) -> str:
    """Name a journal file of which the device cannot read a part: it is kept, and never looked at again."""
    return f"{journal_id:016x}.unreadable"


def recover(
    disk: Disk, settings: JournalSettings, segments: Segments, folder: str, open_index: IndexFactory
) -> Recovered:
    """Bring the files into the state from which serving begins (blocking; safe to interrupt and repeat).

    Args:
        disk: The disk.
        settings: Of the journal.
        segments: The segments, in `folder`.
        folder: Where segments and limbo state are.
        open_index: Opens the index.

    Raises:
        OSError: The disk refuses; nothing was freed that is still needed.

    """
    for path in (settings.folder, folder):
        disk.make_dirs(path)
    segments.open()
    damages = _Damages(disk, folder)
    landmarks = Landmarks(disk, folder)
    damages.note([f"{landmarks.damage}: what else was lost cannot be told"] if landmarks.damage else [])
    doubt = f"{folder}/{DOUBT_FILE_NAME}"
    index = open_index(reset=True) if disk.exists(doubt) else _open_index(open_index, segments, damages)
    lost_count = landmarks.held.lost_segment_count(segments.segment_ids())
    if lost_count and not damages.has_news:  # Else they were named already.
        damages.note([f"{folder}: {lost_count} segments are gone, and nothing took their place"])
    landmarks.replace()
    segments.landmarks = landmarks
    _end_compactions(index, segments)
    _index_segments(index, segments, damages)
    if disk.exists(doubt):
        disk.remove(doubt)
    entry_count, last_sequence = _replay_all(disk, settings, segments, index, landmarks, damages)
    free_files = _preallocate(disk, settings)
    ids = segments.segment_ids()
    landmarks.replace(journal_file_bytes=settings.file_bytes, journal_ids=(), synced_journal_id=0, synced_to=0)
    landmarks.change_segments(ids)
    next_sequence = max([last_sequence, *(i >> 32 for i in ids)]) + 1
    return Recovered(index, next_sequence, free_files, damages.limbo, entry_count, landmarks)


def _replay_all(
    disk: Disk, settings: JournalSettings, segments: Segments, index: Index, landmarks: Landmarks, damages: _Damages
) -> tuple[int, int]:
    """Make segments of all journal files; return how many entries were in them, and the last sequence number."""
    named = landmarks.held
    found = [i for i in map(parse_file_name, disk.list_dir(settings.folder)) if i is not None]
    damages.note([f"{sealed_file_name(i)} is gone" for i in missing_journals(named, found, segments)])
    last_id = _last_journal_id(named, found)
    file_bytes = named.journal_file_bytes or largest_journal_bytes(disk, settings.folder)
    entry_count = 0
    # Oldest first: a file that is still there, or named, says that all before it were sealed.
    for journal_id in sorted(found):
        path = f"{settings.folder}/{sealed_file_name(journal_id)}"
        next_name = unreadable_file_name(journal_id)
        journal = _open_journal(
            disk,
            path,
            journal_id,
            **known_of_journal(named, found, journal_id),
            file_bytes=file_bytes,
        )
        if isinstance(journal, OSError):
            damages.note([f"{sealed_file_name(journal_id)} cannot be opened: {journal}"])
            if journal_id in segments.segment_ids():  # Perhaps a crash came before its file was freed.
                segments.sync(journal_id)
        else:
            try:
                _replay(segments, index, journal_id, journal, damages)
                entry_count += sum(batch.entry_count for batch in journal.scan.batches)
            finally:
                journal.close()
            if not journal.unreadable:
                next_name = free_file_name(journal_id)
        landmarks.free_journal(journal_id, segments.segment_ids())
        disk.rename(path, f"{settings.folder}/{next_name}")
    disk.fsync_dir(settings.folder)
    return entry_count, last_id >> 32


def _open_journal(disk: Disk, path: str, journal_id: int, **known: Any) -> JournalFile | OSError:
    """Open a journal file and look at all of it; return why if the device does not even let it be opened."""
    try:
        return JournalFile(disk, path, journal_id, **known)
    except OSError as error:
        if not is_unreadable(error):
            raise
        return error


def _last_journal_id(named: Landmark, found: Sequence[int]) -> int:
    return max([*found, *named.journal_ids, named.synced_journal_id], default=0)


def known_of_journal(named: Landmark, found: Sequence[int], journal_id: int) -> dict[str, Any]:
    """Return what else is known of a journal file, by which `JournalFile` tells a loss from a tail.

    Args:
        named: The landmarks.
        found: The journal files that are there.
        journal_id: One of them.

    """
    is_newest = named.synced_journal_id == journal_id
    return {
        "has_successor": journal_id < _last_journal_id(named, found),
        "synced_to": named.synced_to if is_newest else 0,
    }


def missing_journals(named: Landmark, found: Sequence[int], segments: Segments) -> list[int]:
    """Return the journal files that were in use and are neither there nor a segment by now."""
    return [i for i in named.journal_ids if i not in found and i not in segments.segment_ids()]


def largest_journal_bytes(disk: Disk, folder: str) -> int:
    """Return the size of the largest journal file: before there were landmarks, all had the same."""
    largest = 0
    for name in disk.list_dir(folder):
        if name.endswith((".j", ".free")):
            try:
                handle = disk.open(f"{folder}/{name}")
            except OSError as error:
                if not is_unreadable(error):
                    raise
                continue
            largest = max(largest, disk.size(handle))
            disk.close(handle)
    return largest


class _Damages:
    """Makes every loss durable before the file that shows it is given up."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk, self._folder = disk, folder
        self.limbo = load_limbo(disk, folder)
        self.has_news = False

    def note(self, losses: list[str]) -> None:
        """Enter limbo for what was found."""
        if losses:
            self.has_news = True
            self.limbo = self.limbo.with_losses(losses)
            save_limbo(self._disk, self._folder, self.limbo)


def _open_index(open_index: IndexFactory, segments: Segments, damages: _Damages) -> Index:
    """Open the index; in any doubt start an empty one, which is filled from the segments."""
    on_disk = dict.fromkeys(segments.segment_ids())
    try:
        index = open_index(reset=False)
        known = index.segment_ids()
    except (CorruptIndexError, OSError) as error:
        if isinstance(error, OSError) and not is_unreadable(error):
            raise
        _LOGGER.warning("the index is rebuilt from %d segments: %s", len(on_disk), error)
        return open_index(reset=True)
    missing = [segment_file_name(segment_id) for segment_id in known if segment_id not in on_disk]
    if missing:
        # What goes is marked as retired first. So this one was lost, and with it what it held.
        damages.note([f"{name} is gone, and nothing took its place" for name in missing])
        index.close()
        return open_index(reset=True)
    return index


def _end_compactions(index: Index, segments: Segments) -> None:
    """Bring a compaction that was interrupted to its end, or undo it."""
    for row in index.segments():
        if row.is_retired:
            segments.remove([row.segment_id])
            index.drop_segment(row.segment_id)
    known = dict.fromkeys(index.segment_ids())
    on_disk = dict.fromkeys(segments.segment_ids())
    for segment_id in on_disk:
        replaced = [] if segment_id in known else _replaced_by(segments, segment_id)
        if not replaced:
            continue
        if all(old_id in known for old_id in replaced):
            segments.remove([segment_id])  # The index does not point to it yet.
        elif not any(old_id in known for old_id in replaced) and any(old_id in on_disk for old_id in replaced):
            # The index is being rebuilt: either will do. The old ones are whole only together.
            if segments.rows(segment_id).damages:
                if all(old_id in on_disk for old_id in replaced):
                    segments.remove([segment_id])
            else:
                segments.sync(segment_id)
                segments.remove(replaced)


def _replaced_by(segments: Segments, segment_id: int) -> list[int]:
    try:
        return segments.footer(segment_id).replaces
    except (CorruptStorageError, OSError) as error:
        if isinstance(error, OSError) and not is_unreadable(error):
            raise
        return []


def _index_segments(index: Index, segments: Segments, damages: _Damages) -> None:
    known = dict.fromkeys(index.segment_ids())
    for segment_id in segments.segment_ids():
        if segment_id not in known:
            converted = segments.rows(segment_id)
            damages.note(converted.damages)
            index.commit_segment(segment_id, converted.blocks, converted.ledgers)


def _replay(segments: Segments, index: Index, journal_id: int, journal: JournalFile, damages: _Damages) -> None:
    """Make a segment of a journal file, once what of it is lost has been noted.

    In this order: a segment without its losses would look like one that was converted before the damage.
    """
    losses = [
        f"{sealed_file_name(journal_id)}: bytes {start}-{end} were synced once and are damaged"
        for start, end in journal.scan.lost
    ] + [
        f"{sealed_file_name(journal_id)}: bytes {start}-{end} cannot be read; the file is kept as "
        f"{unreadable_file_name(journal_id)}"
        for start, end in journal.unreadable
    ]
    if journal_id in segments.segment_ids() and losses:
        # Converted before the damage, or by a replay that noted it: the file was only not freed yet.
        converted = segments.rows(journal_id)
        segments.sync(journal_id)
        damages.note(losses if converted.damages else [])
        return
    damages.note(losses)
    replayed = journal.write_segment(segments)
    if replayed is not None:
        index.commit_segment(journal_id, replayed.blocks, replayed.ledgers)


def _preallocate(disk: Disk, settings: JournalSettings) -> list[tuple[int, str]]:
    """Open the free files and make what is missing; a file of another size is replaced."""
    files: list[tuple[int, str]] = []
    count = settings.file_count + 1
    number = 0
    for name in disk.list_dir(settings.folder):
        if not name.endswith((".free", ".free.tmp")):
            continue
        path = f"{settings.folder}/{name}"
        try:
            handle = disk.open(path)
        except OSError as error:
            if not is_unreadable(error):
                raise
            disk.remove(path)
            continue
        if disk.size(handle) == settings.file_bytes and len(files) < count and not name.endswith(".tmp"):
            files.append((handle, path))
        else:
            disk.close(handle)
            disk.remove(path)
    while len(files) < count:
        path = f"{settings.folder}/{free_file_name(number)}"
        number += 1
        if disk.exists(path):
            continue
        handle = disk.open(f"{path}.tmp", create=True)
        disk.zero_fill(handle, settings.file_bytes)
        disk.fdatasync(handle)
        disk.rename(f"{path}.tmp", path)
        files.append((handle, path))
    disk.fsync_dir(settings.folder)
    return files
