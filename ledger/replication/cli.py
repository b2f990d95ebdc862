"""`rsm autorecovery`: keep every ledger's copies complete when bookies are lost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ledger.audit_lines import Refusals, open_audit_file
from ledger.cluster_options import ClusterOptions, LoggingOptions, MetadataOptions, ProcessOptions
from ledger.configuration import options_command, process_command
from ledger.errors import LedgerError
from ledger.exit_codes import exit_code
from ledger.http.settings import HttpDoorSettings
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.options import Option
from ledger.path_units import PATH
from ledger.replication.settings import ReplicationSettings
from ledger.telemetry.settings import TelemetrySettings
from ledger.telemetry.start import start_telemetry

if TYPE_CHECKING:
    # Other commands of `rsm` start without the auditor's modules.
    from ledger.http.probe_server import ProbeServer
    from ledger.replication.app import AutoRecovery, RunningNotice
    from ledger.replication.marks import MarkStore
    from ledger.zookeeper.ledgers import LedgerStore


app = typer.Typer(
    no_args_is_help=True,
    help="Keep every ledger's copies complete when bookies are lost.\n\nExample: rsm autorecovery run",
)


class AutoRecoveryOptions(ProcessOptions, frozen=True, kw_only=True):
    """All that `rsm autorecovery run` takes."""

    replication: ReplicationSettings = ReplicationSettings()
    http: HttpDoorSettings = HttpDoorSettings()
    audit_file: Annotated[
        str | None, Option("File to which refused and changing calls over HTTP are appended, as JSON.", unit=PATH)
    ] = None
    logs: LoggingOptions = LoggingOptions(log_level="info")
    telemetry: TelemetrySettings = TelemetrySettings()


@app.command()
@process_command("autorecovery")
def run(given: AutoRecoveryOptions) -> None:
    """Run an auditor candidate and a replication worker until SIGTERM; as many processes as you like.

    Works beside BookKeeper's own auto-recovery: the same nodes, the same locks.

    Example: rsm autorecovery run --http-port 8001
    """
    from ledger.replication.app import run_auto_recovery  # noqa: PLC0415 - `--help` needs no client

    given.logs.apply()
    start_telemetry(given.telemetry, "rsm-autorecovery")

    def announce(notice: RunningNotice) -> None:
        at = f", HTTP on {notice.http_address}" if notice.http_address else ""
        line = msgspec.json.encode(notice).decode() if given.json else f"auto-recovery runs as {notice.owner}{at}"
        print(line, flush=True)

    async def open_http(ledgers: LedgerStore, recovery: AutoRecovery) -> ProbeServer | None:
        from ledger.http.metrics_push import push_metrics  # noqa: PLC0415 - as above
        from ledger.replication.pages import RecoveryPages  # noqa: PLC0415

        refusals = Refusals()
        pages = RecoveryPages(ledgers, recovery, refusals)
        push_metrics(pages.metrics)
        if given.http.port is None:
            return None
        server = given.http.server(pages.routes(), refusals)
        await server.start()
        return server

    def work() -> Awaitable[None]:
        if given.audit_file is not None:
            open_audit_file(given.audit_file)
        return run_auto_recovery(
            given.metadata_uri, given.replication, announce, open_http=open_http, stall_s=given.stall_s
        )

    _end_with(work)


@app.command()
@options_command
def status(at: ClusterOptions) -> None:
    """Tell who audits, which ledgers lack copies, and who works on them.

    What the auditor has marked is one thing; beside it stands what lacks copies now, counted by this command.

    Example: rsm autorecovery status
    """

    async def work(marks: MarkStore) -> None:
        from ledger.replication.copies_report import report_copies  # noqa: PLC0415
        from ledger.zookeeper.ledgers import LedgerStore  # noqa: PLC0415

        report = await report_copies(LedgerStore(marks.store, marks.root))
        facts: dict[str, object] = {
            "auditor": report.auditor,
            "enabled": report.is_enabled,
            "last_check_ms": report.checked_ms,
            "missing_bookies": list(report.missing),
        }
        found: list[dict[str, object]] = []
        for ledger_id in report.marked:
            mark = await marks.read(ledger_id)
            if mark is not None:
                owner = report.worked_on.get(ledger_id)
                found.append({"ledger_id": ledger_id, "lacking": list(mark[0].bookie_ids), "worker": owner})
        if at.json:
            now = {"lacking_now": len(report.lacking), "lacking_entries": report.entry_count}
            print(msgspec.json.encode({**facts, **now, "ledgers": found}).decode())
            return
        for name, value in facts.items():
            print(f"{name:20} {value}")
        nobody = "" if report.auditor else "; nobody looks: there is no auditor"
        print(f"{'marked':20} {len(found)} ledgers{nobody}")
        lack = f"{len(report.lacking)} of {report.ledger_count} ledgers, {report.entry_count} entries"
        print(f"{'lack copies now':20} {lack}")
        for line in found:
            print(f"  {line['ledger_id']}: {line['lacking']}, {line['worker'] or 'nobody'} works on it")

    _end_with(lambda: _with_marks(at.metadata_uri, work))


@app.command()
@options_command
def disable(at: MetadataOptions, audit: AuditOptions) -> None:
    """Stop auto-recovery of the whole cluster, as during maintenance; running copies end first.

    Example: rsm autorecovery disable
    """
    with audited_command(audit.audit_file, "rsm autorecovery disable", "the cluster", this_operator()):
        _end_with(lambda: _with_marks(at.metadata_uri, lambda marks: marks.set_enabled(False)))


@app.command()
@options_command
def enable(at: MetadataOptions, audit: AuditOptions) -> None:
    """Let auto-recovery of the whole cluster go on.

    Example: rsm autorecovery enable
    """
    with audited_command(audit.audit_file, "rsm autorecovery enable", "the cluster", this_operator()):
        _end_with(lambda: _with_marks(at.metadata_uri, lambda marks: marks.set_enabled(True)))


@app.command(name="set-delay")
@options_command
def set_delay(
    seconds: Annotated[int, typer.Argument(min=0, help="How long a bookie is missing before it counts as lost.")],
    at: MetadataOptions,
    audit: AuditOptions,
) -> None:
    """Set the cluster's delay before the ledgers of a missing bookie are copied elsewhere.

    Example: rsm autorecovery set-delay 300
    """
    with audited_command(audit.audit_file, "rsm autorecovery set-delay", f"the cluster: {seconds} s", this_operator()):
        _end_with(lambda: _with_marks(at.metadata_uri, lambda marks: marks.set_recovery_delay_s(seconds)))


async def _with_marks(metadata_uri: str | None, work: Callable[[MarkStore], Awaitable[None]]) -> None:
    from ledger.replication.marks import MarkStore  # noqa: PLC0415
    from ledger.zookeeper.ledgers import LedgerStore  # noqa: PLC0415
    from ledger.zookeeper.session import connect  # noqa: PLC0415
    from ledger.zookeeper.uri import MetadataUri  # noqa: PLC0415

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
        raise typer.Exit(exit_code(error)) from error
