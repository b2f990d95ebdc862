"""Options that say where to look, and output that commands share: bytes as text, tables, times."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from ledger.cluster_options import ClusterOptions
from ledger.options import Option
from rsm_spark.core.chain import DEFAULT_RSM_ROOT

if TYPE_CHECKING:
    # Loaded when a command connects: what only prints help must not wait for it.
    from ledger.client.client import LedgerClient

Result = TypeVar("Result")

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

KeyArgument = Annotated[str, typer.Argument(help="The key, as text.")]
LogArgument = Annotated[str, typer.Argument(help="Name of the log.", envvar="RSM_LOG")]


class LogsOptions(ClusterOptions, frozen=True, kw_only=True):
    """Options of a command for logs."""

    rsm_root: Annotated[str, Option("Root of the logs in ZooKeeper.")] = DEFAULT_RSM_ROOT

    async def connect_ledgers(self) -> LedgerClient:
        """Return a client of the ledgers there."""
        from ledger.client.client import LedgerClient  # noqa: PLC0415 - not every command asks for ledgers

        return await LedgerClient.connect(self.metadata_uri)


def key_bytes(text: str) -> bytes:
    """Return the bytes of an argument as they were typed."""
    return text.encode(errors="surrogateescape")


def shown(value: Any) -> Any:
    """Return a value as JSON shows it: bytes as text where they are UTF-8, else as ``{"base64": ...}``."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {shown(key) if isinstance(key, bytes) else key: shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return value


def printable(value: object) -> str:
    """Return text for a terminal: what somebody else typed moves no cursor and sets no colour."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in str(value))


def print_json(value: Any) -> None:
    """Print one line of JSON; a reader that has gone ends the program quietly."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_result(as_json: bool, document: Any, text: str) -> None:
    """Print what a command found: as JSON where that is asked for, else as text."""
    if as_json:
        print_json(document)
    else:
        typer.echo(text)


def print_rows(titles: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[int] = ()) -> None:
    """Print a table whose columns are as wide as their contents.

    Args:
        titles: One a column.
        rows: Its cells.
        right: Columns aligned at their right end: numbers.

    """
    table = [list(titles), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(titles))]
    aligned_right = frozenset(right)
    for row in table:
        cells = [
            cell.rjust(width) if place in aligned_right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    sys.stdout.flush()


def ago(then_ms: int, now_ms: int | None = None) -> str:
    """Return how long ago something was, in one unit; "-" for never."""
    if not then_ms:
        return "-"
    seconds = max(0.0, ((time.time() * 1000 if now_ms is None else now_ms) - then_ms) / 1000)
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "now"


def size_words(count: int) -> str:
    """Return a number of bytes in the largest unit that it fills; the bytes themselves are in JSON."""
    for size, unit in _SIZES:
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def painted(text: str, *, is_good: bool) -> str:
    """Return a text for a terminal, green or red; as it is with NO_COLOR, and where no terminal shows it."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return typer.style(text, fg="green" if is_good else "red")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's work; ctrl-C ends it with exit code 130, a closed pipe quietly."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(0) from None
