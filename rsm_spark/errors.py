"""Errors of the replicated state machine and of the services on it.

* `RsmError`                     anything raised on purpose by this package
    * `InvalidCommandError`      the command breaks a rule of its machine; retrying cannot help
    * `DomainError`              base of the errors that a service's own commands raise
    * `InvalidDescriptionError`  a machine's description of itself contradicts itself
    * `WriterRefusedError`       a writer's command breaks a rule of writers: it was not applied
    * `NotLeaderError`           this replica does not lead; the command was certainly not applied
    * `OutcomeUnknownError`      the command may or may not have been applied
    * `WrongLogError`            a message came to a replica of another log
    * `ConnectionLostError`      a replica cannot be reached, or broke off; what was sent may have been executed
        * `AccessDeniedError`    a replica refuses this caller: its token is missing or not known, or it may not do this
    * `OverloadedError`          the queues are full; the command was not executed
    * `TooStaleError`            the replica's state is not new enough for the read
    * `NotReadyError`            the replica has no whole state to read now: it installs a snapshot
    * `NoLeaderError`            no replica led within the time limit
    * `LogError`                 the replicated log itself
        * `NoSuchLogError`       there is no log of this name
            * `RenamedLogError`  the log that had it has another one now
            * `PartitionedLogError`  the name is of a partitioned log, and one of its partitions was to be named
        * `LogExistsError`       there is a log of this name already
        * `CorruptLogError`      an entry or the chain is not what its place demands: the replica stops
        * `ForkedLogError`       the entry does not continue this state's prefix hash: another log's history
        * `MachineVersionError` a newer version of the machine has described the log: upgrade this replica
        * `StateDivergedError` the state differs from the leader's at the same revision: the replica stops
        * `MissingLogError`      entries that are needed have been trimmed; names the range
        * `ChainConflictError`   the chain was written by somebody else: this leader is deposed
    * `DamagedContentError`      a ledger does not hold the content that was written to it
    * `NoRoomError`              the disk of a replica has no room for its state
    * `SnapshotError`            a snapshot cannot be written or used
        * `CorruptSnapshotError` its files are not what its manifest says
        * `NoSuchSnapshotError`  there is none, or none of this revision
        * `SnapshotGoneError`    it is not there any more
        * `UnfitTableError`      rows of a table cannot be those of a typed table in the lake
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, dataclass_transform

__all__ = [
    "AccessDeniedError",
    "ChainConflictError",
    "ConnectionLostError",
    "CorruptLogError",
    "CorruptSnapshotError",
    "DamagedContentError",
    "DomainError",
    "ForkedLogError",
    "InvalidCommandError",
    "InvalidDescriptionError",
    "LogError",
    "LogExistsError",
    "MachineVersionError",
    "MissingLogError",
    "NoLeaderError",
    "NoSuchLogError",
    "NoRoomError",
    "NoSuchSnapshotError",
    "NotLeaderError",
    "NotReadyError",
    "OutcomeUnknownError",
    "OverloadedError",
    "PartitionedLogError",
    "RenamedLogError",
    "RsmError",
    "SnapshotError",
    "SnapshotGoneError",
    "StateDivergedError",
    "TooStaleError",
    "UnfitTableError",
    "WriterRefusedError",
    "WrongLogError",
]


class RsmError(Exception):
    """Base of every error that this package raises on purpose."""


class InvalidCommandError(RsmError):
    """The command breaks a rule of its machine; retrying cannot help."""


class WriterRefusedError(RsmError):
    """A writer's command breaks a rule of writers: another checkpoint, a later run, other rows. It was not applied."""


@dataclass_transform(eq_default=False)
class DomainError(RsmError):
    """Base of the errors that the commands of a service raise: their annotations are their fields.

        class InsufficientFunds(DomainError):
            account: str
            missing: int

    `InsufficientFunds("ann", 3)` that a command raises arrives at its client as such, by name and fields. Where the
    client does not know the class it is a plain `DomainError`.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Make the annotations of a class its fields."""
        super().__init_subclass__(**kwargs)
        if cls.__name__ == "InvalidCommandError":
            raise TypeError("InvalidCommandError is what a wrong call is told: give this DomainError another name")
        dataclasses.dataclass(eq=False, repr=False)(cls)

    @classmethod
    def unknown(cls, name: str, fields: dict[str, Any]) -> DomainError:
        """Return an error of a class that this process does not know."""
        error = cls()
        error.__dict__["_unknown"] = name, fields
        return error

    _unknown: ClassVar[Any] = None

    @property
    def error_name(self) -> str:
        """Return the name of its class."""
        return self._unknown[0] if self._unknown else type(self).__name__

    @property
    def error_fields(self) -> dict[str, Any]:
        """Return its fields by name."""
        if self._unknown:
            return dict(self._unknown[1])
        names: list[str] = [one.name for one in dataclasses.fields(self)] if dataclasses.is_dataclass(self) else []
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        """Return name and fields: "InsufficientFunds(account='ann', missing=3)"."""
        return f"{self.error_name}({', '.join(f'{name}={value!r}' for name, value in self.error_fields.items())})"

    __repr__ = __str__


