"""`rsm log serve`: a gateway of plain logs as a process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from ledger.audit_lines import open_audit_file
from ledger.cluster_options import LoggingOptions, ProcessOptions
from ledger.configuration import process_command
from ledger.options import Option
from ledger.telemetry.settings import TelemetrySettings
from ledger.telemetry.start import start_telemetry
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    # Loaded when the command runs: what only prints help must not wait for it.
    from rsm_spark.gateway.process import GatewayNotice
    from rsm_spark.runtime.settings import ReplicaSettings

SESSION_TIMEOUT_MS = 4_000


class GatewayOptions(ProcessOptions, frozen=True, kw_only=True):
    """All that `rsm log serve` takes."""

    gateway: GatewaySettings = GatewaySettings()
    rsm_root: Annotated[str, Option("Root of the logs in ZooKeeper.")] = DEFAULT_RSM_ROOT
    bookies: Annotated[str, Option("Ensemble, write quorum and ack quorum of new ledgers.", metavar="E/Qw/Qa")] = (
        "2/2/2"
    )
    single_copy: Annotated[bool, Option("Allow an ack quorum of 1. With one disk the log is lost.")] = False
    unsigned: Annotated[
        bool,
        Option("Write logs without a key, also beyond loopback. Whoever reaches a bookie can then forge entries."),
    ] = False
    password_file: Annotated[
        Path | None, Option("Holds the password of the logs' ledgers, in one line.", metavar="FILE")
    ] = None
    log_key: Annotated[
        Path | None,
        Option("Key file of the logs (rsm log key new).", metavar="FILE", variables=("RSM_LOG_KEY",)),
    ] = None
    session_timeout_ms: Annotated[
        int, Option("ZooKeeper gives up a gateway that is silent for this time; then others take its logs.", ge=200)
    ] = SESSION_TIMEOUT_MS
    logs: LoggingOptions = LoggingOptions()
    telemetry: TelemetrySettings = TelemetrySettings()
    audit_file: Annotated[
        str | None, Option("File to which is appended who changes what, one JSON object a line.", metavar="FILE")
    ] = None

    def replica(self) -> ReplicaSettings:
        """Return the settings of the logs.

        Raises:
            UsageError: A value is none, or a file cannot be used.

        """
        from rsm_spark.log.key_file import KeyFile  # noqa: PLC0415 - not every command runs it
        from rsm_spark.runtime.settings import ReplicaSettings  # noqa: PLC0415
        from rsm_spark.server.replica_options import password_of, quorum_of  # noqa: PLC0415

        ensemble_size, write_quorum, ack_quorum = quorum_of(self.bookies)
        return ReplicaSettings(
            rsm_root=self.rsm_root,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            allow_single_copy=self.single_copy,
            allow_unsigned=self.unsigned,
            ledger_password=password_of(self.password_file),
            log_keys=None if self.log_key is None else KeyFile.read(self.log_key),
        )


@process_command("gateway")
def serve(given: GatewayOptions) -> None:
    """Serve plain logs over HTTP and gRPC until ctrl-C or SIGTERM; two or more gateways take over from one another.

    Examples:
        rsm log serve --http-port 8090

        rsm log serve --http-port 8090 --grpc-port 8091

        rsm log serve --http-port 8090 --bookies 3/3/2 --principals principals.toml --json

    """
    given.logs.apply()
    start_telemetry(given.telemetry, "rsm-gateway")
    if given.audit_file is not None:
        open_audit_file(given.audit_file)
    from rsm_spark.gateway.process import run_gateway  # noqa: PLC0415 - `--help` needs no server

    def announce(notice: GatewayNotice) -> None:
        grpc = f", gRPC on {notice.grpc_address}" if notice.grpc_address else ""
        words = f"gateway of logs serves {notice.url}{grpc}, ctrl-C ends it"
        sys.stdout.write((msgspec.json.encode(notice).decode() if given.json else words) + "\n")
        sys.stdout.flush()

    run_gateway(
        given.metadata_uri,
        given.gateway,
        given.replica(),
        announce,
        session_timeout_ms=given.session_timeout_ms,
        stall_s=given.stall_s,
    )
