"""A map driven as a leader drives it: decide, then apply what was decided; time passes when the test says so."""

from __future__ import annotations

from typing import Any

from rsm_spark.core.digest import StateDigest, row_term, table_prefix
from rsm_spark.core.machine import RowChange
from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine

__all__ = ["DrivenMap"]


class DrivenMap:
    """The machine, its log in memory, its digest.

    Attributes:
        log: (type, fields) of every record; its index + 1 is its revision.
        ends: Of every record: the revision of the last one of its command; of what time did: its own.
        now_ms: Logged time.
        promoted_ms: Logged time at which the present leader began.

    """

    def __init__(self) -> None:
        self.machine = MapMachine()
        self.log: list[tuple[int, tuple[Any, ...]]] = []
        self.ends: list[int] = []
        self.digest = StateDigest()
        self.changes: list[RowChange] = []
        self.now_ms = 1_000
        self.promoted_ms = 0

    @property
    def revision(self) -> int:
        return len(self.log)

    def run(self, command: Any) -> m.MapReply:
        text = command if isinstance(command, bytes) else m.encode(command)
        before = self.digest_of_rows() if len(self.machine) < 50 else None
        decision = self.machine.decide(text, self.revision + 1, self.now_ms)
        assert before is None or before == self.digest_of_rows(), "deciding changed the state"
        assert len(decision.reply) <= 4096
        self._apply(decision.records)
        self.ends += [self.revision] * len(decision.records)
        return m.decode_reply(decision.reply)

    def ask(self, query: Any) -> m.MapResult:
        text = query if isinstance(query, bytes) else m.encode(query)
        return m.decode_result(self.machine.query(text, self.revision))

    def get(self, key: bytes) -> bytes | None:
        found = self.ask(m.Get(key))
        return found.value if isinstance(found, m.Found) else None

    def pass_time(self, ms: int, *, limit: int = 1_000) -> int:
        """Let time pass, log what is due; return how many entries that took."""
        self.now_ms += ms
        entries = 0
        while records := self.machine.due(self.now_ms, self.promoted_ms, limit):
            assert len(records) <= limit
            self._apply(records)
            self.ends += range(len(self.ends) + 1, self.revision + 1)
            entries += 1
        next_ms = self.machine.next_due_ms(self.promoted_ms)
        assert next_ms is None or next_ms > self.now_ms
        return entries

    def fail_over(self) -> None:
        """A new leader begins, with the state as a snapshot has it."""
        self.promoted_ms = self.now_ms
        machine = MapMachine()
        machine.restore(self.machine.rows())
        self.machine = machine

    def digest_of_rows(self) -> int:
        terms = sum(row_term(table_prefix(row.table), row.key, row.row) for row in self.machine.rows())
        return terms % (1 << 128)

    def replayed(self) -> MapMachine:
        """Return a machine that has folded the whole log."""
        machine = MapMachine()
        for revision, (record_type, fields) in enumerate(self.log, start=1):
            machine.apply(record_type, fields, revision)
        return machine

    def _apply(self, records: Any) -> None:
        for record_type, fields in records:
            self.log.append((record_type, fields))
            change = self.machine.apply(record_type, fields, self.revision)
            self.digest.replace(*change)
            self.changes.append(change)
