"""`rsm bookie fsck`, `read-journal`, `read-segment` and `rebuild-index`: files of a bookie that does not run."""

from __future__ import annotations

import contextlib
import json as json_module
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ledger.bookie.folders import locked_as_they_are
from ledger.errors import LedgerError, UsageError
from ledger.storage.disk import RealDisk, write_atomically
from ledger.storage.index import Index
from ledger.storage.record_listing import DamagedPlace, StoredRecord, list_journal, list_segment
from ledger.storage.recovery import DOUBT_FILE_NAME
from ledger.storage.storage_check import StorageReport, check_storage

_EXIT_DAMAGED = 1
_EXIT_NOT_DONE = 2
_PROGRESS_S = 1.0
_DEATH_FILE = "death.txt"


class PayloadText(StrEnum):
    """Text that stands for bytes."""

    HEX = "hex"
    BASE64 = "base64"


_DataDir = Annotated[Path, typer.Argument(help="The bookie's data directory.")]
_File = Annotated[Path, typer.Argument(help="The file, under the name that the bookie gave it.")]
_JournalDir = Annotated[
    Path | None,
    typer.Option(envvar="RSM_BOOKIE__JOURNAL_DIR", help="Folder of the journal; by default DATA_DIR/journal."),
]
_LedgerDir = Annotated[
    list[Path] | None,
    typer.Option(
        envvar="RSM_BOOKIE__LEDGER_DIR",
        help="Folder of segments and index, each that the bookie has, in its order; by default DATA_DIR/ledgers.",
    ),
]
_Ledger = Annotated[int | None, typer.Option(min=0, help="Only this ledger.")]
_Entry = Annotated[int | None, typer.Option(help="Only this entry; records about a ledger have negative numbers.")]
_Payload = Annotated[PayloadText | None, typer.Option(help="Write the bytes of each entry too, as stored.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fsck(
    data_dir: _DataDir, journal_dir: _JournalDir = None, ledger_dir: _LedgerDir = None, json: _Json = False
) -> None:
    """Read all files of a bookie that does not run, and say what is damaged. Changes nothing.

    Exit code 0: all is sound. 1: something is damaged. 2: it could not be looked at.

    Example: rsm bookie fsck /var/lib/rsm-spark/bookie
    """
    with _told():
        journal_root, roots = _roots(data_dir, journal_dir, ledger_dir)
        folders = [str(root / "current") for root in roots]
        journal_folder = str(journal_root / "current")
        with locked_as_they_are([journal_folder, *folders]):
            progress = _FileProgress()
            index_path = str(roots[0] / "index")
            disk = RealDisk(is_read_only=True)
            report = check_storage(disk, journal_folder, folders, lambda: _open_index(index_path), progress.show)
            death = Path(folders[0], _DEATH_FILE)
            if death.exists() and death.stat().st_size:
                report.notes.append("a library ended the last process: the next start rebuilds the index")
    if json:
        print(msgspec.json.encode(report).decode())
    else:
        _print_report(report)
    raise typer.Exit(_EXIT_DAMAGED if report.damages else 0)


def _open_index(path: str) -> Index | None:
    from ledger.storage.index_check import check_index  # noqa: PLC0415 - `--help` needs no packages of a server
    from ledger.storage.index_lmdb import LmdbIndex  # noqa: PLC0415 - as above

    if not Path(path, "data.mdb").exists():
        return None
    check_index(path)
    return LmdbIndex(path, is_read_only=True)


def _print_report(report: StorageReport) -> None:
    for damage in report.damages:
        print(f"damaged: {damage.kind} {damage.path}: {damage.what}\n    {damage.meaning}")
    for note in report.notes:
        print(f"note: {note}")
    print(
        f"read {report.journal_file_count} journal files with {report.journal_record_count:,} records, "
        f"{report.segment_count} segments with {report.segment_record_count:,} records in {report.block_count:,} "
        f"sound blocks, {report.indexed_block_count:,} of them in the index"
    )
    print(f"{len(report.damages)} damages" if report.damages else "all is sound")


def read_journal(
    file: _File, ledger: _Ledger = None, entry: _Entry = None, payload: _Payload = None, json: _Json = False
) -> None:
    """List the records of a journal file of a bookie that does not run, in the order of writing.

    With --json one object a line. Exit code 1 if a part of the file is damaged.

    Example: rsm bookie read-journal /var/lib/rsm-spark/bookie/journal/current/000000019f3a2b1c.j --ledger 7
    """
    lines = _RecordLines(ledger, entry, payload, is_json=json)
    with _told(), locked_as_they_are([str(file.parent)]):
        for found in list_journal(RealDisk(is_read_only=True), str(file)):
            lines.tell(found)
    lines.end()


def read_segment(
    file: _File, ledger: _Ledger = None, entry: _Entry = None, payload: _Payload = None, json: _Json = False
) -> None:
    """List the records of a segment of a bookie that does not run, by ledger and entry.

    With --json one object a line. Exit code 1 if a part of the file is damaged.

    Example: rsm bookie read-segment /var/lib/rsm-spark/bookie/ledgers/current/000000019f3a2b1c.seg --payload hex
    """
    lines = _RecordLines(ledger, entry, payload, is_json=json)
    with _told(), locked_as_they_are([str(file.parent)]):
        for found in list_segment(RealDisk(is_read_only=True), str(file), lines.tell):
            lines.tell(found)
    lines.end()


class _RecordLines:
    """Prints what was asked for, a line each."""

    def __init__(
        self, ledger_id: int | None, entry_id: int | None, payload: PayloadText | None, *, is_json: bool
    ) -> None:
        self._ledger_id, self._entry_id, self._payload, self._is_json = ledger_id, entry_id, payload, is_json
        self._damaged_count = 0

    def tell(self, found: StoredRecord | DamagedPlace) -> None:
        if isinstance(found, DamagedPlace):
            self._tell_damage(found)
            return
        self._damaged_count += not found.is_in_place
        if self._ledger_id not in (None, found.ledger_id) or self._entry_id not in (None, found.entry_id):
            return
        line: dict[str, Any] = {
            "byte_offset": found.byte_offset,
            "ledger_id": found.ledger_id,
            "entry_id": found.entry_id,
            "kind": found.kind,
            "byte_count": found.byte_count,
            "checksum": "good" if found.is_in_place else "good, but of another entry",
        }
        if self._payload is not None:
            line["payload"] = self._text(found)
        if self._is_json:
            print(json_module.dumps(line))
        else:
            name = f"entry {found.entry_id}" if found.kind == "entry" else found.kind
            rest = f"  {line['payload']}" if "payload" in line else ""
            print(
                f"byte {found.byte_offset}  ledger {found.ledger_id}  {name}  {found.byte_count} bytes  "
                f"checksum {line['checksum']}{rest}"
            )

    def _text(self, found: StoredRecord) -> str:
        if found.kind == "key":
            return "(a key is not shown)"
        content = bytes(found.content)
        return content.hex() if self._payload == PayloadText.HEX else msgspec.to_builtins(content)

    def _tell_damage(self, found: DamagedPlace) -> None:
        self._damaged_count += 1
        if self._is_json:
            line = {"checksum": "damaged", **msgspec.to_builtins(found)}
            print(json_module.dumps(line))
        else:
            where = "" if found.byte_offset is None else f"bytes {found.byte_offset}-{found.byte_end}: "
            print(f"damaged: {where}{found.what}")

    def end(self) -> None:
        """End the command: exit code 1 if a part is damaged."""
        raise typer.Exit(_EXIT_DAMAGED if self._damaged_count else 0)


def rebuild_index(
    data_dir: _DataDir, journal_dir: _JournalDir = None, ledger_dir: _LedgerDir = None, json: _Json = False
) -> None:
    """Have the next start of a bookie make its index anew from its segments; the old index is kept aside.

    The start itself makes it, for what it finds damaged must be in the limbo state before it is indexed. Nothing that
    was acknowledged is lost: keys, fences and entries all lie in segments and journal.

    Example: rsm bookie rebuild-index /var/lib/rsm-spark/bookie
    """
    with _told():
        journal_root, roots = _roots(data_dir, journal_dir, ledger_dir)
        folders = [str(root / "current") for root in roots]
        with locked_as_they_are([str(journal_root / "current"), *folders]):
            # The mark first: so the next start knows why there is no index, whatever happens between the two.
            disk = RealDisk()
            write_atomically(disk, folders[0], DOUBT_FILE_NAME, b"")
            aside = _put_aside(disk, roots[0])
    if json:
        print(json_module.dumps({"is_rebuilt_at_next_start": True, "old_index": aside}))
    else:
        print("the next start of the bookie makes the index from its segments")
        print("there was no index" if aside is None else f"the old one is kept in {aside}; delete it when you like")


def _put_aside(disk: RealDisk, root: Path) -> str | None:
    """Rename the index, if there is one; return its new path."""
    if not (root / "index").exists():
        return None
    number = 1
    while (root / f"index.old-{number}").exists():
        number += 1
    aside = str(root / f"index.old-{number}")
    disk.rename(str(root / "index"), aside)
    disk.fsync_dir(str(root))
    return aside


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Say in a line why something cannot be done."""
    try:
        yield
    except (LedgerError, OSError) as error:
        print(f"rsm bookie: {error}", file=sys.stderr)
        raise typer.Exit(_EXIT_NOT_DONE) from error


def _roots(data_dir: Path, journal_dir: Path | None, ledger_dirs: list[Path] | None) -> tuple[Path, list[Path]]:
    """Return the folders of journal and segments; refuse to look at a part of them only.

    Raises:
        UsageError: One is missing, or the bookie had others.

    """
    roots = ledger_dirs or [data_dir / "ledgers"]
    journal_root = journal_dir or data_dir / "journal"
    process_file = roots[0] / "current" / "process.json"
    held: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        held = json_module.loads(process_file.read_bytes())
    for option, root in [("--journal-dir", journal_root), *(("--ledger-dir", root) for root in roots)]:
        if not (root / "current").is_dir():
            known = held.get("journal_dir" if option == "--journal-dir" else "ledger_dirs")
            words = f"; the bookie that served from {data_dir} had {known}" if known else ""
            raise UsageError(f"{root}/current: no bookie has served from here{words}: give {option}")
    count = len(held.get("ledger_dirs", roots))
    if count != len(roots):
        raise UsageError(
            f"the bookie had {count} folders of segments, {held['ledger_dirs']}: give each by --ledger-dir"
        )
    return journal_root, roots


class _FileProgress:
    """A line on standard error once a second, for what takes longer than that."""

    def __init__(self) -> None:
        self._shown_at = time.monotonic()

    def show(self, path: str, number: int, file_count: int) -> None:
        now = time.monotonic()
        if now - self._shown_at >= _PROGRESS_S:
            self._shown_at = now
            print(f"file {number + 1} of {file_count}: {path}", file=sys.stderr)
