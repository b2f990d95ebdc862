"""Errors of the connectors.

* `ConnectorError`            anything raised on purpose by this package
    * `OptionError`           an option of the source is unknown, missing or has a value that it cannot have
    * `SparkOffsetError`      an offset (from a checkpoint or from `startingOffsets`) does not fit this source
    * `StartGoneError`        what comes next was trimmed, deleted or made anew; names the range and the choices
    * `DeltaSinkError`        a follower table cannot be written as asked
        * `SinkConflictError` other writers kept committing to the table until the time was up
        * `SinkGapError`      the stream goes on after the table's position: records are missing in between
        * `ForeignTableError` the table at this place does not follow this log
        * `FollowerLagError`  a follower table does not hold a revision in time; names what it holds
    * `BadRowError`           a row of a frame cannot be written; names row and column
    * `TailTooLongError`      a state lies further behind its snapshot than the driver may fold
    * `SessionSetupError`     a Spark session cannot be started here
"""

from __future__ import annotations

__all__ = [
    "BadRowError",
    "ConnectorError",
    "DeltaSinkError",
    "FollowerLagError",
    "ForeignTableError",
    "OptionError",
    "SessionSetupError",
    "SinkConflictError",
    "SinkGapError",
    "SparkOffsetError",
    "StartGoneError",
    "TailTooLongError",
]


class ConnectorError(Exception):
    """Base of every error that this package raises on purpose."""


class OptionError(ConnectorError):
    """An option of the source is unknown, missing or has a value that it cannot have."""


class SparkOffsetError(ConnectorError):
    """An offset does not fit this source."""


class StartGoneError(ConnectorError):
    """Error for a next record that was trimmed, deleted or made anew; the message names the range and the choices."""


class DeltaSinkError(ConnectorError):
    """A follower table cannot be written as asked."""


class SinkConflictError(DeltaSinkError):
    """Other writers kept committing to the table until the time was up."""


class SinkGapError(DeltaSinkError):
    """The stream goes on after the table's position: records are missing in between."""


class ForeignTableError(DeltaSinkError):
    """The table at this place does not follow this log."""


class FollowerLagError(DeltaSinkError):
    """A follower table does not hold a revision in time.

    Attributes:
        revision: What it holds; None = there is no table.

    """

    def __init__(self, message: str, *, revision: int | None) -> None:
        super().__init__(message)
        self.revision = revision


class BadRowError(ConnectorError):
    """A row of a frame cannot be written; the message names row and column."""


class SessionSetupError(ConnectorError):
    """A Spark session cannot be started here."""


class TailTooLongError(ConnectorError):
    """A state lies further behind its snapshot than the driver may fold; the message says what to do."""
