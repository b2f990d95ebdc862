from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.spark import decode
from connectors.spark.arrow import RAW_ARROW, RECORDS_ARROW
from connectors.spark.decode import LogLink, StoredEntry, decode_raw, decode_records
from rsm_spark.core.envelope import Envelope, encode_envelope, root_hash
from rsm_spark.core.machine import (
    Field,
    FieldType,
    Fold,
    MachineDescription,
    RecordDescription,
    TableDescription,
    encode_description,
)
from rsm_spark.core.records import CommandHead, KernelRecord, Record, encode_records, pack
from rsm_spark.errors import CorruptLogError, ForkedLogError

LOG_ID = bytes(range(16))
KEY, VALUE, WHY = Field("key", FieldType.BYTES), Field("value", FieldType.BYTES), Field("why", FieldType.STR)
MACHINE = MachineDescription(
    "map",
    1,
    (TableDescription("map", (KEY,), (VALUE,)),),
    (
        RecordDescription(16, "put", (KEY, VALUE), "map", Fold.UPSERT, ("key",), ("value",)),
        RecordDescription(17, "deleted", (KEY, WHY), "map", Fold.DELETE, ("key",)),
        RecordDescription(18, "noted", (WHY,)),
    ),
)


def entries_of(batches: Sequence[Sequence[Record]], first_revision: int = 1) -> list[StoredEntry]:
    before, revision, entries = root_hash(LOG_ID), first_revision, []
    for entry_id, records in enumerate(batches):
        envelope = Envelope(LOG_ID, 5, revision, revision - 1, 1000 + entry_id, len(records), before)
        payload = encode_envelope(envelope, encode_records(records))
        before, revision = hashlib.sha256(payload).digest(), revision + len(records)
        entries.append(StoredEntry(entry_id, 100 * (entry_id + 1), payload))
    return entries


def rows_of(
    entries: list[StoredEntry], first_revision: int = 0, description: MachineDescription | None = MACHINE
) -> list[dict[str, Any]]:
    link = LogLink("orders", LOG_ID, 3)
    batches = list(
        decode_records(
            entries, ledger_id=3, log="orders", link=link, first_revision=first_revision, description=description
        )
    )
    assert all(batch.schema.equals(RECORDS_ARROW) for batch in batches)
    return pa.Table.from_batches(batches, schema=RECORDS_ARROW).to_pylist()


def put(key: bytes, value: bytes, head: CommandHead | None = None) -> Record:
    return Record(16, head, (key, value))


def test_a_record_becomes_a_row_with_its_key_and_row() -> None:
    head = CommandHead(b"s" * 16, 7, 3, 2, b"ok")
    entries = entries_of([[put(b"k", b"v", head), Record(17, None, (b"j", "gone"))]], first_revision=40)
    first, second = rows_of(entries)
    assert (first["log"], first["ledger_id"], first["entry_id"], first["revision"]) == ("orders", 3, 0, 40)
    assert (first["leader_epoch"], first["logged_at"].timestamp()) == (5, 1.0)
    assert (first["type"], first["name"], first["table_name"], first["fold"]) == (16, "put", "map", "upsert")
    assert (first["session"], first["sequence"], first["answered_up_to"], first["reply"]) == (b"s" * 16, 7, 3, b"ok")
    assert (first["key"], first["row"], first["fields"]) == (pack([b"k"]), pack([b"v"]), None)
    assert first["entry_hash"] is None
    assert (second["revision"], second["fold"], second["session"]) == (41, "delete", None)
    assert (second["key"], second["row"], second["fields"]) == (pack([b"j"]), None, pack([b"j", "gone"]))
    assert second["entry_hash"] == hashlib.sha256(entries[0].payload).digest()


def test_records_of_the_kernel_have_names_and_fields() -> None:
    rows = rows_of(entries_of([[Record(KernelRecord.SESSION_OPENED, None, (b"s" * 16,)), Record(18, None, ("x",))]]))
    assert [(row["name"], row["table_name"], row["fold"]) for row in rows] == [
        ("session_opened", None, None),
        ("noted", None, "none"),
    ]
    assert rows[0]["fields"] == pack([b"s" * 16])
    assert (rows[1]["key"], rows[1]["fields"]) == (None, pack(["x"]))


