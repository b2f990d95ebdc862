"""Results of the map's clients, and the errors that only the map knows.

* `RsmError`
    * `LeaseLostError`     a lease that was held has ended
    * `ScanExpiredError`   a scan of many pages took longer than the map remembers what was overwritten
"""

from __future__ import annotations

from typing import NamedTuple

from rsm_spark.errors import RsmError
from rsm_spark.map import messages as m


class LeaseLostError(RsmError):
    """A lease that was held has ended, and its keys are gone: nobody kept it for its time."""


class ScanExpiredError(RsmError):
    """A scan of many pages cannot go on: the replica asked does not remember the map at its revision (any more).

    Attributes:
        revision: Of the scan.
        next_start: Key of the first row that was not given: a new scan may begin there, at a newer revision.

    """

    def __init__(self, message: str, *, revision: int, next_start: bytes) -> None:
        super().__init__(message)
        self.revision = revision
        self.next_start = next_start


class MapValue(NamedTuple):
    """Value and numbers of a key; see `rsm_spark.map.queries.KeyValue`."""

    value: bytes
    revision: int
    create_revision: int = 0
    version: int = 0


class CompareResult(NamedTuple):
    """Result of a compare-and-set.

    Attributes:
        succeeded: Whether the key was as expected, and was written.
        revision: Mod revision of the key after it: of this write, or of what was found instead; 0 = no such key.

    """

    succeeded: bool
    revision: int


class IncrementResult(NamedTuple):
    """The integer that a key holds now, and the revision that wrote it."""

    value: int
    revision: int


class RemovedKeys(NamedTuple):
    """Number of removed keys, and the revision of the last of them; 0 if there were none."""

    key_count: int
    revision: int


class TransactionResult(NamedTuple):
    """Result of a transaction.

    Attributes:
        succeeded: All comparisons held: `then` was done, else `orelse`.
        results: Of each operation that was done, in order: `Written`, `NotFound`, `Removed`, `Incremented`, `Seen`.
        revision: Of the map right after it.

    """

    succeeded: bool
    results: list[m.OperationResult]
    revision: int


class LeaseState(NamedTuple):
    """A lease.

    Attributes:
        lease: Its number.
        ttl_ms: It ends when nobody has kept it for so long.
        since_ms: Logged time (ms since 1970 by the leaders' clocks) at which it was granted or kept last. Its time
            begins anew with each new leader, too.
        key_count: Keys attached to it.

    """

    lease: int
    ttl_ms: int
    since_ms: int
    key_count: int


class MapPage(NamedTuple):
    """Rows of a scan, all as of one revision.

    Attributes:
        rows: Ascending by key.
        revision: Of the state that they show.
        next_start: Start of the next page; None = there is none.

    """

    rows: list[m.KeyValue]
    revision: int
    next_start: bytes | None
