"""Bugs to plant into what replicas of different versions of a machine do on one log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rsm_spark.core.batching import Composer
from rsm_spark.core.chain import LogChain
from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.leadership_events import Event
from rsm_spark.core.leadership_table import Phase
from rsm_spark.core.machine import RowChange
from rsm_spark.core.migrations import RowMigration
from rsm_spark.core.records import pack
from rsm_spark.core.table_machine import TableMachine
from rsm_spark.core.table_rows import TableRows
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.machine_version import MachineVersion

__all__ = [
    "answers_before_it_is_raised",
    "describes_its_own_version_at_once",
    "fills_rows_as_it_folds",
    "forgets_which_rows_are_migrated",
    "logs_what_only_the_code_knows",
    "lets_an_old_replica_lead",
    "raises_amid_a_ledger",
    "raises_without_asking",
    "replays_a_raise_and_leads",
]


def logs_what_only_the_code_knows(patch: pytest.MonkeyPatch) -> None:
    """A record is written before all can fold it: its own version describes it, the log's does not."""

    def loggable(self: TableMachine, records: Sequence[tuple[int, tuple[Any, ...]]]) -> Any:
        return [(record_type, self._kept(record_type, fields)) for record_type, fields in records]

    patch.setattr(TableMachine, "loggable", loggable)


def describes_its_own_version_at_once(patch: pytest.MonkeyPatch) -> None:
    """The first leader of a new version ends the way back."""

    def begin(self: MachineVersion, composer: Composer, _chain: LogChain | None) -> None:
        self._composer = composer
        if self._context.state.description is not None:
            check_evolution(self._context.state.description, self._own)

    patch.setattr(MachineVersion, "begin", begin)


def raises_without_asking(patch: pytest.MonkeyPatch) -> None:
    async def behind(_self: MachineVersion) -> list[str]:
        return []

    patch.setattr(MachineVersion, "behind", behind)


def forgets_which_rows_are_migrated(patch: pytest.MonkeyPatch) -> None:
    """A migration is applied twice: each leader begins it anew, at rows of the new form too."""
    patch.setattr(RowMigration, "is_due", lambda _self, _table, _revision: True)


def raises_amid_a_ledger(patch: pytest.MonkeyPatch) -> None:
    """The description is logged at once, not with the ledger that begins: who opens that ledger later misses it."""

    def take_event(self: MachineVersion) -> Event | None:
        self.has_work = False
        assert self._composer is not None
        self._composer.description = self._own
        self._composer.describe_wanted = self._composer.checkpoint_wanted = True
        return None

    patch.setattr(MachineVersion, "take_event", take_event)


def answers_before_it_is_raised(patch: pytest.MonkeyPatch) -> None:
    async def confirmed(_self: MachineVersion) -> None:
        return

    patch.setattr(MachineVersion, "_confirmed", confirmed)


def lets_an_old_replica_lead(patch: pytest.MonkeyPatch) -> None:
    """After the raise a replica of before is elected, and goes on as if nothing were new."""

    def begin(self: MachineVersion, composer: Composer, _chain: LogChain | None) -> None:
        self._composer = composer
        if self._context.state.description is not None:
            composer.description = self._context.state.description

    patch.setattr(ReplicaContext, "outdated", "")
    patch.setattr(MachineVersion, "begin", begin)


def replays_a_raise_and_leads(patch: pytest.MonkeyPatch) -> None:
    """It looks at the version before it stands for election, and not again: the raise was in what it replays."""
    outdated = vars(ReplicaContext)["outdated"].fget

    def as_follower(self: ReplicaContext) -> str:
        return "" if self.phase == Phase.RECOVER else str(outdated(self))

    patch.setattr(ReplicaContext, "outdated", property(as_follower))


def fills_rows_as_it_folds(patch: pytest.MonkeyPatch) -> None:
    """Rows become as wide as the code has them, not as the log says: versions differ at the next checkpoint."""
    original = TableMachine.apply

    def apply(self: TableMachine, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        change = original(self, record_type, fields, revision)
        own = self._own.get(record_type)
        if change is None or change.new is None or own is None or len(own.fields) <= len(fields):
            return change
        rows: TableRows = self._tables[change.table]
        row = pack((*fields[len(own.key(own.fields)) :], *(field.default for field in own.fields[len(fields) :])))
        rows.put(change.key, row, revision)
        return change._replace(new=row)

    patch.setattr(TableMachine, "apply", apply)
