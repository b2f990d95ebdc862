"""The kernel's own tables: described, folded by key, refused when they are not theirs."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.core.envelope import Envelope, encode_envelope
from rsm_spark.core.kernel_tables import (
    CHECKPOINTS_MAX,
    KERNEL_RECORDS,
    Checkpoint,
    Checkpoints,
    VerifiedTable,
    peek_checkpoint,
)
from rsm_spark.core.machine import Fold, Row
from rsm_spark.core.records import (
    MIGRATIONS_TABLE,
    VERIFIED_TABLE,
    WRITERS_TABLE,
    KernelRecord,
    Record,
    encode_records,
    pack,
)
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError


@pytest.mark.parametrize("row", [pack((1, 2)), pack(("d", 1, b"", b"", 1)), b"\xc1"])
def test_row_that_is_no_verified_snapshot_is_refused(row: bytes) -> None:
    with pytest.raises(CorruptSnapshotError, match="_verified"):
        VerifiedTable().restore([Row(VERIFIED_TABLE, pack(("lake",)), row, 1)])


@pytest.mark.parametrize("fields", [(), ("lake", 1), (1, "d", 1, b"", b"", 1, "b")])
def test_record_with_other_fields_is_corrupt(fields: tuple[Any, ...]) -> None:
    with pytest.raises(CorruptLogError, match="snapshot record"):
        VerifiedTable().fold(KernelRecord.SNAPSHOT_VERIFIED, fields, 7)


def test_only_the_last_checkpoints_are_known() -> None:
    checkpoints = Checkpoints()
    for revision in range(CHECKPOINTS_MAX + 3):
        checkpoints.add(Checkpoint(revision, b"", 0, b""))
    assert len(checkpoints) == CHECKPOINTS_MAX
    assert checkpoints.get(2) is None
    assert checkpoints.get(3) is not None


def test_every_kernel_record_is_described_and_its_columns_are_its_fields() -> None:
    assert [record.type for record in KERNEL_RECORDS] == list(KernelRecord)
    for record in KERNEL_RECORDS:
        assert record.name == KernelRecord(record.type).name.lower()
        assert set(record.key + record.row) <= {field.name for field in record.fields}
        assert (record.table in {VERIFIED_TABLE, MIGRATIONS_TABLE, WRITERS_TABLE}) == (record.fold != Fold.NONE)


def test_view_of_what_is_verified_does_not_change_with_the_table() -> None:
    table = VerifiedTable()
    table.fold(KernelRecord.SNAPSHOT_VERIFIED, ("lake", "d", 3, b"", b"", 1, "b"), 9)
    before = table.by_place
    assert table.by_place is before
    table.fold(KernelRecord.SNAPSHOT_WITHDRAWN, ("lake",), 10)
    assert (list(before), list(table.by_place)) == (["lake"], [])


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_checkpoint_is_seen_whatever_the_size_of_its_entry(count: int) -> None:
    answered = Record(KernelRecord.COMMAND_ANSWERED, None, ())
    records = [Record(KernelRecord.CHECKPOINT_LOGGED, None, (6, b"d" * 16, 4)), *[answered] * (count - 1)]
    envelope = Envelope(bytes(16), 1, 7, 6, 0, count, b"h" * 32)
    assert peek_checkpoint(encode_envelope(envelope, encode_records(records))) == (6, b"d" * 16, 4, b"h" * 32)


@pytest.mark.parametrize("records", [[], [Record(KernelRecord.COMMAND_ANSWERED, None, ())], [Record(5, None, ())]])
def test_entry_that_begins_otherwise_has_no_checkpoint(records: list[Record]) -> None:
    envelope = Envelope(bytes(16), 1, 7, 6, 0, len(records), b"h" * 32)
    payload = encode_envelope(envelope, encode_records(records))
    if records and records[0].type == KernelRecord.CHECKPOINT_LOGGED:
        with pytest.raises(CorruptLogError, match="checkpoint with the fields"):
            peek_checkpoint(payload)
    else:
        assert peek_checkpoint(payload) is None
