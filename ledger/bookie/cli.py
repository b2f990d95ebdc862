"""`rsm bookie run`, `rsm bookie ready` and `rsm bookie info`; commands on files: `ledger.bookie.offline`."""

from __future__ import annotations

import asyncio
import json as json_module
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from ledger.audit_lines import open_audit_file
from ledger.bookie import offline
from ledger.bookie.settings import BookieSettings
from ledger.cluster_options import LoggingOptions, ProcessOptions
from ledger.configuration import process_command
from ledger.errors import LedgerError
from ledger.exit_codes import exit_code
from ledger.options import Option
from ledger.path_units import PATH
from ledger.readiness import read_readiness
from ledger.storage.disk import RealDisk
from ledger.storage.landmarks import Landmarks
from ledger.storage.limbo import load_limbo
from ledger.storage.unreadable import is_unreadable
from ledger.telemetry.settings import TelemetrySettings
from ledger.telemetry.start import start_telemetry
from ledger.tls import TlsSettings

if TYPE_CHECKING:
    # Other commands of `rsm` start without a bookie's modules.
    from ledger.bookie.notice import BookieReadyNotice


_READY_POLL_S = 0.2
_UNREADABLE = (
    "rsm bookie: the device does not read or write this file, and the bookie cannot start without it. The kernel's log "
    "(dmesg) says more. If the device is lost, begin with empty directories: docs/operations.md, 'A bookie is lost'"
)

app = typer.Typer(help="A bookie: the server that stores entries of ledgers.", no_args_is_help=True)
for _command in (offline.fsck, offline.read_journal, offline.read_segment, offline.rebuild_index):
    app.command()(_command)


_OfBookie = Annotated[Path, typer.Option(help="The bookie's data directory.")]
_LedgerDir = Annotated[
    list[Path] | None,
    typer.Option(
        envvar="RSM_BOOKIE__LEDGER_DIR",
        help="Folder of segments and index. Several may be given, each on a disk of its own.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


class BookieOptions(ProcessOptions, frozen=True, kw_only=True):
    """All that `rsm bookie run` takes."""

    bookie: BookieSettings
    tls_cert: Annotated[
        str | None, Option("Certificate (PEM) of the bookie. Clients that ask for TLS get it.", unit=PATH)
    ] = None
    tls_key: Annotated[str | None, Option("Private key (PEM) of the certificate.", unit=PATH)] = None
    tls_ca: Annotated[
        str | None,
        Option("Certificate (PEM) of an authority. Clients must show a certificate that it has signed.", unit=PATH),
    ] = None
    audit_file: Annotated[
        str | None,
        Option("File to which refusals, and reads of changed rights, are appended, one JSON object a line.", unit=PATH),
    ] = None
    logs: LoggingOptions = LoggingOptions(log_level="info")
    telemetry: TelemetrySettings = TelemetrySettings()

    def settings(self) -> BookieSettings:
        """Return what the bookie runs with."""
        tls = None
        if self.tls_cert or self.tls_key or self.tls_ca:
            tls = TlsSettings(cert=self.tls_cert, key=self.tls_key, ca=self.tls_ca)
        return msgspec.structs.replace(self.bookie, metadata_uri=self.metadata_uri, stall_s=self.stall_s, tls=tls)


@app.command()
@process_command("bookie")
def run(given: BookieOptions) -> None:
    """Run a bookie until SIGTERM.

    Example: rsm bookie run --metadata-uri zk+hierarchical://127.0.0.1:2181/ledgers --port 3181 --data-dir /srv/bk
    """
    given.logs.apply()
    start_telemetry(given.telemetry, "rsm-bookie", given.bookie.bookie_id)
    if given.audit_file is not None:
        open_audit_file(given.audit_file)
    _serve(given.settings(), is_json=given.json)


def _serve(settings: BookieSettings, *, is_json: bool) -> NoReturn:
    from ledger.bookie.app import EXIT_STORAGE_FAILED, run_bookie  # noqa: PLC0415 - `--help` needs no server packages

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(run_bookie(settings, partial(_announce, is_json=is_json)))
    except (LedgerError, OSError) as error:
        print(f"rsm bookie: {error}", file=sys.stderr)
        if not is_unreadable(error):
            raise typer.Exit(exit_code(error)) from error
        print(_UNREADABLE, file=sys.stderr)
        code = EXIT_STORAGE_FAILED
    raise typer.Exit(code)


def _announce(notice: BookieReadyNotice, *, is_json: bool) -> None:
    if is_json:
        print(msgspec.json.encode(notice).decode(), flush=True)
    else:
        fsync = "on" if notice.fsync else "OFF"
        at = "" if notice.address == notice.bookie_id else f" at {notice.address}"
        words = f"fsync {fsync}, TLS {notice.tls}, log-in {notice.login}"
        print(f"bookie {notice.bookie_id} serves{at}; {words}", flush=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@app.command()
def ready(
    data_dir: _OfBookie,
    ledger_dir: _LedgerDir = None,
    wait_s: Annotated[float, typer.Option(min=0, help="How long to wait until it is ready.")] = 0.0,
    json: _Json = False,
) -> None:
    """Tell whether a bookie of this machine is ready, for probes: exit code 0 if clients can write to it, else 1.

    Example: rsm bookie ready --data-dir /var/lib/rsm-spark/bookie --wait-s 60
    """
    folder = (ledger_dir[0] if ledger_dir else data_dir / "ledgers") / "current"
    give_up_s = time.monotonic() + wait_s
    while True:
        said = read_readiness(folder, time.monotonic())
        if said.is_ready or time.monotonic() >= give_up_s:
            break
        time.sleep(_READY_POLL_S)
    print(msgspec.json.encode(said).decode() if json else said.words)
    raise typer.Exit(0 if said.is_ready else 1)


@app.command()
def info(
    data_dir: _OfBookie,
    ledger_dir: _LedgerDir = None,
    json: _Json = False,
) -> None:
    """Tell what lies in a bookie's directories: identity, process, fsync, limbo, repair, segments.

    Example: rsm bookie info --data-dir /var/lib/rsm/bookie-0
    """
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
        "address": process.get("address"),
        "running": running,
        "pid": process.get("pid") if running else None,
        "fsync": process.get("fsync"),
        "tls": process.get("tls"),
        "login": process.get("login"),
        "journal_dir": process.get("journal_dir"),
        "ledger_dirs": process.get("ledger_dirs"),
        "limbo": list(limbo.reasons),
        "limbo_ledger_id_max": limbo.ledger_id_max,
        "disk_age": Landmarks(RealDisk(), str(folder)).held.age.count,
        "repair": None if repair is None else msgspec.to_builtins(repair),
        "segments": len(segments),
        "segment_bytes": sum(path.stat().st_size for path in segments),
    }
    if json:
        print(json_module.dumps(facts))
    else:
        for name, value in facts.items():
            print(f"{name:20} {value}")
