"""`rsm console`: one page for a whole cluster, as a process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec

from ledger.audit_lines import open_audit_file
from ledger.cluster_options import LoggingOptions, ProcessOptions
from ledger.configuration import process_command
from ledger.options import Option
from ledger.telemetry.settings import TelemetrySettings
from ledger.telemetry.start import start_telemetry
from rsm_spark.console.settings import ConsoleSettings
from rsm_spark.core.chain import DEFAULT_RSM_ROOT

if TYPE_CHECKING:
    # Loaded when the command runs: what only prints help must not wait for it.
    from rsm_spark.console.process import ConsoleNotice


class ConsoleOptions(ProcessOptions, frozen=True, kw_only=True):
    """All that `rsm console` takes."""

    console: ConsoleSettings = ConsoleSettings()
    rsm_root: Annotated[str, Option("Root of the logs in ZooKeeper.")] = DEFAULT_RSM_ROOT
    audit_file: Annotated[
        str | None,
        Option(
            "File to which is appended who looked into which log, or was refused: JSON lines.",
            metavar="FILE",
        ),
    ] = None
    logs: LoggingOptions = LoggingOptions()
    telemetry: TelemetrySettings = TelemetrySettings()


@process_command("console")
def console(given: ConsoleOptions) -> None:
    """Serve a page that shows the whole cluster: bookies, copies, logs, the doctor's findings, a day of history.

    It asks ZooKeeper, bookies and replicas with the log-ins of the environment, as `rsm status` does, and changes
    nothing.

    Examples:
        rsm console --http-port 8088

        rsm console --http-port 8088 --data-dir /var/lib/rsm-spark/console --principals principals.toml --json

    """
    given.logs.apply()
    start_telemetry(given.telemetry, "rsm-console")
    if given.audit_file is not None:
        open_audit_file(given.audit_file)
    from rsm_spark.console.process import run_console  # noqa: PLC0415 - `--help` needs no server

    def announce(notice: ConsoleNotice) -> None:
        words = f"console of the cluster: {notice.url}, ctrl-C ends it"
        sys.stdout.write((msgspec.json.encode(notice).decode() if given.json else words) + "\n")
        sys.stdout.flush()

    run_console(given.metadata_uri, given.console, given.rsm_root, announce, stall_s=given.stall_s)
