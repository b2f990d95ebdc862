"""Of records only what the history needs leaves the tasks; the driver knows that none is missing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from broker.machine.tables import BROKER_DESCRIPTION
from connectors.delta.fold import RecordRange
from connectors.errors import SinkGapError
from connectors.history.facts import facts_of
from connectors.history.words import FactKind
from tests.unit.connectors.history.recorded_broker import acted


def test_payloads_stay_behind_unless_they_are_asked_for() -> None:
    broker = acted(3)
    thin, thick = broker.fact_rows(), broker.fact_rows(payloads=True)
    thin_bytes, thick_bytes = (b"".join(filter(None, rows.column("fields").to_pylist())) for rows in (thin, thick))
    for payload in (b"payload 1", b"\xc4\x06result"):
        assert (payload in thin_bytes, payload in thick_bytes) == (False, True)


def test_facts_come_in_the_order_of_the_log_whatever_the_order_of_the_tasks() -> None:
    broker = acted(3)
    parts = [broker.fact_rows(first, min(first + 50, broker.revision + 1)) for first in range(1, broker.revision, 50)]
    records = RecordRange(pa.concat_tables(parts[::-1]))
    assert (records.first, records.end.revision, records.end.entry_id) == (1, broker.revision, broker.revision - 1)
    assert records.end.prefix_hash == broker.revision.to_bytes(32, "big")
    facts = facts_of(records, 0)
    revisions = [fact.revision for fact in facts]
    assert revisions == sorted(revisions)
    assert {fact.kind for fact in facts} >= {FactKind.TASK_ASSIGNED, FactKind.LATE_END, FactKind.WORKER_DIED}
    assert all(fact.logged_ms == broker.logged_ms[fact.revision - 1] for fact in facts)


def test_what_has_been_applied_is_left_out() -> None:
    records = acted(3).facts(1, 40)
    assert facts_of(records, 39) == []
    assert all(fact.revision > 30 for fact in facts_of(records, 30))
    assert facts_of(records, 30)


def test_a_record_that_is_missing_is_named() -> None:
    broker = acted(3)
    with pytest.raises(SinkGapError, match="has 20 records 1 to 30: records are missing in between"):
        RecordRange(pa.concat_tables([broker.fact_rows(1, 11), broker.fact_rows(21, 31)]))


def test_a_micro_batch_can_end_before_a_description() -> None:
    records = acted(3).facts(size=50)
    (first, described), (second, _) = records.descriptions
    assert (first, described) == (1, BROKER_DESCRIPTION)
    part = records.until(second)
    assert part is not None
    assert part.end.revision == second - 1
    assert max(fact.revision for fact in facts_of(part, 0)) < second
    assert records.until(1) is None
