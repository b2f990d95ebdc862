"""Options of commands that copy logs, or make new ones of them; their progress."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from ledger.errors import UsageError
from ledger.options import Option
from rsm_spark.cli.terminal import LogsOptions
from rsm_spark.object_stores.storage_options import STORAGE_FILE_HELP, STORAGE_FILE_VARIABLE, StorageFile

_PROGRESS_S = 5.0

LogKeyOption = Annotated[
    Path | None, typer.Option("--log-key", metavar="FILE", envvar="RSM_LOG_KEY", help="Key file of the log.")
]


StorageFileOption = Annotated[
    Path | None,
    typer.Option("--storage-options-file", metavar="FILE", envvar=STORAGE_FILE_VARIABLE, help=STORAGE_FILE_HELP),
]


class MadeLogOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of a log that a command makes: its ledgers, and where its replicas find a state to begin with."""

    data_dir: Annotated[
        Path | None, Option("Put a snapshot into this folder, with which the first replica is to be started.")
    ] = None
    lake: Annotated[str | None, Option("Put a snapshot into this lake.", metavar="PATH")] = None
    storage_options_file: StorageFile = None
    bookies: Annotated[str, Option("Ensemble, write quorum and ack quorum.", metavar="E/Qw/Qa")] = "2/2/2"
    password_file: Annotated[
        Path | None, Option("Password of the new ledgers, as rsm store run takes it.", metavar="FILE")
    ] = None

    @property
    def last_revision(self) -> int | None:
        """The revision that was asked for."""
        return None

    @property
    def time_ms(self) -> int | None:
        """The time that was asked for, ms since 1970."""
        return None


class NewLogOptions(MadeLogOptions, frozen=True, kw_only=True):
    """Options of a log that is made of another one, or of a backup."""

    at_revision: Annotated[
        int | None, Option("Leave out all entries that go beyond this revision.", ge=1, metavar="REV")
    ] = None
    at_time: Annotated[
        str | None, Option("Leave out what was logged later: 2026-11-23T14:00:00Z, or ms since 1970.", metavar="TIME")
    ] = None

    @property
    def last_revision(self) -> int | None:
        return self.at_revision

    @property
    def time_ms(self) -> int | None:
        if self.at_revision is not None and self.at_time is not None:
            raise UsageError("--at-revision and --at-time are two ends: name one")
        return None if self.at_time is None else ms_of(self.at_time)


class ForkOptions(NewLogOptions, frozen=True, kw_only=True):
    """Options of a fork."""

    independent: Annotated[bool, Option("Copy everything, share nothing.")] = False
    from_lake: Annotated[
        str | None, Option("Take the snapshot from here.", metavar="PATH", shown="the running replicas")
    ] = None
    from_data_dir: Annotated[Path | None, Option("Take the snapshot from this replica's folder.")] = None


class CopyProgress:
    """One line on standard error each few seconds."""

    def __init__(self, what: str, is_quiet: bool) -> None:
        self._what = what
        self._is_quiet = is_quiet
        self._began_s = self._told_s = time.monotonic()

    def __call__(self, revision: int, count: int) -> None:
        """Tell how far it is, unless that was told just now."""
        now_s = time.monotonic()
        if self._is_quiet or now_s - self._told_s < _PROGRESS_S:
            return
        self._told_s = now_s
        rate = count / max(now_s - self._began_s, 0.001) / 1e6
        typer.echo(f"{self._what}: revision {revision:,}, {count / 1e6:,.1f} MB, {rate:,.1f} MB/s", err=True)


class RowProgress:
    """One line on standard error each few seconds, of rows.

    Args:
        what: Is done, and where.
        of: Rows in all; None = not known.
        is_quiet: Tell nothing.

    """

    def __init__(self, what: str, *, of: int | None = None, is_quiet: bool) -> None:
        self._what = what
        self._of = "" if of is None else f" of {of:,}"
        self._is_quiet = is_quiet
        self._told_s = time.monotonic()

    def __call__(self, count: int) -> None:
        """Tell how far it is, unless that was told just now."""
        now_s = time.monotonic()
        if not self._is_quiet and now_s - self._told_s >= _PROGRESS_S:
            self._told_s = now_s
            typer.echo(f"{self._what} {count:,}{self._of} rows", err=True)


def ms_of(text: str, option: str = "--at-time") -> int:
    """Return a time in ms since 1970.

    Raises:
        UsageError: It is none, or of no time zone.

    """
    if text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text!r}: expected 2026-11-23T14:00:00Z, or milliseconds since 1970") from None
    if found.tzinfo is None:
        raise UsageError(f"--at-time {text!r}: of which time zone? Put Z behind it for UTC, or +02:00")
    return int(found.timestamp() * 1000)
