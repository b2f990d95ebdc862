"""`rsm store run`: one replica of the state store as a process."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ledger.errors import UsageError
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.runtime import ReplicaSettings
from rsm_spark.snapshots import SnapshotStore
from rsm_spark.store.app import SESSION_TIMEOUT_MS, ReadyNotice, run_store
from rsm_spark.store.service import StoreSettings
from rsm_spark.store.terminal import Json, LogName, MetadataUriOption, RsmRoot, print_json

__all__ = ["app"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run a replica of the state store.", pretty_exceptions_enable=False
)
_DEFAULTS = ReplicaSettings()


@app.callback()
def _store() -> None:
    # Keeps `run` a sub-command of its own.
    pass


@app.command()
def run(
    log: LogName,
    data_dir: Annotated[Path, typer.Option("--data-dir", help="The replica's own folder; snapshots lie in it.")],
    metadata_uri: MetadataUriOption = None,
    replica_id: Annotated[
        str | None, typer.Option("--replica-id", help="Stable name of this replica.", show_default="host and folder")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="For clients; 0 = any that is free.")] = 0,
    bind: Annotated[str, typer.Option("--bind", help="Address to listen on.")] = "127.0.0.1",
    advertise: Annotated[
        str, typer.Option("--advertise", metavar="HOST:PORT", help="Told to clients.", show_default="where it listens")
    ] = "",
    bookies: Annotated[
        str, typer.Option("--bookies", metavar="E/Qw/Qa", help="Ensemble, write quorum and ack quorum of the log.")
    ] = "2/2/2",
    single_copy: Annotated[
        bool, typer.Option("--single-copy", help="Allow an ack quorum of 1: one disk lost, log lost.")
    ] = False,
    lake: Annotated[
        str | None, typer.Option("--lake", metavar="PATH", help="Where snapshots lie to boot from.")
    ] = None,
    follow_only: Annotated[bool, typer.Option("--follow-only", help="Never lead.")] = False,
    roll_bytes: Annotated[int, typer.Option(help="A ledger is followed by a new one at so many.")] = (
        _DEFAULTS.roll_bytes
    ),
    roll_s: Annotated[float, typer.Option(help="… or at this age.")] = _DEFAULTS.roll_s,
    snapshot_s: Annotated[float, typer.Option(help="Period of local snapshots; 0 = none by time.")] = (
        _DEFAULTS.snapshot_s
    ),
    snapshot_bytes: Annotated[int, typer.Option(help="Log bytes between them; 0 = none by size.")] = (
        _DEFAULTS.snapshot_bytes
    ),
    keep_snapshots: Annotated[int, typer.Option(min=3, help="Whole local snapshots to keep.")] = 3,
    session_timeout_ms: Annotated[
        int, typer.Option(min=200, help="ZooKeeper gives a silent leader up after so long.")
    ] = SESSION_TIMEOUT_MS,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    log_level: Annotated[str, typer.Option(help="debug, info, warning, error.")] = "warning",
    json: Json = False,
) -> None:
    """Run a replica until ctrl-C or SIGTERM; two or more of them make the map highly available.

    Examples:
        rsm store run --log orders --data-dir /var/lib/orders-a

        rsm store run --log orders --data-dir /var/lib/orders-b --bookies 3/3/2 --json

    """
    logging.basicConfig(level=_level(log_level), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    ensemble_size, write_quorum, ack_quorum = _quorum(bookies)
    settings = StoreSettings(
        log=log,
        replica_id=replica_id or _default_id(data_dir),
        data_dir=data_dir,
        bind=bind,
        port=port,
        advertise=advertise,
        keep_snapshots=keep_snapshots,
        replica=ReplicaSettings(
            rsm_root=rsm_root,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            allow_single_copy=single_copy,
            roll_bytes=roll_bytes,
            roll_s=roll_s,
            snapshot_s=snapshot_s,
            snapshot_bytes=snapshot_bytes,
            campaign=not follow_only,
        ),
    )

    def _announce(notice: ReadyNotice) -> None:
        if json:
            print_json(msgspec.to_builtins(notice))
        else:
            typer.echo(f"replica {notice.replica_id} of log {notice.log} serves on {notice.address}, ctrl-C ends it")

    _run(
        run_store(
            settings,
            metadata_uri=metadata_uri,
            lake=None if lake is None else _lake(lake, log),
            session_timeout_ms=session_timeout_ms,
            on_ready=_announce,
        )
    )


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop  # noqa: PLC0415 - quicker where it is installed, never required
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def _quorum(text: str) -> tuple[int, int, int]:
    parts = text.split("/")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise UsageError(f"--bookies {text!r}: expected ensemble/write quorum/ack quorum, for example 3/3/2")
    return int(parts[0]), int(parts[1]), int(parts[2])


def _level(text: str) -> int:
    levels = logging.getLevelNamesMapping()
    if text.upper() not in levels:
        raise UsageError(f"--log-level {text!r}: use debug, info, warning or error")
    return levels[text.upper()]


def _default_id(data_dir: Path) -> str:
    """Return a name that the same folder on the same host gets again."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in f"{socket.gethostname()}-{data_dir.resolve()}")
    return os.fsencode(plain.strip("-"))[-120:].decode()


def _lake(path: str, log: str) -> SnapshotStore:
    from rsm_spark.snapshots.lake import LakeSnapshots, lake_place  # noqa: PLC0415 - deltalake only where it is used

    return LakeSnapshots(lake_place(path, log))
