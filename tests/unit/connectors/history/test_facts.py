"""Of records only what the history needs leaves the tasks; the driver knows that none is missing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from broker.core.tables import BROKER_DESCRIPTION
from connectors.history.facts import descriptions_in, facts_before, read_facts
from connectors.history.words import FactKind
from tests.unit.connectors.history.recorded_broker import acted


def test_payloads_stay_behind_unless_they_are_asked_for() -> None:
    broker = acted(3)
    thin, thick = broker.facts(), broker.facts(payloads=True)
    thin_bytes, thick_bytes = (b"".join(facts.column("values").to_pylist()) for facts in (thin, thick))
    for payload in (b"payload 1", b"\xc4\x06result"):
        assert (payload in thin_bytes, payload in thick_bytes) == (False, True)


def test_facts_come_in_the_order_of_the_log_whatever_the_order_of_the_tasks() -> None:
    broker = acted(3)
    parts = [broker.facts(first, min(first + 50, broker.revision + 1)) for first in range(1, broker.revision, 50)]
    batch = read_facts(pa.concat_tables(parts[::-1]), 0)
    assert batch is not None
    assert (batch.first, batch.end.revision, batch.end.entry_id) == (1, broker.revision, broker.revision - 1)
    assert batch.end.prefix_hash == broker.revision.to_bytes(32, "big")
    revisions = [fact.revision for fact in batch.facts]
    assert revisions == sorted(revisions)
    assert {fact.kind for fact in batch.facts} >= {FactKind.TASK_ASSIGNED, FactKind.LATE_END, FactKind.WORKER_DIED}


def test_what_has_been_applied_is_left_out() -> None:
    facts = acted(3).facts(1, 40)
    assert read_facts(facts, 39) is None
    batch = read_facts(facts, 30)
    assert batch is not None
    assert all(fact.revision > 30 for fact in batch.facts)
    assert read_facts(facts.slice(0, 0), 0) is None


def test_a_record_that_is_missing_is_named() -> None:
    broker = acted(3)
    with pytest.raises(ValueError, match="record 21 follows record 10"):
        read_facts(pa.concat_tables([broker.facts(1, 11), broker.facts(21, 31)]), 0)


def test_a_micro_batch_can_end_before_a_description() -> None:
    broker = acted(3)
    facts = broker.facts(size=50)
    (first, described), (second, _) = descriptions_in(facts)
    assert (first, described) == (1, BROKER_DESCRIPTION)
    batch = read_facts(facts_before(facts, second), 0)
    assert batch is not None
    assert (batch.end.revision, batch.end.entry_id, batch.end.prefix_hash) == (second - 1, -1, None)
    assert max(fact.revision for fact in batch.facts) < second
    assert read_facts(facts_before(facts, 1), 0) is None
