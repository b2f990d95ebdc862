"""Logs and plain ledgers in memory: what `SourceAccess` sees of a cluster, for tests without sockets."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from connectors.source.decode import StoredEntry
from connectors.source.look import Confirmed
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import NoSuchLedgerError
from rsm_spark.core.chain import ChainLedger, LogChain
from rsm_spark.core.envelope import Envelope, encode_envelope, root_hash
from rsm_spark.core.partition_layout import PartitionLayout, new_layout, partition_log
from rsm_spark.core.records import Record, encode_records
from rsm_spark.core.seal import KeyRing
from rsm_spark.errors import NoSuchLogError


class ClusterInMemory:
    """Implements `connectors.source.task_metadata.SourceAccess`; ids of ledgers are never used again."""

    def __init__(self) -> None:
        self.chains: dict[str, LogChain] = {}
        self.entries: dict[int, list[StoredEntry]] = {}
        self.is_closed: dict[int, bool] = {}
        self.reads = 0
        self.layouts: dict[str, PartitionLayout] = {}
        self.renamed: dict[str, str] = {}
        self.keys: KeyRing | None = None
        self._next_ledger_id = 3

    def make_log(self, name: str, log_id: bytes | None = None) -> LogInMemory:
        log = LogInMemory(self, name, log_id or hashlib.sha256(name.encode()).digest()[:16])
        log.roll()
        return log

    def make_partitioned(self, name: str, count: int) -> list[LogInMemory]:
        logs = [self.make_log(partition_log(name, number)) for number in range(count)]
        self.layouts[name] = new_layout("a" * 32, [log.log_id.hex() for log in logs])
        return logs

    def grow(self, name: str, logs: list[LogInMemory], count: int) -> None:
        """Close all partitions and add some, as a writer does; `logs` gets the new ones."""
        ends = [log.revision for log in logs]
        for log in logs:
            log.roll()
        added = [self.make_log(partition_log(name, number)) for number in range(len(logs), count)]
        logs += added
        self.layouts[name] = self.layouts[name].grown([log.log_id.hex() for log in added], ends)

    def make_ledger(self) -> int:
        ledger_id = self._next_ledger_id
        self._next_ledger_id += 1
        self.entries[ledger_id], self.is_closed[ledger_id] = [], False
        return ledger_id

    def append(self, ledger_id: int, payload: bytes) -> None:
        entries = self.entries[ledger_id]
        before = entries[-1].length if entries else 0
        entries.append(StoredEntry(len(entries), before + len(payload), payload))

    def delete(self, ledger_id: int) -> None:
        del self.entries[ledger_id], self.is_closed[ledger_id]

    def logs(self) -> list[str]:
        return sorted(self.chains)

    def layout(self, log: str) -> PartitionLayout | None:
        return self.layouts.get(log)

    def partitioned_logs(self) -> list[str]:
        return sorted(self.layouts)

    def chain(self, log: str) -> LogChain:
        if log not in self.chains:
            raise NoSuchLogError(f"there is no log {log}")
        return self.chains[log]

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        if ledger_id not in self.entries:
            raise NoSuchLedgerError(f"ledger {ledger_id}: no such ledger")
        entries, end = self.entries[ledger_id], dict[str, Any]()
        if self.is_closed[ledger_id]:
            end = {"last_entry_id": len(entries) - 1, "length": entries[-1].length if entries else 0}
        state = LedgerState.CLOSED if self.is_closed[ledger_id] else LedgerState.OPEN
        return LedgerMetadata(
            QuorumConfig(2, 2, 2), state, (Segment(0, ("a:1", "b:2")),), DigestType.CRC32C, b"secret", **end
        )

    def confirmed(self, ledger_id: int) -> Confirmed:
        last = len(self.entries[ledger_id]) - 1
        return Confirmed(last, last)

    def read(self, ledger_id: int, first_entry_id: int, last_entry_id: int) -> list[StoredEntry]:
        self.reads += 1
        return self.entries[ledger_id][first_entry_id : last_entry_id + 1]

    def log_keys(self) -> KeyRing | None:
        return self.keys

    def former_names(self, log: str) -> tuple[str, list[str]]:
        return self.chain(log).log_id, sorted(old for old, new in self.renamed.items() if new == log)

    def present_name(self, log: str) -> str | None:
        return self.renamed.get(log)

    def addresses(self, bookie_ids: frozenset[str]) -> dict[str, tuple[str, int]]:
        return dict.fromkeys(sorted(bookie_ids), ("127.0.0.1", 1))


class LogInMemory:
    """A log as a leader writes it; an entry is logged `step_ms` after the one before."""

    def __init__(self, cluster: ClusterInMemory, name: str, log_id: bytes) -> None:
        self.name = name
        self.log_id = log_id
        self.revision = 0
        self.now_ms = 1_000
        self.step_ms = 10
        self.ledgers: list[ChainLedger] = []
        self.hash = root_hash(log_id)
        self._cluster = cluster

    def roll(self) -> int:
        if self.ledgers:
            self._cluster.is_closed[self.ledgers[-1].ledger_id] = True
        ledger_id = self._cluster.make_ledger()
        self.ledgers.append(ChainLedger(ledger_id, 0, 1, self.revision + 1))
        self._write()
        return ledger_id

    def _write(self) -> None:
        self._cluster.chains[self.name] = LogChain(self.log_id.hex(), ledgers=tuple(self.ledgers))

    def fill(self, entry_count: int, records_per_entry: int = 10) -> None:
        for _ in range(entry_count):
            records = [Record(18, None, ("x",))] * records_per_entry
            envelope = Envelope(
                self.log_id, 1, self.revision + 1, self.revision, self.now_ms, records_per_entry, self.hash
            )
            payload = encode_envelope(envelope, encode_records(records))
            self._cluster.append(self.ledgers[-1].ledger_id, payload)
            self.hash = hashlib.sha256(payload).digest()
            self.revision += records_per_entry
            self.now_ms += self.step_ms

    def copy(self, index: int) -> None:
        """Have a copy take the place of a closed ledger, which is deleted."""
        ledger = self.ledgers[index]
        copied = self._cluster.make_ledger()
        self._cluster.entries[copied] = self._cluster.entries[ledger.ledger_id]
        self._cluster.is_closed[copied] = True
        self._cluster.delete(ledger.ledger_id)
        self.ledgers[index] = msgspec.structs.replace(ledger, ledger_id=copied, copy_of=(ledger.ledger_id,))
        self._write()

    def trim(self, ledger_count: int) -> None:
        for ledger in self.ledgers[:ledger_count]:
            self._cluster.delete(ledger.ledger_id)
        del self.ledgers[:ledger_count]
        self._write()

    def delete(self) -> None:
        self.trim(len(self.ledgers))
        del self._cluster.chains[self.name]
