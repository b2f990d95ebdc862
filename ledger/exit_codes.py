"""Exit codes of commands: one number for each kind of error, so that a script need not read the words.

An error has the code of the nearest class above it that the table names. Classes are named, not imported: `rsm --help`
loads no service, and this package knows nothing of those above it.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Kind of what kept a command from doing what it was asked for."""

    OTHER = 1
    """None of the others: what was found is bad, or cannot go on as it is."""
    USAGE = 2
    """It was asked wrongly; the same words never succeed. What Typer finds wrong ends with it too."""
    NOT_FOUND = 4
    """There is no such log, key, ledger, task, or it is not there any more."""
    REFUSED = 5
    """The caller may not do this, or is not let in."""
    UNAVAILABLE = 6
    """Nobody who could do it answers in time, or a connection broke off. It may be tried again."""
    CONFLICT = 7
    """It exists already, is not as expected, or somebody else was first."""


def exit_code(error: BaseException) -> ExitCode:
    """Return the code with which a command ends that ended in this error."""
    for kind in type(error).__mro__:
        code = CODES.get(f"{kind.__module__}.{kind.__qualname__}")
        if code is not None:
            return code
    return ExitCode.OTHER


_BY_CODE: dict[ExitCode, tuple[str, ...]] = {
    ExitCode.USAGE: (
        "ledger.errors.UsageError",
        "rsm_spark.errors.InvalidCommandError",
    ),
    ExitCode.NOT_FOUND: (
        "broker.client.errors.EventsGoneError",
        "broker.client.errors.NotFoundError",
        "ledger.dev.errors.NoClusterError",
        "ledger.errors.NoNodeError",
        "ledger.errors.NoSuchClusterError",
        "ledger.errors.NoSuchEntryError",
        "ledger.errors.NoSuchLedgerError",
        "rsm_spark.backup.manifest.NoSuchBackupError",
        "rsm_spark.errors.MissingLogError",
        "rsm_spark.errors.NoSuchLogError",
        "rsm_spark.errors.NoSuchSnapshotError",
        "rsm_spark.errors.SnapshotGoneError",
        "rsm_spark.files.errors.NoSuchFileError",
        "rsm_spark.log.consumers.NoSuchConsumerError",
    ),
    ExitCode.REFUSED: (
        "broker.client.errors.NotAllowedError",
        "ledger.errors.LoginError",
        "ledger.errors.MetadataDeniedError",
        "ledger.errors.TlsError",
        "ledger.errors.WrongPasswordError",
        "rsm_spark.core.admission.LedgerPasswordError",
        "rsm_spark.core.producers.ForeignProducerError",
        "rsm_spark.errors.AccessDeniedError",
    ),
    ExitCode.UNAVAILABLE: (
        "broker.client.errors.BrokerUnavailableError",
        "broker.client.errors.QueueFullError",
        "broker.client.errors.WaitTimeoutError",
        "ledger.dev.errors.NoAnswerError",
        "ledger.errors.MetadataSessionLostError",
        "ledger.errors.MetadataUnavailableError",
        "ledger.errors.RetryableError",
        "rsm_spark.errors.ConnectionLostError",
        "rsm_spark.errors.NoLeaderError",
        "rsm_spark.errors.NotLeaderError",
        "rsm_spark.errors.NotReadyError",
        "rsm_spark.errors.OutcomeUnknownError",
        "rsm_spark.errors.OverloadedError",
        "rsm_spark.errors.TooStaleError",
        "rsm_spark.gateway_client.errors.GatewayUnavailableError",
        "rsm_spark.sql.errors.SqlAbortedError",
    ),
    ExitCode.CONFLICT: (
        "broker.client.errors.SlotTakenError",
        "broker.client.errors.TransactionOverError",
        "ledger.dev.errors.ClusterBusyError",
        "ledger.dev.errors.ClusterTakenError",
        "ledger.dev.errors.PortTakenError",
        "ledger.errors.BadVersionError",
        "ledger.errors.FencedError",
        "ledger.errors.LedgerClosedError",
        "ledger.errors.LedgerExistsError",
        "ledger.errors.NodeExistsError",
        "rsm_spark.core.plain_log.LogEndedError",
        "rsm_spark.errors.ChainConflictError",
        "rsm_spark.errors.LogExistsError",
        "rsm_spark.files.errors.FileError",
        "rsm_spark.log.consumers.ConsumerTakenError",
        "rsm_spark.log.reader_lock.ReaderLockError",
        "rsm_spark.sql.errors.SqlConflictError",
    ),
}

CODES: dict[str, ExitCode] = {name: code for code, names in _BY_CODE.items() for name in names}
"""The code of each class that has one of its own, by module and name."""