class InvalidDescriptionError(RsmError):
    """A machine's description of itself contradicts itself: a mistake of its author."""


class NotLeaderError(RsmError):
    """The replica asked does not lead; the command was certainly not applied.

    Attributes:
        leader: Address of the leader as far as this replica knows, or None.

    """

    def __init__(self, message: str, *, leader: str | None = None) -> None:
        super().__init__(message)
        self.leader = leader


class OutcomeUnknownError(RsmError):
    """The command may or may not have been applied, and this client cannot learn which."""


class WrongLogError(RsmError):
    """A message came to a replica of another log: an address that was used again."""


class ConnectionLostError(RsmError):
    """A replica cannot be reached, or broke off; what was sent may have been executed."""


class AccessDeniedError(ConnectionLostError):
    """A replica refuses this caller: its token is missing or not known, or it may not do this. Nothing was executed."""


class OverloadedError(RsmError):
    """The queues are full; the command was not executed."""


class TooStaleError(RsmError):
    """The state of the replica asked is not new enough for the read.

    Attributes:
        lag_ms: How old it is in logged time, as far as that replica knows; None = not known.

    """

    def __init__(self, message: str, *, lag_ms: int | None = None) -> None:
        super().__init__(message)
        self.lag_ms = lag_ms


class NotReadyError(RsmError):
    """The replica asked has no whole state to read now: it installs a snapshot."""


class NoLeaderError(RsmError):
    """No replica led within the time limit."""


class DamagedContentError(RsmError):
    """A ledger does not hold the content that was written to it: nothing of it is given out."""


class LogError(RsmError):
    """The replicated log cannot be read or written as asked."""


class NoSuchLogError(LogError):
    """There is no log of this name under this metadata store."""


class RenamedLogError(NoSuchLogError):
    """The log that had this name has another one now.

    Attributes:
        new_name: Name that it was given.

    """

    def __init__(self, message: str, new_name: str) -> None:
        super().__init__(message)
        self.new_name = new_name


class PartitionedLogError(NoSuchLogError):
    """The name is of a partitioned log: what was asked for is done to one of its partitions, which have other names."""


class LogExistsError(LogError):
    """There is a log of this name already; nothing was changed."""


class CorruptLogError(LogError):
    """An entry or the chain is not what its place demands: the replica stops and keeps its evidence."""


class MachineVersionError(LogError):
    """A newer version of the machine has described the log: start the replica with that version."""


class ForkedLogError(LogError):
    """The entry does not continue this state's prefix hash: it belongs to another history."""


class StateDivergedError(LogError):
    """The state differs from the one that the leader logged for the same revision: the replica stops.

    Attributes:
        revision: Of the checkpoint.
        digest: What the leader logged, 16 bytes.
        row_count: What the leader logged.
        own_digest: What this replica has, 16 bytes.

    """

    def __init__(
        self, message: str, *, revision: int = 0, digest: bytes = b"", row_count: int = 0, own_digest: bytes = b""
    ) -> None:
        super().__init__(message)
        self.revision = revision
        self.digest = digest
        self.row_count = row_count
        self.own_digest = own_digest


class MissingLogError(LogError):
    """Entries that are needed have been trimmed.

    Attributes:
        first_revision: First record that is missing.
        last_revision: Last record that is missing, inclusive; None if not known.
        partition: In which partition of a partitioned log; None = of no such log, or not known.

    """

    partition: int | None = None

    def __init__(self, message: str, *, first_revision: int, last_revision: int | None = None) -> None:
        super().__init__(message)
        self.first_revision = first_revision
        self.last_revision = last_revision


class ChainConflictError(LogError):
    """The chain was written by somebody else: this leader is deposed."""


class NoRoomError(RsmError):
    """The disk of a replica has no room for its state. What was confirmed is in the log, and is applied later."""


class SnapshotError(RsmError):
    """A snapshot cannot be written or used."""


class CorruptSnapshotError(SnapshotError):
    """The files of a snapshot are not what its manifest says."""


class NoSuchSnapshotError(SnapshotError):
    """There is no whole snapshot, or none of this revision."""


class SnapshotGoneError(SnapshotError):
    """The snapshot is not there any more: newer ones have taken its place."""


class UnfitTableError(SnapshotError):
    """Rows of a table cannot be those of a typed table in the lake; those of other tables can."""
