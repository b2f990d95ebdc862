"""Options of `run` of every process that is a replica, beside the settings of the replica itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from ledger.audit_lines import open_audit_file
from ledger.cluster_options import LoggingOptions, ProcessOptions
from ledger.errors import UsageError
from ledger.options import Option
from ledger.private_files import refuse_loose
from ledger.telemetry.settings import TelemetrySettings
from rsm_spark.log.key_file import KeyFile
from rsm_spark.object_stores.storage_options import StorageFile
from rsm_spark.server.replica_server import StoreSettings
from rsm_spark.server.serve import SESSION_TIMEOUT_MS
from rsm_spark.snapshots.manifest import LakeStore
from rsm_spark.snapshots.opening import lake_snapshots

_Settings = TypeVar("_Settings", bound=StoreSettings)


class ReplicaOptions(ProcessOptions, frozen=True, kw_only=True):
    """Options whose values are looked up or read before they are settings."""

    bookies: Annotated[str, Option("Ensemble, write quorum and ack quorum of the log.", metavar="E/Qw/Qa")] = "2/2/2"
    lake: Annotated[
        str | None, Option("Folder or URI of snapshots: written to it, and booted from.", metavar="PATH")
    ] = None
    storage_options_file: StorageFile = None
    password_file: Annotated[
        Path | None, Option("Holds the password of the log's ledgers, in one line.", metavar="FILE")
    ] = None
    log_key: Annotated[
        Path | None,
        Option(
            "Key file of the log (rsm log key new): entries are sealed, seals are checked.",
            metavar="FILE",
            variables=("RSM_LOG_KEY",),
        ),
    ] = None
    session_timeout_ms: Annotated[int, Option("ZooKeeper gives up a leader that is silent for this time.", ge=200)] = (
        SESSION_TIMEOUT_MS
    )
    logs: LoggingOptions = LoggingOptions()
    telemetry: TelemetrySettings = TelemetrySettings()
    audit_file: Annotated[
        str | None, Option("File to which is appended who changes what, one JSON object a line.", metavar="FILE")
    ] = None

    def begin(self) -> None:
        """Send the process's lines where they belong, before anything else is said.

        Raises:
            UsageError: There is no such level or format, or the file of the audit cannot be written.

        """
        self.logs.apply()
        if self.audit_file is not None:
            open_audit_file(self.audit_file)

    def complete(self, settings: _Settings) -> _Settings:
        """Return the settings with what these options say of the replica.

        Raises:
            UsageError: A value is none, or a file cannot be used.

        """
        ensemble_size, write_quorum, ack_quorum = quorum_of(self.bookies)
        replica = msgspec.structs.replace(
            settings.replica,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            ledger_password=password_of(self.password_file),
            log_keys=None if self.log_key is None else KeyFile.read(self.log_key),
        )
        return msgspec.structs.replace(settings, replica=replica)

    def lake_of(self, log: str) -> LakeStore | None:
        """Return the snapshots of a log in the lake; None if none is named.

        Raises:
            UsageError: The file of options cannot be used, or the lake's address holds a secret.

        """
        return None if self.lake is None else lake_snapshots(self.lake, log, self.storage_options_file)


def quorum_of(text: str) -> tuple[int, int, int]:
    """Read ensemble, write quorum and ack quorum.

    Raises:
        UsageError: They are none.

    """
    parts = text.split("/")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise UsageError(f"--bookies {text!r}: expected ensemble/write quorum/ack quorum, for example 3/3/2")
    return int(parts[0]), int(parts[1]), int(parts[2])


def password_of(path: Path | None) -> bytes:
    """Read the ledgers' password; what the file holds is told nobody."""
    if path is None:
        return b""
    refuse_loose(path, "--password-file")
    try:
        password = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise UsageError(f"--password-file {path}: {error.strerror}") from None
    if not password or b"\n" in password:
        raise UsageError(f"--password-file {path}: expected one line")
    return password
