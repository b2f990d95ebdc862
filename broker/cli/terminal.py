"""Options and output that the commands of tasks and tenants share: the broker's address, the caller, tables."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from broker.client.blocking import BrokerClient
from broker.client.client import TIMEOUT_S
from ledger.cluster_options import ClusterOptions
from ledger.errors import UsageError
from ledger.options import Option
from ledger.tls import TlsSettings
from rsm_spark.cli.terminal import printable

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class BrokerOptions(ClusterOptions, frozen=True, kw_only=True):
    """Options of a command for a broker."""

    urls: Annotated[
        list[str] | None,
        Option(
            "A broker, any of them; may be repeated.",
            name="url",
            variables=("RSM_BROKER_URL",),
            shown="found through ZooKeeper",
        ),
    ] = None
    token_file: Annotated[
        Path | None, Option("File with the token; or RSM_BROKER_TOKEN.", variables=("RSM_BROKER_TOKEN_FILE",))
    ] = None
    tls_ca: Annotated[Path | None, Option("Authorities trusted for https, PEM.", variables=("RSM_BROKER_TLS_CA",))] = (
        None
    )
    timeout_s: Annotated[float, Option("Seconds to wait for a broker that answers.", name="timeout", ge=0.01)] = (
        TIMEOUT_S
    )

    def connect(self, tenant: str = "") -> BrokerClient:
        """Return a client.

        Raises:
            UsageError: The token or the certificates cannot be read, or a URL is none.

        """
        return BrokerClient.connect(
            self.urls or (),
            metadata_uri=self.metadata_uri,
            token="" if self.token_file is not None else os.environ.get("RSM_BROKER_TOKEN", "").strip(),
            token_file=self.token_file,
            tenant=tenant,
            timeout_s=self.timeout_s,
            tls=None if self.tls_ca is None else TlsSettings(ca=str(self.tls_ca)),
        )


class TenantOptions(BrokerOptions, frozen=True, kw_only=True):
    """Options of a command for tasks of a tenant."""

    tenant: Annotated[str, Option("Whose tasks; a tenant's token says so by itself.", variables=("RSM_TENANT",))] = ""

    def connect(self, tenant: str = "") -> BrokerClient:
        """Return a client for the tasks of this tenant."""
        return super().connect(tenant or self.tenant)


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