def test_a_description_inside_the_range_counts_from_there_on() -> None:
    described = Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(MACHINE),))
    rows = rows_of(entries_of([[put(b"a", b"b")], [described, put(b"a", b"b")]]), description=None)
    assert [row["name"] for row in rows] == [None, "machine_described", "put"]
    assert (rows[0]["key"], rows[0]["fields"]) == (None, pack([b"a", b"b"]))


def test_records_before_the_start_are_left_out_inside_an_entry() -> None:
    entries = entries_of([[put(b"a", b"")] * 3, [put(b"a", b"")] * 2])
    assert [row["revision"] for row in rows_of(entries, first_revision=3)] == [3, 4, 5]
    assert rows_of(entries, first_revision=3)[0]["entry_hash"] is not None
    assert rows_of(entries, first_revision=6) == []


def test_records_from_the_end_on_are_left_out_inside_an_entry() -> None:
    entries = entries_of([[put(b"a", b"")] * 3, [put(b"a", b"")] * 3])
    link = LogLink("orders", LOG_ID, 3)
    (batch,) = decode_records(
        entries, ledger_id=3, log="orders", link=link, first_revision=2, end_revision=5, description=MACHINE
    )
    assert batch.column("revision").to_pylist() == [2, 3, 4]
    assert [value is None for value in batch.column("entry_hash").to_pylist()] == [True, False, True]


def test_entries_without_records_have_a_raw_row_only() -> None:
    entries = entries_of([[], [put(b"a", b"b")], []])
    assert [row["entry_id"] for row in rows_of(entries)] == [1]
    (batch,) = decode_raw(entries, ledger_id=3, log="orders", link=LogLink("orders", LOG_ID, 3))
    assert batch.schema.equals(RAW_ARROW)
    assert batch.column("revision").to_pylist() == [1, 1, 2]
    assert batch.column("record_count").to_pylist() == [0, 1, 0]
    assert batch.column("payload").to_pylist() == [entry.payload for entry in entries]


def test_a_plain_ledger_is_read_as_it_is() -> None:
    entries = [StoredEntry(4, 3, b"abc"), StoredEntry(5, 3, b"")]
    (batch,) = decode_raw(entries, ledger_id=9, log=None, link=None)
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        (None, 9, 4, 3, None, None, None, None, b"abc"),
        (None, 9, 5, 3, None, None, None, None, b""),
    ]


def test_batches_are_bounded_by_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BATCH_ROWS_MAX", 4)
    entries = [StoredEntry(i, i, b"x") for i in range(10)]
    assert [batch.num_rows for batch in decode_raw(entries, ledger_id=1, log=None, link=None)] == [4, 4, 2]
    monkeypatch.setattr(decode, "BATCH_BYTES_MAX", 2)
    assert [batch.num_rows for batch in decode_raw(entries, ledger_id=1, log=None, link=None)] == [2] * 5


def test_an_entry_of_another_log_is_refused() -> None:
    entries = entries_of([[put(b"a", b"b")]])
    with pytest.raises(CorruptLogError, match="ledger 3 entry 0 belongs to log"):
        LogLink("orders", bytes(16), 3).follow(entries[0])
    with pytest.raises(CorruptLogError, match="ledger 3 entry 0: entry begins with"):
        LogLink("orders", bytes(16), 3).follow(StoredEntry(0, 0, bytes(96)))


def test_an_entry_that_does_not_continue_the_one_before_is_refused() -> None:
    link = LogLink("orders", LOG_ID, 3)
    entries = entries_of([[put(b"a", b"b")], [put(b"a", b"c")], [put(b"a", b"d")]])
    link.follow(entries[0])
    with pytest.raises(ForkedLogError, match="entry 2 does not continue"):
        link.follow(entries[2])


def test_a_record_count_that_lies_is_refused() -> None:
    envelope = Envelope(LOG_ID, 1, 1, 0, 0, 2, root_hash(LOG_ID))
    payload = encode_envelope(envelope, encode_records([put(b"a", b"b")]))
    with pytest.raises(CorruptLogError, match="holds 1 records, its envelope says 2"):
        rows_of([StoredEntry(0, 0, payload)])


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
    (row,) = rows_of(
        entries_of([[Record(16, None, tuple(fields))]]), description=MachineDescription("m", 1, (), (described,))
    )
    value = dict(zip(names, fields, strict=True))
    assert row["key"] == pack([value[n] for n in chosen[:split]])
    assert row["row"] == pack([value[n] for n in chosen[split:]])
    assert row["fields"] is None
    assert msgspec.msgpack.decode(row["key"]) is not None
