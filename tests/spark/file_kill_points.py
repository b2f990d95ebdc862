"""Points in the life of a checkpoint in a file store, and of single operations, at which a process is killed.

A point names a message that a server gets, by its kind and what it is about, and a moment of it:

* asked: the server has the request, nobody else knows of it
* decided: the leader has made its records, no bookie has them
* sent: they are on their way to bookies, nobody has confirmed them
* done: they are confirmed and applied, or a question is answered; the client was not told
* in a ledger: a chunk of a large content is written
* reading: a piece of a long content was sent to its reader

The victim is the server itself, which leads; or the driver of the Spark query; or a bookie, which stays away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ASKED, DECIDED, SENT, DONE, IN_LEDGER, READING = "asked", "decided", "sent", "done", "in a ledger", "reading"
SERVER, DRIVER, BOOKIE = "server", "driver", "bookie"
CHUNK = "chunk"
"""What a chunk or a piece of a content is about."""


class FileKillPoint(NamedTuple):
    """Where a process dies.

    Attributes:
        name: What has happened then.
        moment: See the module.
        subject: Regular expression; found in what `subject_of` says of the message.
        nth: 1, 2, …, counted over all servers of a run.
        victim: Who dies.
        in_second_run: The query has been stopped before, and is begun again: this lies on the way back.

    """

    name: str
    moment: str
    subject: str
    nth: int = 1
    victim: str = SERVER
    in_second_run: bool = False

    def matches(self, moment: str, subject: str) -> bool:
        """Whether a message is what is waited for."""
        return moment == self.moment and re.search(self.subject, subject) is not None


_OFFSETS, _COMMITS = r"/checkpoint/offsets/", r"/checkpoint/commits/"
_STATE = r"/checkpoint/state/0/[01]/"


def _checkpoint_points() -> Iterator[FileKillPoint]:
    """Yield the points of a checkpoint."""
    plan, end = rf"-> {_OFFSETS}3$", rf"-> {_COMMITS}3$"
    changes = rf"^RenameEntry .* -> {_STATE}.*changelog$"
    for name, subject, nth in (
        ("the directory of the checkpoint", r"^MakeDirectory /checkpoint$", 1),
        ("the metadata of the query", r"^CreateFile /checkpoint/\.metadata\.", 1),
        ("the name of the metadata", r"-> /checkpoint/metadata$", 1),
        ("the files of a batch", r"^CreateFile /checkpoint/sources/0/\.2\.", 1),
        ("the name of the files of a batch", r"-> /checkpoint/sources/0/2$", 1),
        ("the plan of a batch", rf"^CreateFile {_OFFSETS}\.3\.", 1),
        ("the name of a plan", plan, 1),
        ("the schema of a state", rf"-> {_STATE}_metadata/schema$", 1),
        ("the changes of a state", rf"^CreateFile {_STATE}.*\.changelog\.", 5),
        ("the name of changes of a state", changes, 5),
        ("the end of a batch", rf"^CreateFile {_COMMITS}\.3\.", 1),
        ("the name of the end of a batch", end, 1),
        ("an old plan that goes", rf"^DeleteEntry {_OFFSETS}", 1),
        ("an old end that goes", rf"^DeleteEntry {_COMMITS}", 1),
    ):
        for moment in (ASKED, DECIDED, SENT, DONE):
            yield FileKillPoint(f"{name}: {moment}", moment, subject, nth)
    for name, subject, nth, is_second in (
        ("the status of a directory", rf"^ShowEntry {_OFFSETS[:-1]}$", 6, False),
        ("the listing of plans", rf"^ListEntries {_OFFSETS[:-1]}$", 1, False),
        ("the files of a batch are read", r"^ReadFile /checkpoint/sources/0/3$", 1, False),
        # On the way back
        ("plans are listed again", rf"^ListEntries {_OFFSETS[:-1]}$", 1, True),
        ("the metadata is read again", r"^ReadFile /checkpoint/metadata$", 1, True),
        ("the last plan is read again", rf"^ReadFile {_OFFSETS}2$", 1, True),
        ("the last end is read again", rf"^ReadFile {_COMMITS}2$", 1, True),
        ("changes of a state are read again", rf"^ReadFile {_STATE}.*changelog$", 1, True),
    ):
        for moment in (ASKED, DONE):
            yield FileKillPoint(f"{name}: {moment}", moment, subject, nth, SERVER, is_second)
    for victim in (DRIVER, BOOKIE):
        for name, moment, subject, nth in (
            ("before a plan is written", ASKED, rf"^CreateFile {_OFFSETS}\.3\.", 1),
            ("before a plan has its name", ASKED, plan, 1),
            ("while a plan gets its name", SENT, plan, 1),
            ("a plan has its name", DONE, plan, 1),
            ("while changes of a state get their name", SENT, changes, 5),
            ("changes of a state have their name", DONE, changes, 5),
            ("before the end of a batch has its name", ASKED, end, 1),
            ("the end of a batch has its name", DONE, end, 1),
            ("while an old plan goes", SENT, rf"^DeleteEntry {_OFFSETS}", 1),
        ):
            yield FileKillPoint(f"{name}, the {victim} dies", moment, subject, nth, victim)


def _operation_points() -> Iterator[FileKillPoint]:
    """Yield the points of single operations; a name begins with the operation's."""
    for operation, subject in (
        ("create", r"^CreateFile /made$"),
        ("create a large file", r"^BeginUpload /made$"),
        ("end a large file", r"^EndLedger /made$"),
        ("append", r"^AppendFile /old$"),
        ("rename", r"^RenameEntry /old -> /made$"),
        ("make a directory", r"^MakeDirectory /made$"),
        ("delete", r"^DeleteEntry /old$"),
    ):
        for moment in (ASKED, DECIDED, SENT, DONE):
            yield FileKillPoint(f"{operation}: {moment}", moment, subject)
    yield FileKillPoint("create a large file: its second chunk", IN_LEDGER, CHUNK, 2)
    for operation, subject in (
        ("open", r"^ReadFile /old$"),
        ("status", r"^ShowEntry /old$"),
        ("list", r"^ListEntries /$"),
    ):
        for moment in (ASKED, DONE):
            yield FileKillPoint(f"{operation}: {moment}", moment, subject)
    yield FileKillPoint("open a large file: its second chunk", READING, CHUNK, 2)


POINTS = tuple(_checkpoint_points())
OPERATION_POINTS = tuple(_operation_points())
BY_NAME = {point.name: point for point in POINTS + OPERATION_POINTS}


def subject_of(message: object) -> str:
    """Return what a command or a query is about: its kind and its paths."""
    kind = type(message).__name__
    paths = [str(getattr(message, name)) for name in ("path", "source", "destination") if hasattr(message, name)]
    return f"{kind} {' -> '.join(paths)}"


def mark_of(folder: Path) -> Path:
    """Return the file that says that the point was reached; it holds the id of who was killed."""
    return folder / "reached"


def pid_file(folder: Path, victim: str) -> Path:
    """Return the file that holds the id of a victim that is no server."""
    return folder / f"{victim}.pid"


def armed_file(folder: Path) -> Path:
    """Return the file from whose appearing on a point counts."""
    return folder / "armed"
