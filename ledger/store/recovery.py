"""What a bookie does with its files before it serves: replay, judge, rewrite, index.

Nothing that the kernel's cache shows is trusted (safety 29): every journal file that is not free becomes a
segment that is written anew and synced. After that no journal file is appended to again; all start empty.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ledger.store.disk import Disk, read_file
from ledger.store.index import CorruptIndexError, Index
from ledger.store.journal import JournalSettings
from ledger.store.journal_format import JournalScan, parse_file_name, scan, sealed_file_name
from ledger.store.limbo import Limbo, load_limbo, save_limbo
from ledger.store.segments import SegmentFolder, collect

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
    disk: Disk, settings: JournalSettings, segments: SegmentFolder, folder: str, open_index: IndexFactory
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
    disk.make_dirs(settings.folder)
    segments.remove_unfinished()
    damages = _Damages(disk, folder)
    doubt = f"{folder}/{DOUBT_FILE_NAME}"
    index = open_index(reset=True) if disk.exists(doubt) else _open_index(open_index, segments)
    _index_segments(index, segments, damages)
    if disk.exists(doubt):
        disk.remove(doubt)
    sequences = [i >> 32 for i in index.segment_ids()]
    entry_count, has_successor = 0, False
    found = [parse_file_name(name) for name in disk.list_dir(settings.folder)]
    # Newest first: whether a file must have been sealed shows in the next one.
    for journal_id in sorted((i for i in found if i is not None), reverse=True):
        sequences.append(journal_id >> 32)
        path = f"{settings.folder}/{sealed_file_name(journal_id)}"
        data = read_file(disk, path)
        result = scan(data, journal_id, has_successor=has_successor)
        has_successor = has_successor or bool(result.batches)
        _replay(segments, index, journal_id, data, result, damages)
        entry_count += sum(batch.entry_count for batch in result.batches)
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


def _open_index(open_index: IndexFactory, segments: SegmentFolder) -> Index:
    """Open the index; in any doubt start an empty one, which is filled from the segments."""
    on_disk = segments.segment_ids()
    try:
        index = open_index(reset=False)
        known = index.segment_ids()
    except CorruptIndexError:
        return open_index(reset=True)
    if any(segment_id not in on_disk for segment_id in known):
        index.close()
        return open_index(reset=True)
    return index


def _index_segments(index: Index, segments: SegmentFolder, damages: _Damages) -> None:
    known = index.segment_ids()
    for segment_id in segments.segment_ids():
        if segment_id not in known:
            converted = segments.rows(segment_id)
            damages.note(converted.damages)
            index.commit_segment(segment_id, converted.blocks, converted.ledgers)


def _replay(
    segments: SegmentFolder, index: Index, journal_id: int, data: bytearray, result: JournalScan, damages: _Damages
) -> None:
    """Make a segment of a journal file, once what of it is lost has been noted.

    In this order: a segment without its losses would look like one that was converted before the damage.
    """
    losses = [
        f"{sealed_file_name(journal_id)}: bytes {start}-{end} were synced once and are damaged"
        for start, end in result.lost
    ]
    if journal_id in segments.segment_ids() and losses:
        # Converted before the damage, or by a replay that noted it: the file was only not freed yet.
        converted = segments.rows(journal_id)
        segments.sync(journal_id)
        damages.note(losses if converted.damages else [])
        return
    damages.note(losses)
    collected = collect(data, result)
    if collected:
        converted = segments.write(journal_id, data, collected)
        index.commit_segment(journal_id, converted.blocks, converted.ledgers)


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
