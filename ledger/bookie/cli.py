"""`rsm bookie run` and `rsm bookie info`."""

from __future__ import annotations

import asyncio
import json as json_module
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from ledger.bookie.settings import BookieSettings
from ledger.configuration import configured
from ledger.errors import LedgerError
from ledger.store.compaction import CompactionSettings
from ledger.store.disk import RealDisk
from ledger.store.limbo import load_limbo
from ledger.tls import TlsSettings

if TYPE_CHECKING:
    from ledger.bookie.app import ReadyNotice

__all__ = ["app"]

app = typer.Typer(help="A bookie: the server that stores entries of ledgers.", no_args_is_help=True)


_Port = Annotated[int, typer.Option(min=1, max=65535, help="Part of the bookie's id: never change it.")]
_DataDir = Annotated[Path, typer.Option(help="Holds `journal` and `ledgers`.")]
_MetadataUri = Annotated[
    str | None, typer.Option(envvar="RSM_METADATA_URI", help="zk+hierarchical://host:port/ledgers")
]
_Bind = Annotated[str, typer.Option(help="Address to listen at.")]
_Advertise = Annotated[str | None, typer.Option(help="Host under which clients find this bookie.")]
_JournalDir = Annotated[
    Path | None, typer.Option(envvar="RSM_BOOKIE__JOURNAL_DIR", help="Best on a device of its own.")
]
_LedgerDir = Annotated[
    list[Path] | None,
    typer.Option(envvar="RSM_BOOKIE__LEDGER_DIR", help="Segments and index; several: on disks of their own."),
]
_JournalFileMib = Annotated[int, typer.Option(envvar="RSM_BOOKIE__JOURNAL_FILE_MIB", help="Size of a journal file.")]
_FreeMibMin = Annotated[
    int, typer.Option(envvar="RSM_BOOKIE__FREE_MIB_MIN", help="Takes no adds with less free space.")
]
_CollectS = Annotated[float, typer.Option(envvar="RSM_BOOKIE__COLLECT_S", help="Interval of dropping deleted ledgers.")]
_MinorShare = Annotated[
    float,
    typer.Option(
        envvar="RSM_BOOKIE__MINOR_COMPACTION_SHARE",
        min=0,
        max=1,
        help="Segments of which at most this share lives are written again at every minor interval; 0: never.",
    ),
]
_MinorS = Annotated[float, typer.Option(envvar="RSM_BOOKIE__MINOR_COMPACTION_S", help="The minor interval.")]
_MajorShare = Annotated[
    float,
    typer.Option(
        envvar="RSM_BOOKIE__MAJOR_COMPACTION_SHARE", min=0, max=1, help="The same at the major interval; 0: never."
    ),
]
_MajorS = Annotated[float, typer.Option(envvar="RSM_BOOKIE__MAJOR_COMPACTION_S", help="The major interval.")]
_CompactionMib = Annotated[
    int, typer.Option(envvar="RSM_BOOKIE__COMPACTION_MIB_PER_S", min=1, help="What compactions read at most.")
]
_NoFsync = Annotated[bool, typer.Option("--no-fsync", help="Only for tests: loses data in a power cut.")]
_Insecure = Annotated[bool, typer.Option("--insecure", help="Listen beyond loopback without TLS.")]
_TlsCert = Annotated[
    Path | None,
    typer.Option(envvar="RSM_BOOKIE__TLS_CERT", help="Certificate (PEM): TLS for who asks for it."),
]
_TlsKey = Annotated[Path | None, typer.Option(envvar="RSM_BOOKIE__TLS_KEY", help="Its key (PEM).")]
_TlsCa = Annotated[
    Path | None,
    typer.Option(envvar="RSM_BOOKIE__TLS_CA", help="Clients must show a certificate that it signed."),
]
_TlsRequired = Annotated[
    bool, typer.Option("--tls-required", envvar="RSM_BOOKIE__TLS_REQUIRED", help="Serve nothing without TLS.")
]
_AuthFile = Annotated[
    Path | None,
    typer.Option(
        envvar="RSM_BOOKIE__AUTH_FILE",
        help="Serve only who logs in (SASL, DIGEST-MD5) as a user of this file: lines like digest:user:password.",
    ),
]
_ReadOnly = Annotated[
    bool, typer.Option("--read-only", envvar="RSM_BOOKIE__READ_ONLY", help="Take no adds but those of recoveries.")
]
_ConnectionsMax = Annotated[
    int, typer.Option(envvar="RSM_BOOKIE__CONNECTIONS_MAX", min=1, help="One more is closed at once.")
]
_IdleS = Annotated[
    float, typer.Option(envvar="RSM_BOOKIE__IDLE_S", min=0, help="Close connections idle this long; 0: never.")
]
_Autorecovery = Annotated[
    bool,
    typer.Option("--autorecovery", envvar="RSM_BOOKIE__AUTORECOVERY", help="As `rsm autorecovery run`, in here."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON when serving.")]
_Conf = Annotated[Path | None, configured("bookie")]


@app.command()
def run(
    port: _Port,
    data_dir: _DataDir,
    metadata_uri: _MetadataUri = None,
    bind: _Bind = "127.0.0.1",
    advertise: _Advertise = None,
    journal_dir: _JournalDir = None,
    ledger_dir: _LedgerDir = None,
    journal_file_mib: _JournalFileMib = 64,
    free_mib_min: _FreeMibMin = 512,
    collect_s: _CollectS = 900.0,
    minor_compaction_share: _MinorShare = 0.2,
    minor_compaction_s: _MinorS = 3600.0,
    major_compaction_share: _MajorShare = 0.8,
    major_compaction_s: _MajorS = 86_400.0,
    compaction_mib_per_s: _CompactionMib = 32,
    no_fsync: _NoFsync = False,
    insecure: _Insecure = False,
    tls_cert: _TlsCert = None,
    tls_key: _TlsKey = None,
    tls_ca: _TlsCa = None,
    tls_required: _TlsRequired = False,
    auth_file: _AuthFile = None,
    read_only: _ReadOnly = False,
    connections_max: _ConnectionsMax = 20_000,
    idle_s: _IdleS = 0.0,
    autorecovery: _Autorecovery = False,
    json: _Json = False,
    _conf: _Conf = None,
) -> None:
    """Run a bookie until SIGTERM.

    Example: rsm bookie run --metadata-uri zk+hierarchical://127.0.0.1:2181/ledgers --port 3181 --data-dir /srv/bk
    """
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
        compaction=CompactionSettings(
            minor_share=minor_compaction_share,
            minor_interval_s=minor_compaction_s,
            major_share=major_compaction_share,
            major_interval_s=major_compaction_s,
            bytes_per_s=compaction_mib_per_s << 20,
        ),
        has_auto_recovery=autorecovery,
        tls=_tls(tls_cert, tls_key, tls_ca),
        is_tls_required=tls_required,
        auth_file=None if auth_file is None else str(auth_file),
        is_read_only=read_only,
        connections_max=connections_max,
        idle_s=idle_s,
    )
    _serve(settings, is_json=json)


def _serve(settings: BookieSettings, *, is_json: bool) -> NoReturn:
    from ledger.bookie.app import run_bookie  # noqa: PLC0415 - `--help` needs no server packages

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(run_bookie(settings, partial(_announce, is_json=is_json)))
    except (LedgerError, OSError) as error:
        print(f"rsm bookie: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    raise typer.Exit(code)


def _announce(notice: ReadyNotice, *, is_json: bool) -> None:
    if is_json:
        print(msgspec.json.encode(notice).decode(), flush=True)
    else:
        fsync = "on" if notice.fsync else "OFF"
        print(f"bookie {notice.bookie_id} serves; fsync {fsync}, TLS {notice.tls}, log-in {notice.login}", flush=True)


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
    ledger_dir: _LedgerDir = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Tell what lies in a bookie's directories: identity, process, fsync, limbo, repair, segments."""
    from ledger.bookie.repairs import read_repair_file  # noqa: PLC0415 - as in `run`

    folder = (ledger_dir[0] if ledger_dir else data_dir / "ledgers") / "current"
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
        "login": process.get("login"),
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
