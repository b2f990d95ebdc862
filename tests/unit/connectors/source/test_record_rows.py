from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.source import record_rows
from connectors.source.decode import decode_log
from connectors.source.entry_bounds import EntryBounds, Interval
from connectors.source.record_rows import RecordSlice
from rsm_spark.core.envelope import Envelope, encode_envelope, root_hash
from rsm_spark.core.machine import (
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    encode_description,
)
from rsm_spark.core.records import CommandHead, KernelRecord, Record, encode_records, pack
from rsm_spark.errors import CorruptLogError
from tests.unit.connectors.source.written import LOG_ID, MACHINE, block_of, payloads_of, plan_of, put, read_log

RECORDS = plan_of()


def test_a_record_becomes_a_row_with_its_key_and_row() -> None:
    head = CommandHead(b"s" * 16, 7, 3, 2, b"ok")
    payloads = payloads_of([[put(b"k", b"v", head), Record(17, None, (b"j", "gone"))]], first_revision=40)
    first, second = read_log(payloads, RECORDS)
    assert (first["log"], first["ledger_id"], first["entry_id"], first["revision"]) == ("orders", 3, 0, 40)
    assert (first["leader_epoch"], first["logged_at"].timestamp()) == (5, 1.0)
    assert (first["type"], first["name"], first["table_name"], first["fold"]) == (16, "put", "map", "upsert")
    assert (first["session"], first["sequence"], first["answered_up_to"], first["reply"]) == (b"s" * 16, 7, 3, b"ok")
    assert (first["key"], first["row"], first["fields"]) == (pack([b"k"]), pack([b"v"]), None)
    assert first["entry_hash"] is None
    assert (second["revision"], second["fold"], second["session"]) == (41, "delete", None)
    assert (second["key"], second["row"], second["fields"]) == (pack([b"j"]), None, pack([b"j", "gone"]))
    assert second["entry_hash"] == hashlib.sha256(payloads[0]).digest()


def test_records_of_the_kernel_have_names_and_fields() -> None:
    opened = Record(KernelRecord.SESSION_OPENED, None, (b"s" * 16,))
    rows = read_log(payloads_of([[opened, Record(18, None, ("x",))]]), RECORDS)
    assert [(row["name"], row["table_name"], row["fold"]) for row in rows] == [
        ("session_opened", None, None),
        ("noted", None, "none"),
    ]
    assert rows[0]["fields"] == pack([b"s" * 16])
    assert (rows[1]["key"], rows[1]["fields"]) == (None, pack(["x"]))


def test_a_description_inside_the_range_counts_from_its_entry_on() -> None:
    described = Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(MACHINE),))
    rows = read_log(payloads_of([[put(b"a", b"b")], [described, put(b"a", b"b")]]), RECORDS, description=None)
    assert [row["name"] for row in rows] == [None, "machine_described", "put"]
    assert (rows[0]["key"], rows[0]["fields"]) == (None, pack([b"a", b"b"]))


def test_records_before_the_start_are_left_out_inside_an_entry() -> None:
    payloads = payloads_of([[put(b"a", b"")] * 3, [put(b"a", b"")] * 2])
    rows = read_log(payloads, RECORDS, first_revision=3)
    assert [row["revision"] for row in rows] == [3, 4, 5]
    assert rows[0]["entry_hash"] is not None
    assert read_log(payloads, RECORDS, first_revision=6) == []


def test_records_from_the_end_on_are_left_out_inside_an_entry() -> None:
    payloads = payloads_of([[put(b"a", b"")] * 3, [put(b"a", b"")] * 3])
    rows = read_log(payloads, RECORDS, first_revision=2, end_revision=5)
    assert [row["revision"] for row in rows] == [2, 3, 4]
    assert [row["entry_hash"] is None for row in rows] == [True, False, True]


def test_entries_outside_of_the_bounds_are_left_out() -> None:
    payloads = payloads_of([[put(b"a", b"")] * 2 for _ in range(5)])
    bounds = EntryBounds(entry_id=Interval(low=1), logged_ms=Interval(high=1003))
    rows = read_log(payloads, RECORDS, bounds=bounds)
    assert [row["revision"] for row in rows] == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("name", [name for name, _, _ in RECORDS.columns])
def test_a_column_alone_holds_what_it_holds_among_all(name: str) -> None:
    head = CommandHead(b"s" * 16, 7, 3, 2, b"ok")
    records = [put(b"k", b"v", head), put(b"l", b"w"), Record(17, None, (b"j", "gone")), Record(99, None, (1,))]
    payloads = payloads_of([records, [], [put(b"x", b"y")], records])
    kwargs: dict[str, Any] = {"first_revision": 2, "end_revision": 8}
    everything = read_log(payloads, RECORDS, **kwargs)
    assert len(everything) == 6
    assert read_log(payloads, plan_of(columns=name), **kwargs) == [{name: row[name]} for row in everything]


