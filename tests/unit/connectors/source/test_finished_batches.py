"""Queries with finishedBatches: each batch once, whole, whatever micro-batches and partitions cut the log."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from pyspark.sql.datasource import InputPartition

from connectors.errors import OptionError, StartGoneError
from connectors.source import finished_rows
from connectors.source.batch_reach import LedgerHead, ledgers_behind
from connectors.source.decode import decode_log
from connectors.source.finished_rows import BackLedger, FinishedRows
from connectors.source.logs_source import LogsSource
from connectors.source.options import SourceOptions, parse_options
from connectors.source.plan import LogSpan, MicroBatchLimits
from connectors.source.record_rows import RecordSlice
from connectors.source.tasks import LedgerPartition
from ledger.core.entry_block import EntryBlock
from rsm_spark.core.envelope import Envelope, encode_envelope
from rsm_spark.core.finished_batches import BatchKey
from rsm_spark.core.machine import decode_description
from rsm_spark.core.plain_log import PlainRecord
from rsm_spark.core.records import Record, encode_records
from tests.unit.connectors.source.cluster_in_memory import ClusterInMemory, LogInMemory
from tests.unit.rsm_spark.core.batched_log import BatchedLog

_STEPS = 120


class _Kept:
    """A written log on a cluster in memory."""

    def __init__(self, written: BatchedLog) -> None:
        self.cluster = ClusterInMemory()
        self.log = self.cluster.make_log("clicks")
        self.written = written
        _fill(self.cluster, self.log, written)

    @property
    def shown(self) -> list[bytes]:
        return [payload for _, payload in self.written.shown]

    def read(self, parts: Iterable[InputPartition]) -> Iterator[bytes]:
        return _Tasks(self.cluster).read(parts)


class _Tasks:
    """Tasks that read a cluster in memory."""

    def __init__(self, cluster: ClusterInMemory) -> None:
        self._cluster = cluster

    def read(self, parts: Iterable[InputPartition]) -> Iterator[bytes]:
        """Yield the payloads that tasks make of input partitions."""
        for part in parts:
            assert isinstance(part, LedgerPartition)
            assert part.row_plan is not None
            assert part.behind is not None
            assert part.description is not None
            span = RecordSlice(
                part.log or "", part.ledger_id, part.first_revision, part.end_revision,
                decode_description(part.description),
            )  # fmt: skip
            own = BackLedger(part.ledger_id, part.last_entry_id, part.metadata, part.log_id, part.seals)
            slices = FinishedRows(span, (own, *part.behind), self._blocks).slices
            blocks = self._blocks(own, part.first_entry_id, part.last_entry_id)
            for batch in decode_log(blocks, part.row_plan, span, part.log_id, part.seals, slices):
                for kind, row in zip(batch.column("type").to_pylist(), batch.column("row").to_pylist(), strict=True):
                    if kind == PlainRecord.APPENDED:
                        yield msgspec.msgpack.decode(row)[2]

    def _blocks(self, ledger: BackLedger, first: int, last: int) -> list[EntryBlock]:
        entries = self._cluster.read(ledger.ledger_id, first, last)
        assert len(entries) == last - first + 1
        blocks = (entries[at : at + 3] for at in range(0, len(entries), 3))
        return [EntryBlock(some[0].entry_id, [e.payload for e in some], [e.length for e in some]) for some in blocks]


def _fill(cluster: ClusterInMemory, log: LogInMemory, written: BatchedLog) -> None:
    ledger_id = written.entries[0].ledger_id
    for entry in written.entries:
        if entry.ledger_id != ledger_id:
            log.roll()
            ledger_id = entry.ledger_id
        _append(cluster, log, entry.records)


def _append(cluster: ClusterInMemory, log: LogInMemory, records: list[Record]) -> None:
    fixed = [
        msgspec.structs.replace(one, fields=(log.revision + 1 + at, *one.fields[1:]))
        if one.type == PlainRecord.APPENDED
        else one
        for at, one in enumerate(records)
    ]
    envelope = Envelope(log.log_id, 1, log.revision + 1, log.revision, log.now_ms, len(fixed), log.hash)
    payload = encode_envelope(envelope, encode_records(fixed))
    cluster.append(log.ledgers[-1].ledger_id, payload)
    log.hash = hashlib.sha256(payload).digest()
    log.revision += len(fixed)
    log.now_ms += log.step_ms


def _written(seed: int) -> BatchedLog:
    written = BatchedLog(random.Random(seed))
    for _ in range(_STEPS):
        written.step()
    written.flush()
    return written


def _kept(seed: int) -> _Kept:
    return _Kept(_written(seed))


def _options(*, is_stream: bool = True, **more: str) -> SourceOptions:
    given = {"log": "clicks", "startingOffsets": "earliest", "finishedBatches": "true", "rows": "records", **more}
    return parse_options(given, is_stream=is_stream)


def test_micro_batches_and_partitions_show_each_finished_batch_once_in_order() -> None:
    behind = 0
    for seed in range(8):
        kept = _kept(seed)
        rng = random.Random(seed)
        position: dict[str, Any] | None = None
        seen: list[bytes] = []
        while True:
            # A query that is started anew each time: it has its checkpoint, and nothing else.
            source = LogsSource(_options(minPartitions=str(rng.randint(1, 4))), kept.cluster)
            position = source.bound(is_start=True) if position is None else position
            limits = MicroBatchLimits(offsets_max=rng.randint(1, 60))
            end = source.following(position, limits, None)
            if end == position:
                break
            parts = source.partitions(position, end)
            behind += sum(len(part.behind or ()) for part in parts if isinstance(part, LedgerPartition))
            seen += kept.read(parts)
            position = end
        assert seen == kept.shown
    assert behind > 20, "batches lie across ledgers"


def test_a_batch_query_that_begins_inside_an_entry_shows_what_ends_behind_its_start() -> None:
    kept = _kept(3)
    source = LogsSource(_options(is_stream=False), kept.cluster)
    whole = list(kept.read(source.partitions(source.bound(is_start=True), source.bound(is_start=False))))
    assert whole == kept.shown
    lengths = set()
    for revision in range(1, kept.log.revision, 7):
        more = {"startingOffsets": f'{{"clicks": {revision}}}'}
        source = LogsSource(_options(is_stream=False, **more), kept.cluster)
        seen = list(kept.read(source.partitions(source.bound(is_start=True), source.bound(is_start=False))))
        assert whole[len(whole) - len(seen) :] == seen
        lengths.add(len(seen))
    assert len(lengths) > 20


def _read_or_refused(kept: _Kept, parts: Iterable[InputPartition]) -> tuple[list[bytes], str]:
    try:
        return list(kept.read(parts)), ""
    except StartGoneError as error:
        return [], str(error)


def test_rows_that_were_trimmed_before_their_batch_ended_are_told_with_the_batch() -> None:
    told = 0
    for seed in range(8):
        kept = _kept(seed)
        kept.log.trim(len(kept.log.ledgers) // 2)
        source = LogsSource(_options(), kept.cluster)
        start = source.bound(is_start=True)
        parts = source.partitions(start, source.following(start, MicroBatchLimits(), None))
        seen, said = _read_or_refused(kept, parts)
        told += bool(said)
        assert ("of writer" in said and "they were trimmed" in said) or seen == kept.shown[
            len(kept.shown) - len(seen) :
        ]
    assert told


def test_a_search_reads_small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_rows, "_WINDOW_ENTRIES_MAX", 2)
    monkeypatch.setattr(finished_rows, "_GAP_ENTRIES_MAX", 1)
    kept = _kept(5)
    source = LogsSource(_options(minPartitions="9"), kept.cluster)
    start = source.bound(is_start=True)
    assert list(kept.read(source.partitions(start, source.end()))) == kept.shown


def test_each_partition_shows_its_finished_batches_by_itself() -> None:
    cluster = ClusterInMemory()
    logs = cluster.make_partitioned("clicks", 3)
    written = [_written(20 + number) for number in range(len(logs))]
    for log, one in zip(logs, written, strict=True):
        _fill(cluster, log, one)
    position: dict[str, Any] | None = None
    seen: dict[str, list[bytes]] = {log.name: [] for log in logs}
    while True:
        source = LogsSource(_options(minPartitions="4"), cluster)
        position = source.bound(is_start=True) if position is None else position
        end = source.following(position, MicroBatchLimits(offsets_max=100), None)
        if end == position:
            break
        for part in source.partitions(position, end):
            assert isinstance(part, LedgerPartition)
            seen[part.log or ""] += _Tasks(cluster).read([part])
        position = end
    assert list(seen.values()) == [[payload for _, payload in one.shown] for one in written]


def test_logs_of_services_are_refused_by_name() -> None:
    cluster = ClusterInMemory()
    log = cluster.make_log("clicks")
    log.fill(3)
    source = LogsSource(_options(), cluster)
    start = source.bound(is_start=True)
    with pytest.raises(OptionError, match="clicks is the log of a service: only a log to which as=log appends"):
        source.partitions(start, source.end())
    for name, more in (("rows=records", {"rows": "raw"}), ("pushdown", {"pushdown": "true"})):
        with pytest.raises(OptionError, match=name):
            _options(is_stream=False, **more)


_A, _B = BatchKey("a", "c", 0), BatchKey("b", "c", 4)


@pytest.mark.parametrize(
    ("heads", "found"),
    [
        ([{}, {}, {}, {}], []),
        ([{}, {}, {_A: 5}, {_A: 5}], [1]),
        ([{}, {_A: 5}, {_A: 9}, {_A: 9}], [1, 0]),
        ([{_A: 1}, {_A: 5}, {_A: 9}, {_A: 9}], [1, 0]),
        ([{_B: 2}, {_B: 2}, {_B: 2, _A: 3}, {_B: 2, _A: 3}], [1]),
        ([{_B: 2}, {_B: 2}, {_B: 2}, {_B: 2}], []),
        ([{}, None, {_A: 3}, {_A: 3}], [1, 0]),
        ([{}, {}, {_A: 3}, None], [2, 1]),
        ([{}, {_A: 1}, {_A: 0}, {_A: 0}], []),
    ],
)
def test_only_ledgers_with_rows_of_open_batches_are_looked_into(
    heads: list[dict[BatchKey, int] | None], found: list[int]
) -> None:
    spans = [LogSpan(place, 1 + 10 * place, 4, 10 + 10 * place, 100) for place in range(len(heads))]

    def head_of(span: LogSpan) -> LedgerHead | None:
        head = heads[span.ledger_id]
        return None if head is None else LedgerHead(head, is_first=True)

    assert [span.ledger_id for span in ledgers_behind(spans, len(spans) - 1, head_of)] == found


def test_a_ledger_that_began_with_what_another_left_over_is_looked_into() -> None:
    spans = [LogSpan(place, 1 + 10 * place, 4, 10 + 10 * place, 100) for place in range(3)]
    heads = [LedgerHead({}, is_first=True), LedgerHead({_A: 3}, is_first=False), LedgerHead({_A: 3}, is_first=True)]
    found = ledgers_behind(spans, 2, lambda span: heads[span.ledger_id])
    assert [span.ledger_id for span in found] == [1, 0]
