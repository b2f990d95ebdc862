"""Spark's side of a log with a key: seals are checked where a key is given, what is set aside is not there."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest

from connectors.source.decode import StoredEntry, decode_log
from connectors.source.look import LogLook
from connectors.source.options import Rows
from connectors.source.record_rows import RecordSlice
from connectors.source.row_plan import RowPlan
from connectors.source.schema import RECORD_COLUMNS
from connectors.source.seals import LedgerSeals
from ledger.core.entry_block import EntryBlock
from rsm_spark.core.chain import QuarantinedEntry
from rsm_spark.core.envelope import Envelope, encode_envelope
from rsm_spark.core.records import Record, encode_records
from rsm_spark.core.seal import ForeignEntryError, KeyRing, LogKey, key_id_of
from rsm_spark.errors import CorruptLogError
from tests.unit.connectors.source.cluster_in_memory import ClusterInMemory

LOG_ID = b"l" * 16
KEY = LogKey(key_id_of(b"s" * 32), b"s" * 32)
RING = KeyRing([KEY])
RUBBISH = b"\xee" * 80


def _entries(count: int, *, sealed: bool = True) -> list[bytes]:
    key = RING.entry_key(bytes.fromhex(KEY.key_id), LOG_ID)
    assert key is not None
    payloads: list[bytes] = []
    before = bytes(32)
    for number in range(1, count + 1):
        envelope = Envelope(LOG_ID, 1, number, number - 1, 0, 1, before, key.key_id if sealed else b"")
        payload = bytearray(encode_envelope(envelope, encode_records([Record(18, None, ("x",))])))
        before = key.finish(payload, 0) if sealed else sha256(payload).digest()
        payloads.append(bytes(payload))
    return payloads


def _block(payloads: list[bytes]) -> EntryBlock:
    return EntryBlock(0, payloads, [0] * len(payloads))


def _revisions(payloads: list[bytes], seals: LedgerSeals) -> list[int]:
    plan = RowPlan(Rows.RECORDS, tuple((name, kind, was) for name, kind, was in RECORD_COLUMNS))
    span = RecordSlice("orders", 7, 1, 0, None, None)
    batches = decode_log([_block(payloads)], plan, span, LOG_ID, seals)
    return [revision for batch in batches for revision in batch.column("revision").to_pylist()]


def _seals(*, keys: KeyRing | None = RING, aside: dict[int, str] | None = None) -> LedgerSeals:
    return LedgerSeals.of(KEY.key_id, aside or {}, keys, LOG_ID)


def test_sealed_entries_are_read_with_and_without_the_key() -> None:
    payloads = _entries(5)
    assert _revisions(payloads, _seals()) == _revisions(payloads, _seals(keys=None)) == [1, 2, 3, 4, 5]
    assert _revisions(_entries(3, sealed=False), LedgerSeals.of("", {}, RING, LOG_ID)) == [1, 2, 3]


def test_an_entry_without_a_seal_or_with_a_wrong_one_is_named() -> None:
    payloads = _entries(3)
    with pytest.raises(ForeignEntryError, match="log orders: ledger 7 entry 0: it has no seal"):
        _revisions(_entries(3, sealed=False), _seals(keys=None))
    forged = [*payloads[:2], payloads[2][:-1] + b"\x00"]
    assert _revisions(forged, _seals(keys=None)) == [1, 2, 3]  # A reader without the key cannot tell.
    with pytest.raises(ForeignEntryError, match="ledger 7 entry 2: its seal is not that of key"):
        _revisions(forged, _seals())
    other = KeyRing([LogKey(key_id_of(b"o" * 32), b"o" * 32)])
    with pytest.raises(ForeignEntryError, match="which the file of logKeyFile lacks"):
        _revisions(payloads, _seals(keys=other))


@pytest.mark.parametrize("place", [0, 2, 4])
def test_what_is_set_aside_is_not_there_and_nothing_else_takes_its_place(place: int) -> None:
    payloads = _entries(4)
    payloads.insert(place, RUBBISH)
    aside = {place: sha256(RUBBISH).hexdigest()}
    assert _revisions(payloads, _seals(aside=aside)) == [1, 2, 3, 4]
    payloads[place] = b"\xef" * 80
    with pytest.raises(CorruptLogError, match=f"entry {place} is set aside, but another entry lies there"):
        _revisions(payloads, _seals(aside=aside))


def test_a_look_passes_over_what_is_set_aside() -> None:
    cluster = ClusterInMemory()
    log = cluster.make_log("orders")
    log.fill(3, records_per_entry=1)
    ledger_id = log.ledgers[-1].ledger_id
    entries = cluster.entries[ledger_id]
    entries.append(StoredEntry(3, entries[-1].length + len(RUBBISH), RUBBISH))
    log.roll()
    log.fill(1, records_per_entry=1)
    look = LogLook("orders", cluster)
    with pytest.raises(CorruptLogError, match=f"ledger {ledger_id} entry 3"):
        look.look()
    aside = QuarantinedEntry(ledger_id, 3, sha256(RUBBISH).hexdigest(), len(RUBBISH), 0, "me", "rubbish")
    cluster.chains["orders"] = msgspec.structs.replace(cluster.chains["orders"], quarantined=(aside,))
    look = LogLook("orders", cluster)
    view = look.look()
    assert [(span.first_revision, span.last_revision) for span in view.spans] == [(1, 3), (4, 4)]
    assert look.last_revision_at(ledger_id, 3) == 3
    assert look.payload_at(ledger_id, 3) == look.payload_at(ledger_id, 2)
    assert look.seals(ledger_id).aside == {3: aside.sha256}