def test_no_record_is_decoded_when_only_places_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = payloads_of([[put(b"a", b"")] * 3, [put(b"a", b"")] * 2])
    monkeypatch.setattr(record_rows, "_RECORDS", None)
    rows = read_log(payloads, plan_of(columns="revision,entry_hash"))
    assert [row["revision"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[2]["entry_hash"] == hashlib.sha256(payloads[0]).digest()


def test_batches_are_bounded_by_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block_of(payloads_of([[put(b"a", b"")] * 2 for _ in range(5)]))]

    def sizes() -> list[int]:
        return [batch.num_rows for batch in decode_log(blocks, RECORDS, RecordSlice("orders", 3), LOG_ID)]

    monkeypatch.setattr(record_rows, "BATCH_ROWS_MAX", 4)
    assert sizes() == [4, 4, 2]
    monkeypatch.setattr(record_rows, "BATCH_BYTES_MAX", 1)
    assert sizes() == [2] * 5


def _lying() -> bytes:
    envelope = Envelope(LOG_ID, 1, 1, 0, 0, 2, root_hash(LOG_ID))
    return encode_envelope(envelope, encode_records([put(b"a", b"b")]))


def test_a_record_count_that_lies_is_refused() -> None:
    with pytest.raises(CorruptLogError, match="entry 0 holds 1 records, its envelope says 2"):
        read_log([_lying()], RECORDS)


def test_a_record_with_fewer_fields_than_described_is_refused_by_its_revision() -> None:
    payloads = payloads_of([[put(b"a", b"b"), Record(16, None, (b"a",)), put(b"c", b"d")]])
    with pytest.raises(CorruptLogError, match="entry 0: record 2 of type put has 1 fields"):
        read_log(payloads, RECORDS)


def test_bad_records_become_rows_with_their_error() -> None:
    payloads = payloads_of([[put(b"a", b"b"), Record(16, None, (b"a",)), put(b"c", b"d")]])
    rows = read_log(payloads, plan_of(badRecords="column"))
    assert [row["revision"] for row in rows] == [1, 2, 3]
    assert [row["row"] for row in rows] == [pack([b"b"]), None, pack([b"d"])]
    assert [row["_error"] is None for row in rows] == [True, False, True]
    (row,) = read_log([_lying()], plan_of(badRecords="column"))
    assert (row["revision"], row["type"], "its envelope says 2" in row["_error"]) == (1, None, True)


def test_an_entry_without_an_envelope_becomes_a_row_with_its_error() -> None:
    first = payloads_of([[put(b"a", b"b")]])[0]
    bad = b"not an envelope"
    envelope = Envelope(LOG_ID, 5, 2, 1, 0, 1, hashlib.sha256(bad).digest())
    last = encode_envelope(envelope, encode_records([put(b"c", b"d")]))
    rows = read_log([first, bad, last], plan_of(badRecords="column", columns="entry_id,revision,logged_at,key"))
    assert [(row["entry_id"], row["revision"], row["key"]) for row in rows] == [
        (0, 1, pack([b"a"])),
        (1, None, None),
        (2, 2, pack([b"c"])),
    ]
    assert "entry 1: entry of 15 bytes is shorter than an envelope" in rows[1]["_error"]
    assert rows[1]["logged_at"] is None


SCALARS = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(), st.binary(), st.booleans(), st.none()
)


@settings(max_examples=50)
@given(fields=st.lists(SCALARS, min_size=1, max_size=40), data=st.data())
def test_keys_and_rows_are_the_canonical_bytes_whatever_the_fields(fields: list[Any], data: st.DataObject) -> None:
    names = [f"f{i}" for i in range(len(fields))]
    chosen = data.draw(st.permutations(names))
    split = data.draw(st.integers(1, len(names)))
    described = RecordDescription(
        16,
        "set",
        tuple(Field(n, FieldType.BYTES) for n in names),
        "t",
        Fold.UPSERT,
        tuple(chosen[:split]),
        tuple(chosen[split:]),
    )
    (row,) = read_log(
        payloads_of([[Record(16, None, tuple(fields))]]),
        RECORDS,
        description=MachineDescription("m", 1, (), (described,)),
    )
    value = dict(zip(names, fields, strict=True))
    assert row["key"] == pack([value[n] for n in chosen[:split]])
    assert row["row"] == pack([value[n] for n in chosen[split:]])
    assert row["fields"] is None
    assert msgspec.msgpack.decode(row["key"]) is not None


_HEADS = st.none() | st.builds(CommandHead, st.just(b"s" * 16), st.integers(1, 9), st.just(0), st.just(1), st.binary())
_ANY_RECORD = st.one_of(
    st.builds(lambda head, value: put(b"k", value, head), _HEADS, st.binary(max_size=5)),
    st.builds(lambda key, why: Record(17, None, (key, why)), st.binary(max_size=5), st.text(max_size=3)),
    st.builds(lambda why: Record(18, None, (why,)), st.text(max_size=3)),
    st.just(Record(99, None, (1, "unknown"))),
    st.just(Record(16, None, (b"short",))),
    st.just(Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(MACHINE),))),
)


@settings(max_examples=200, deadline=None)
@given(
    batches=st.lists(st.lists(_ANY_RECORD, max_size=4), min_size=1, max_size=8),
    first=st.integers(0, 12),
    length=st.integers(0, 12),
    is_described=st.booleans(),
)
def test_rows_are_the_same_by_the_block_and_by_the_entry(
    batches: list[list[Record]], first: int, length: int, is_described: bool
) -> None:
    payloads, plan = payloads_of(batches), plan_of(badRecords="column")

    def rows() -> list[dict[str, Any]]:
        description = MACHINE if is_described else None
        end = first + length if length else 0
        return read_log(payloads, plan, description=description, first_revision=first, end_revision=end)

    by_block = rows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_rows, "_FEW", 0)
        assert rows() == by_block
        patch.setattr(record_rows, "BATCH_ROWS_MAX", 3)
        assert rows() == by_block
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_rows, "BATCH_ROWS_MAX", 5)
        assert rows() == by_block


def test_an_entry_that_holds_other_records_than_it_says_is_found_beside_good_ones() -> None:
    payloads = payloads_of([[put(b"a", b"b")] for _ in range(2)])
    envelope = Envelope(LOG_ID, 5, 3, 2, 1002, 2, hashlib.sha256(payloads[1]).digest())
    payloads.append(encode_envelope(envelope, encode_records([put(b"a", b"c")])))
    with pytest.raises(CorruptLogError, match="holds 1 records, its envelope says 2"):
        read_log(payloads, RECORDS)
