"""A machine that keeps its own state on disk, with the place in the log that it is of. Pure.

The kernel folds records into such a machine as into any other, and tells it when all that was folded is confirmed: only
then may the disk know of it. See docs/decisions/0024-a-machine-may-keep-its-own-state.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from rsm_spark.core.machine import Row, StateMachine
from rsm_spark.core.position import LogPosition


class StateMark(msgspec.Struct, frozen=True):
    """Place of a kept state in its log, and what the kernel needs to go on from there.

    Attributes:
        log_id: 32 hex digits.
        revision: Of the last record folded.
        prefix_hash: Hash after the last entry folded.
        leader_epoch: Of that entry.
        logged_ms: Its logged time.
        is_sealed: See `StateTip`.
        ledger_id: Of that entry; -1 = none was folded.
        entry_id: The same.
        digest: Of all rows, the kernel's included; 16 bytes.
        row_count: Of all rows.
        format_level: See `ReplicatedState`.
        checkpoint_revision: The same.
        description: The machine's, as the log has it; empty before.

    """

    log_id: str
    revision: int
    prefix_hash: bytes
    leader_epoch: int
    logged_ms: int
    is_sealed: bool
    ledger_id: int
    entry_id: int
    digest: bytes
    row_count: int
    format_level: int
    checkpoint_revision: int
    description: bytes

    @property
    def position(self) -> LogPosition | None:
        """Last entry folded, or None."""
        return LogPosition(self.ledger_id, self.entry_id) if self.entry_id >= 0 else None


class KernelChange(NamedTuple):
    """A row of the kernel's own tables that has changed. None = it is gone."""

    table: str
    key: bytes
    row: Row | None


@runtime_checkable
class DurableMachine(StateMachine, Protocol):
    """A machine that keeps its rows, and the kernel's, on disk. Optional.

    What was folded since the last `commit` is seen by `decide` and by nobody else: `rows` are those of that commit.
    `restore` makes a state without a mark, until the next commit.
    """

    def resume(self) -> StateMark | None:
        """Go back to the last commit; return its mark, None if there is none."""
        ...

    def kernel_rows(self) -> Iterator[Row]:
        """Iterate over the kernel's rows as of the last commit."""
        ...

    def commit(self, mark: StateMark, changes: Sequence[KernelChange]) -> None:
        """Keep all that was folded, the kernel's changed rows, and the mark, in one step.

        Raises:
            OSError: The disk failed; the replica stops.

        """
        ...
