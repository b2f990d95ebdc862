"""`rsm autorecovery`: keep every ledger's copies complete when bookies are lost."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ledger.configuration import configured
from ledger.errors import LedgerError
from ledger.replication.settings import ReplicationSettings

if TYPE_CHECKING:
    from ledger.replication.app import RunningNotice
    from ledger.replication.marks import MarkStore

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Keep every ledger's copies complete when bookies are lost.\n\nExample: rsm autorecovery run",
)

_Uri = Annotated[
    str | None,
    typer.Option(
        "--metadata-uri",
        envvar="RSM_METADATA_URI",
        help="Where the cluster keeps its metadata: zk+hierarchical://host:port;host:port/ledgers",
        show_default="zk+hierarchical://127.0.0.1:2181/ledgers",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
_DEFAULTS = ReplicationSettings()
_Conf = Annotated[Path | None, configured("autorecovery")]


@app.command()
def run(
    metadata_uri: _Uri = None,
    lost_bookie_delay_s: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="RSM_AUTORECOVERY__LOST_BOOKIE_DELAY_S",
            help="How long a bookie is missing before it counts as lost; used where the cluster has no value yet "
            "(see `rsm autorecovery set-delay`).",
        ),
    ] = _DEFAULTS.lost_bookie_delay_s,
    open_ledger_grace_s: Annotated[
        float,
        typer.Option(
            min=0.0,
            envvar="RSM_AUTORECOVERY__OPEN_LEDGER_GRACE_S",
            help="How long the writer of an open ledger may replace a lost bookie by itself; then it is closed.",
        ),
    ] = _DEFAULTS.open_ledger_grace_s,
    check_s: Annotated[
        float,
        typer.Option(
            min=0.0,
            envvar="RSM_AUTORECOVERY__CHECK_S",
            help="Interval of the check of all copies of all ledgers; 0 never checks.",
        ),
    ] = _DEFAULTS.check_s,
    copy_mib_per_s: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="RSM_AUTORECOVERY__COPY_MIB_PER_S",
            help="What one copy may read and write in a second; 0 is without limit.",
        ),
    ] = _DEFAULTS.copy_bytes_per_s >> 20,
    json: _Json = False,
    _conf: _Conf = None,
) -> None:
    """Run an auditor candidate and a replication worker until SIGTERM; as many processes as you like.

    Works beside BookKeeper's own auto-recovery: the same nodes, the same locks.
    """
    from ledger.replication.app import run_auto_recovery  # noqa: PLC0415 - `--help` needs no client

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    settings = ReplicationSettings(
        lost_bookie_delay_s=lost_bookie_delay_s,
        open_ledger_grace_s=open_ledger_grace_s,
        check_s=check_s,
        copy_bytes_per_s=copy_mib_per_s << 20,
    )

    def announce(notice: RunningNotice) -> None:
        line = msgspec.json.encode(notice).decode() if json else f"auto-recovery runs as {notice.owner}"
        print(line, flush=True)

    _end_with(lambda: run_auto_recovery(metadata_uri, settings, announce))


@app.command()
def status(metadata_uri: _Uri = None, json: _Json = False) -> None:
    """Tell who audits, which ledgers lack copies, and who works on them."""

    async def work(marks: MarkStore) -> None:
        from ledger.replication.election import AuditorElection  # noqa: PLC0415

        facts: dict[str, object] = {
            "auditor": await AuditorElection(marks).leader(),
            "enabled": await marks.is_enabled(),
            "last_check_ms": await marks.checked_ms(),
        }
        found: list[dict[str, object]] = []
        for ledger_id in await marks.marked():
            mark = await marks.read(ledger_id)
            if mark is not None:
                owner = await marks.owner_of(ledger_id)
                found.append({"ledger_id": ledger_id, "lacking": list(mark[0].bookie_ids), "worker": owner})
        if json:
            print(msgspec.json.encode({**facts, "ledgers": found}).decode())
            return
        for name, value in facts.items():
            print(f"{name:20} {value}")
        print(f"{'ledgers':20} {len(found)} lack copies")
        for line in found:
            print(f"  {line['ledger_id']}: {line['lacking']}, {line['worker'] or 'nobody'} works on it")

    _end_with(lambda: _with_marks(metadata_uri, work))


@app.command()
def disable(metadata_uri: _Uri = None) -> None:
    """Stop auto-recovery of the whole cluster, for example during maintenance; running copies end first."""
    _end_with(lambda: _with_marks(metadata_uri, lambda marks: marks.set_enabled(False)))


@app.command()
def enable(metadata_uri: _Uri = None) -> None:
    """Let auto-recovery of the whole cluster go on."""
    _end_with(lambda: _with_marks(metadata_uri, lambda marks: marks.set_enabled(True)))


@app.command(name="set-delay")
def set_delay(
    seconds: Annotated[int, typer.Argument(min=0, help="How long a bookie is missing before it counts as lost.")],
    metadata_uri: _Uri = None,
) -> None:
    """Set the cluster's delay before the ledgers of a missing bookie are copied elsewhere."""
    _end_with(lambda: _with_marks(metadata_uri, lambda marks: marks.set_recovery_delay_s(seconds)))


async def _with_marks(metadata_uri: str | None, work: Callable[[MarkStore], Awaitable[None]]) -> None:
    from ledger.replication.marks import MarkStore  # noqa: PLC0415
    from ledger.zk.ledgers import LedgerStore  # noqa: PLC0415
    from ledger.zk.session import connect  # noqa: PLC0415
    from ledger.zk.uri import MetadataUri  # noqa: PLC0415

    uri = MetadataUri.of(metadata_uri)
    store = await connect(uri.hosts)
    try:
        await LedgerStore(store, uri.ledgers_root).writable_bookies()  # Complains if there is no cluster.
        await work(MarkStore(store, uri.ledgers_root, "rsm"))
    finally:
        await store.close()


def _end_with(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    try:
        asyncio.run(main())
    except LedgerError as error:
        print(f"rsm autorecovery: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
