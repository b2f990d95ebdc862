"""What a bookie does with its files before it serves: replay, judge, rewrite, index.

Nothing that the kernel's cache shows is trusted (safety 29): every journal file that is not free becomes a
segment that is written anew and synced. After that no journal file is appended to again; all start empty.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ledger.errors import CorruptStorageError
from ledger.store.conversion import JournalFile
from ledger.store.disk import Disk
from ledger.store.index import CorruptIndexError, Index
from ledger.store.journal import JournalSettings
from ledger.store.journal_format import parse_file_name, sealed_file_name
from ledger.store.limbo import Limbo, load_limbo, save_limbo
from ledger.store.segment_format import segment_file_name
from ledger.store.segments import Segments

__all__ = ["DOUBT_FILE_NAME", "IndexFactory", "Recovered", "free_file_name", "recover"]
DOUBT_FILE_NAME = "index.doubt"
"""Its presence makes the next start rebuild the index."""


class IndexFactory(Protocol):
    """Opens the index."""

    def __call__(self, *, reset: bool) -> Index:
        """Open the index; `reset` throws it away first.

        Raises:
            CorruptIndexError: It cannot be opened as it is.

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

    """

    index: Index
    next_sequence: int
    free_files: list[tuple[int, str]]
    limbo: Limbo
    replayed_entry_count: int


def free_file_name(journal_id: int) -> str:
    """Name a journal file that holds nothing needed; it is renamed before it is written again."""
    return f"{journal_id:016x}.free"


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
    doubt = f"{folder}/{DOUBT_FILE_NAME}"
    index = open_index(reset=True) if disk.exists(doubt) else _open_index(open_index, segments, damages)
    _end_compactions(index, segments)
    _index_segments(index, segments, damages)
    if disk.exists(doubt):
        disk.remove(doubt)
    sequences = [i >> 32 for i in segments.segment_ids()]
    entry_count, has_successor = 0, False
    found = [parse_file_name(name) for name in disk.list_dir(settings.folder)]
    # Newest first: whether a file must have been sealed shows in the next one.
    for journal_id in sorted((i for i in found if i is not None), reverse=True):
        sequences.append(journal_id >> 32)
        path = f"{settings.folder}/{sealed_file_name(journal_id)}"
        journal = JournalFile(disk, path, journal_id, has_successor=has_successor)
        try:
            has_successor = has_successor or bool(journal.scan.batches)
            _replay(segments, index, journal_id, journal, damages)
            entry_count += sum(batch.entry_count for batch in journal.scan.batches)
        finally:
            journal.close()
        disk.rename(path, f"{settings.folder}/{free_file_name(journal_id)}")
    disk.fsync_dir(settings.folder)
    next_sequence = max(sequences, default=0) + 1
    return Recovered(index, next_sequence, _preallocate(disk, settings), damages.limbo, entry_count)


class _Damages:
    """Makes every loss durable before the file that shows it is given up."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk, self._folder = disk, folder
        self.limbo = load_limbo(disk, folder)

    def note(self, losses: list[str]) -> None:
        """Enter limbo for what was found."""
        if losses:
            self.limbo = self.limbo.with_losses(losses)
            save_limbo(self._disk, self._folder, self.limbo)


def _open_index(open_index: IndexFactory, segments: Segments, damages: _Damages) -> Index:
    """Open the index; in any doubt start an empty one, which is filled from the segments."""
    on_disk = dict.fromkeys(segments.segment_ids())
    try:
        index = open_index(reset=False)
        known = index.segment_ids()
    except CorruptIndexError:
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
    except CorruptStorageError:
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
        handle = disk.open(path)
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
