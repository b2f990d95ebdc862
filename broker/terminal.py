"""What the command line of tasks and tenants has in common: where the broker is, who calls, how things are shown."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from broker.client.blocking import BrokerClient
from ledger.errors import UsageError
from ledger.tls import TlsSettings

__all__ = [
    "MetadataUri",
    "Tenant",
    "Timeout",
    "TlsCa",
    "TokenFile",
    "Urls",
    "ago",
    "amounts",
    "connected",
    "print_rows",
    "printable",
    "to_json",
]

Urls = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        envvar="RSM_BROKER_URL",
        help="A broker, any of them; may be repeated.",
        show_default="found through ZooKeeper",
    ),
]
MetadataUri = Annotated[
    str | None,
    typer.Option(
        "--metadata-uri",
        envvar="RSM_METADATA_URI",
        help="Where brokers are found without --url.",
        show_default="zk+hierarchical://127.0.0.1:2181/ledgers",
    ),
]
Tenant = Annotated[
    str, typer.Option("--tenant", envvar="RSM_TENANT", help="Whose tasks; a tenant's token says so by itself.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", envvar="RSM_BROKER_TOKEN_FILE", help="File with the token; or RSM_BROKER_TOKEN."),
]
TlsCa = Annotated[
    Path | None,
    typer.Option("--tls-ca", envvar="RSM_BROKER_TLS_CA", help="Authorities trusted for https, PEM."),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.01, help="Seconds to wait for a broker that answers.")]

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def connected(
    urls: list[str] | None,
    metadata_uri: str | None,
    tenant: str,
    token_file: Path | None,
    tls_ca: Path | None,
    timeout_s: float,
) -> BrokerClient:
    """Return a client for a command's options.

    Raises:
        UsageError: The token or the certificates cannot be read, or a URL is none.

    """
    token = os.environ.get("RSM_BROKER_TOKEN", "").strip()
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the token from {token_file}: {type(error).__name__}") from None
    return BrokerClient.connect(
        urls or (),
        metadata_uri=metadata_uri,
        token=token,
        tenant=tenant,
        timeout_s=timeout_s,
        tls=None if tls_ca is None else TlsSettings(ca=str(tls_ca)),
    )


def printable(value: object) -> str:
    """Return text for a terminal: what tenants typed moves no cursor and sets no colour."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in str(value))


def to_json(value: Any) -> Any:
    """Return a struct as what JSON shows: without fields that are not there (None)."""
    shown = msgspec.to_builtins(value)
    if isinstance(shown, dict):
        return {name: item for name, item in shown.items() if item is not None}
    return shown


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


def amounts(pairs: Iterable[str], what: str) -> dict[str, int]:
    """Read "name=amount" arguments.

    Raises:
        UsageError: One is none.

    """
    found: dict[str, int] = {}
    for pair in pairs:
        name, _, amount = pair.partition("=")
        if not name or not amount.isdecimal():
            raise UsageError(f"{what} {pair!r}: expected name=amount, such as gpu=1")
        found[name] = int(amount)
    return found
