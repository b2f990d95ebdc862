"""`rsm bookie run` and `rsm bookie info`."""

from __future__ import annotations

import asyncio
import json as json_module
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.bookie.settings import BookieSettings
from ledger.errors import LedgerError
from ledger.store.disk import RealDisk
from ledger.store.limbo import load_limbo
from ledger.tls import TlsSettings

__all__ = ["app"]

app = typer.Typer(help="A bookie: the server that stores entries of ledgers.", no_args_is_help=True)


@app.command()
def run(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Part of the bookie's id: never change it.")],
    data_dir: Annotated[Path, typer.Option(help="Holds `journal` and `ledgers`.")],
    metadata_uri: Annotated[
        str | None, typer.Option(envvar="RSM_METADATA_URI", help="zk+hierarchical://host:port/ledgers")
    ] = None,
    bind: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    advertise: Annotated[str | None, typer.Option(help="Host under which clients find this bookie.")] = None,
    journal_dir: Annotated[
        Path | None, typer.Option(envvar="RSM_BOOKIE__JOURNAL_DIR", help="Best on a device of its own.")
    ] = None,
    ledger_dir: Annotated[
        list[Path] | None,
        typer.Option(envvar="RSM_BOOKIE__LEDGER_DIR", help="Segments and index; several: on disks of their own."),
    ] = None,
    journal_file_mib: Annotated[
        int, typer.Option(envvar="RSM_BOOKIE__JOURNAL_FILE_MIB", help="Size of a journal file.")
    ] = 64,
    free_mib_min: Annotated[
        int, typer.Option(envvar="RSM_BOOKIE__FREE_MIB_MIN", help="Takes no adds with less free space.")
    ] = 512,
    collect_s: Annotated[
        float, typer.Option(envvar="RSM_BOOKIE__COLLECT_S", help="Interval of dropping deleted ledgers.")
    ] = 900.0,
    no_fsync: Annotated[bool, typer.Option("--no-fsync", help="Only for tests: loses data in a power cut.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen beyond loopback without TLS.")] = False,
    tls_cert: Annotated[
        Path | None,
        typer.Option(envvar="RSM_BOOKIE__TLS_CERT", help="Certificate (PEM): TLS for who asks for it."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(envvar="RSM_BOOKIE__TLS_KEY", help="Its key (PEM).")] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(envvar="RSM_BOOKIE__TLS_CA", help="Clients must show a certificate that it signed."),
    ] = None,
    tls_required: Annotated[
        bool, typer.Option("--tls-required", envvar="RSM_BOOKIE__TLS_REQUIRED", help="Serve nothing without TLS.")
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", envvar="RSM_BOOKIE__READ_ONLY", help="Take no adds but those of recoveries.")
    ] = False,
    connections_max: Annotated[
        int, typer.Option(envvar="RSM_BOOKIE__CONNECTIONS_MAX", min=1, help="One more is closed at once.")
    ] = 20_000,
    idle_s: Annotated[
        float, typer.Option(envvar="RSM_BOOKIE__IDLE_S", min=0, help="Close connections idle this long; 0: never.")
    ] = 0.0,
    autorecovery: Annotated[
        bool,
        typer.Option("--autorecovery", envvar="RSM_BOOKIE__AUTORECOVERY", help="As `rsm autorecovery run`, in here."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when serving.")] = False,
) -> None:
    """Run a bookie until SIGTERM.

    Example: rsm bookie run --metadata-uri zk+hierarchical://127.0.0.1:2181/ledgers --port 3181 --data-dir /srv/bk
    """
    from ledger.bookie.app import ReadyNotice, run_bookie  # noqa: PLC0415 - `--help` needs no server packages

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    settings = BookieSettings(
        str(data_dir),
        port,
        metadata_uri,
        bind,
        advertise,
        None if journal_dir is None else str(journal_dir),
        tuple(map(str, ledger_dir or ())),
        not no_fsync,
        insecure,
        journal_file_mib=journal_file_mib,
        free_mib_min=free_mib_min,
        collect_s=collect_s,
        has_auto_recovery=autorecovery,
        tls=_tls(tls_cert, tls_key, tls_ca),
        is_tls_required=tls_required,
        is_read_only=read_only,
        connections_max=connections_max,
        idle_s=idle_s,
    )

    def announce(notice: ReadyNotice) -> None:
        if json:
            print(msgspec.json.encode(notice).decode(), flush=True)
        else:
            print(
                f"bookie {notice.bookie_id} serves; fsync {'on' if notice.fsync else 'OFF'}, TLS {notice.tls}",
                flush=True,
            )

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(run_bookie(settings, announce))
    except (LedgerError, OSError) as error:
        print(f"rsm bookie: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    raise typer.Exit(code)


def _tls(cert: Path | None, key: Path | None, ca: Path | None) -> TlsSettings | None:
    if cert is None and key is None and ca is None:
        return None
    return TlsSettings(
        cert=None if cert is None else str(cert),
        key=None if key is None else str(key),
        ca=None if ca is None else str(ca),
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@app.command()
def info(
    data_dir: Annotated[Path, typer.Option(help="The bookie's data directory.")],
    ledger_dir: Annotated[Path | None, typer.Option(envvar="RSM_BOOKIE__LEDGER_DIR")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Tell what lies in a bookie's directories: identity, process, fsync, limbo, repair, segments."""
    from ledger.bookie.repairs import read_repair_file  # noqa: PLC0415 - as in `run`

    folder = (ledger_dir or data_dir / "ledgers") / "current"
    if not folder.is_dir():
        print(f"rsm bookie: {folder}: no bookie has served from here", file=sys.stderr)
        raise typer.Exit(1)
    process_file = folder / "process.json"
    process = json_module.loads(process_file.read_bytes()) if process_file.exists() else {}
    running = "pid" in process and Path(f"/proc/{process['pid']}").exists()
    limbo = load_limbo(RealDisk(), str(folder))
    repair = read_repair_file(folder)
    roots = [Path(root) / "current" for root in process.get("ledger_dirs", [])] or [folder]
    segments = [path for root in roots for path in root.glob("*.seg")]
    facts = {
        "bookie_id": process.get("bookie_id"),
        "running": running,
        "pid": process.get("pid") if running else None,
        "fsync": process.get("fsync"),
        "tls": process.get("tls"),
        "journal_dir": process.get("journal_dir"),
        "ledger_dirs": process.get("ledger_dirs"),
        "limbo": list(limbo.reasons),
        "limbo_ledger_id_max": limbo.ledger_id_max,
        "repair": None if repair is None else msgspec.to_builtins(repair),
        "segments": len(segments),
        "segment_bytes": sum(path.stat().st_size for path in segments),
    }
    if json:
        print(json_module.dumps(facts))
    else:
        for name, value in facts.items():
            print(f"{name:20} {value}")
