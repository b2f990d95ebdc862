from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.source import raw_rows
from connectors.source.entry_bounds import EntryBounds, Interval
from connectors.source.link import LogLink
from connectors.source.options import parse_options
from connectors.source.raw_rows import raw_batches
from connectors.source.row_plan import RowPlan, row_plan
from ledger.core.entry_block import EntryBlock
from rsm_spark.errors import CorruptLogError, ForkedLogError
from tests.unit.connectors.source.written import LOG_ID, block_of, payloads_of, plan_of, put, read_log

RAW = plan_of(rows="raw")


def ledger_plan(**options: str) -> RowPlan:
    return row_plan(parse_options({"ledgers": "9"} | options, is_stream=False))


def read_ledger(block: EntryBlock, plan: RowPlan, bounds: EntryBounds | None = None) -> list[tuple[Any, ...]]:
    batches = raw_batches([block], plan, ledger_id=9, bounds=bounds)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_entries_of_a_log_are_rows_with_what_their_envelopes_say() -> None:
    payloads = payloads_of([[], [put(b"a", b"b")], []])
    rows = read_log(payloads, RAW)
    assert [row["revision"] for row in rows] == [1, 1, 2]
    assert [row["record_count"] for row in rows] == [0, 1, 0]
    assert [row["leader_epoch"] for row in rows] == [5, 5, 5]
    assert [row["logged_at"].timestamp() for row in rows] == [1.0, 1.001, 1.002]
    assert [row["payload"] for row in rows] == payloads


def test_a_plain_ledger_is_read_as_it_is() -> None:
    block = EntryBlock(4, [b"abc", b""], [3, 3])
    assert read_ledger(block, ledger_plan()) == [
        (None, 9, 4, 3, None, None, None, None, b"abc"),
        (None, 9, 5, 3, None, None, None, None, b""),
    ]
    assert read_ledger(block, ledger_plan(columns="length, entry_id")) == [(3, 4), (3, 5)]
    assert read_ledger(block, ledger_plan(), EntryBounds(entry_id=Interval(5, 9)))[0][2] == 5


def test_a_plain_ledger_has_the_columns_of_kafka_too() -> None:
    block = EntryBlock(4, [b"abc"], [3])
    assert read_ledger(block, ledger_plan(rows="kafka")) == [(None, b"abc", "ledgers", 9, 4, None, -1)]


def test_batches_are_bounded_by_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [EntryBlock(at, [b"x"] * 2, [1] * 2) for at in range(0, 10, 2)]

    def sizes() -> list[int]:
        return [batch.num_rows for batch in raw_batches(blocks, ledger_plan(), ledger_id=9)]

    monkeypatch.setattr(raw_rows, "BATCH_ROWS_MAX", 4)
    assert sizes() == [4, 4, 2]
    monkeypatch.setattr(raw_rows, "BATCH_BYTES_MAX", 2)
    assert sizes() == [2] * 5


def test_an_entry_of_another_log_is_refused() -> None:
    payloads = payloads_of([[put(b"a", b"b")]])
    with pytest.raises(CorruptLogError, match="ledger 3 entry 0 belongs to log"):
        LogLink("orders", bytes(16), 3).follow(block_of(payloads))
    with pytest.raises(CorruptLogError, match="ledger 3 entry 0: entry begins with"):
        LogLink("orders", bytes(16), 3).follow(block_of([bytes(96)]))
    with pytest.raises(CorruptLogError, match="ledger 3 entry 7: entry has format 3"):
        LogLink("orders", LOG_ID, 3).follow(block_of([payloads[0][:4] + b"\x03" + payloads[0][5:]], 7))


@pytest.mark.parametrize("cuts", [[0, 4], [0, 2, 4], [0, 1, 2, 3, 4]])
def test_an_entry_that_does_not_continue_the_one_before_is_refused_wherever_blocks_end(cuts: list[int]) -> None:
    link = LogLink("orders", LOG_ID, 3)
    payloads = payloads_of([[put(b"a", b"%d" % i)] for i in range(4)])
    forked = payloads_of([[put(b"a", b"%d" % (i if i != 1 else 9))] for i in range(4)])
    mixed = [payloads[0], payloads[1], forked[2], forked[3]]
    with pytest.raises(ForkedLogError, match="entry 2 does not continue"):  # noqa: PT012 - any of the blocks
        for first, last in zip(cuts, cuts[1:], strict=False):
            link.follow(block_of(mixed[first:last], first))


def test_a_gap_of_revisions_is_refused() -> None:
    first, second = payloads_of([[put(b"a", b"b")], [put(b"c", b"d")]])
    link = LogLink("orders", LOG_ID, 3)
    jumped = second[:32] + (9).to_bytes(8, "big") + second[40:]
    with pytest.raises(CorruptLogError, match="entry 1 begins with record 9, 2 is next"):
        link.follow(block_of([first, jumped]))


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=12), data=st.data())
def test_what_a_block_says_does_not_depend_on_where_it_ends(counts: list[int], data: st.DataObject) -> None:
    payloads = payloads_of([[put(b"k", b"v")] * count for count in counts])
    whole = LogLink("orders", LOG_ID, 3).follow(block_of(payloads))
    assert whole.hashes == [hashlib.sha256(payload).digest() for payload in payloads]
    link, at, firsts = LogLink("orders", LOG_ID, 3), 0, []
    while at < len(payloads):
        end = data.draw(st.integers(at + 1, len(payloads)))
        firsts += link.follow(block_of(payloads[at:end], at)).first_revisions.tolist()
        at = end
    assert firsts == whole.first_revisions.tolist()
    slow = LogLink("orders", LOG_ID, 3)
    one_by_one = slow._follow_slowly(block_of(payloads), whole.hashes)
    for fast, slowly in zip(whole[:4], one_by_one[:4], strict=True):
        assert fast.tolist() == slowly.tolist()
