from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from connectors.state.blocks import PartRule
from connectors.state.links import Run, link_runs
from connectors.state.parts import merge_parts
from connectors.state.rows import ROWS_ARROW
from connectors.state.steps import BLOCK, CHECKPOINT, PLACE, RUN, StepPlan, change_rows, read_steps, row_steps
from connectors.state.sums import StateSums, read_sums
from rsm_spark.core.chain import Ancestry
from rsm_spark.core.envelope import root_hash
from rsm_spark.core.machine import encode_description
from rsm_spark.core.records import SESSIONS_TABLE
from rsm_spark.errors import CorruptLogError, ForkedLogError
from tests.unit.connectors.state.histories import Reference, Shop

PARTS = PartRule(3, 4711)


def plan_of(reference: Reference, *, first: int = 1, last: int = 10**9, **more: Any) -> StepPlan:
    ledgers = {ledger_id for ledger_id, _, _ in reference.entries}
    description = encode_description(Shop.description)
    more = {"cuts": (), "places": frozenset(), "is_summed": False, "parts": PARTS, **more}
    return StepPlan(Ancestry(reference.log_id), dict.fromkeys(ledgers, description), first, last, **more)


def steps_of(reference: Reference, plan: StepPlan, borders: Sequence[int] = ()) -> pa.Table:
    """Read the entries in several tasks."""
    ends = [*borders, len(reference.entries)]
    batches = [
        step
        for begin, end in zip([0, *borders], ends, strict=True)
        if begin < end
        for step in read_steps(reference.blocks(begin, end), plan)
    ]
    return pa.Table.from_batches(batches)


def blocks_of(steps: Iterable[pa.Table]) -> list[pa.RecordBatch]:
    """Return the blocks among steps as Spark brings them together, a few at a time, the newest of a part first."""
    blocks = pa.concat_tables(steps).filter(pa.compute.field("kind") == BLOCK)
    blocks = blocks.take(list(reversed(range(blocks.num_rows))))
    order: Any = [("part", "ascending"), ("table_name", "ascending")]
    return blocks.sort_by(order).combine_chunks().to_batches(max_chunksize=7)


def sums_of(batches: Iterable[pa.RecordBatch], points: Sequence[int], *, is_summed: bool) -> StateSums:
    sums = StateSums(points)
    for batch in read_sums(batches, points, is_summed=is_summed):
        for row in batch.to_pylist():
            sums.add(row["table_name"], row["point"], row["term"], row["row_count"])
    return sums


@pytest.mark.parametrize("seed", range(12))
def test_one_pass_comes_to_the_digests_at_every_revision(seed: int) -> None:
    reference = Reference(seed)
    reference.grow(60)
    rng = random.Random(seed)
    borders = sorted(rng.sample(range(1, 60), rng.randrange(4)))
    revisions = tuple(range(1, reference.state.revision + 1))
    is_summed = bool(seed % 2)
    steps = steps_of(reference, plan_of(reference, cuts=revisions, is_summed=is_summed), borders)
    sums = sums_of(blocks_of([steps]), revisions, is_summed=is_summed)
    assert [tuple(sums.at(revision)) for revision in revisions] == reference.sums[1:]


@pytest.mark.parametrize("seed", range(4))
def test_checkpoints_are_found_and_are_cuts_of_their_own(seed: int) -> None:
    reference = Reference(seed)
    reference.grow(60)
    steps = steps_of(reference, plan_of(reference, is_summed=True))
    found = steps.filter(pa.compute.field("kind") == CHECKPOINT).to_pylist()
    assert [row["revision"] for row in found] == reference.checkpoints
    sums = sums_of(blocks_of([steps]), reference.checkpoints, is_summed=True)
    for row in found:
        assert sums.at(row["revision"]) == (row["key"].hex(), row["row_count"])


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_takes_the_place_of_the_log_before_it(seed: int) -> None:
    reference = Reference(seed)
    reference.grow(60)
    base = reference.checkpoints[3]
    begin = next(i for i, (_, _, payload) in enumerate(reference.entries) if int.from_bytes(payload[32:40]) > base)
    steps = steps_of(reference, plan_of(reference, first=base + 1, is_summed=True), [begin])
    rows = pa.Table.from_batches(list(row_steps([batch_of(reference, base)], PARTS, is_summed=True)))
    points = [base, *reference.checkpoints[4:], reference.state.revision]
    sums = sums_of(blocks_of([rows, steps]), points, is_summed=True)
    assert [tuple(sums.at(revision)) for revision in points] == [reference.sums[revision] for revision in points]


def batch_of(reference: Reference, revision: int) -> pa.RecordBatch:
    columns = zip(*sorted(reference.rows[revision]), strict=True)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, ROWS_ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS_ARROW)


@pytest.mark.parametrize("seed", range(4))
def test_the_last_change_of_each_key_is_the_state(seed: int) -> None:
    reference = Reference(seed)
    reference.grow(60)
    for revision in random.Random(seed).sample(range(1, reference.state.revision), 10):
        steps = steps_of(reference, plan_of(reference, last=revision), [30])
        rows: dict[tuple[str, bytes], tuple[list[Any], int]] = {}
        changes = [row for batch in change_rows(blocks_of([steps])) for row in batch.to_pylist()]
        for row in sorted(changes, key=lambda one: one["revision"]):
            parts = rows.get((row["table_name"], row["key"]), ([], 0))[0]
            rows[row["table_name"], row["key"]] = ([*parts, row["row"]], row["revision"])
        found = {
            (table, key, merge_parts(parts) if table == SESSIONS_TABLE else parts[-1], at)
            for (table, key), (parts, at) in rows.items()
        }
        assert {row for row in found if row[2] is not None} == {
            (row.table, row.key, row.row, row.revision) for row in reference.rows[revision]
        }


def test_links_hold_from_the_first_entry_to_the_last() -> None:
    reference = Reference(1)
    reference.grow(40)
    ledger, entry, _ = reference.entries[20]
    plan = plan_of(reference, places=frozenset({(ledger, entry)}))
    steps = steps_of(reference, plan, [9, 20])
    runs = [msgspec.msgpack.decode(row["row"], type=Run) for row in steps.to_pylist() if row["kind"] == RUN]
    ledgers = sorted({ledger_id for ledger_id, _, _ in reference.entries})
    last = reference.entries[-1][:2]
    end = link_runs(reversed(runs), ledgers, root_hash(reference.log_id), 1, last)
    assert (end.prefix_hash, end.revision) == (reference.state.prefix_hash, reference.state.revision)
    assert end.entry_count == 40
    (place,) = (row for row in steps.to_pylist() if row["kind"] == PLACE)
    assert place["row"] == reference.entries[21][2][64:96], "the next entry names it"
    with pytest.raises(ForkedLogError, match="ledger 100 entry 0 does not continue"):
        link_runs(runs, ledgers, bytes(32), 1, last)
    with pytest.raises((CorruptLogError, ForkedLogError), match="ledger 10"):
        link_runs(runs[:1] + runs[2:], ledgers, root_hash(reference.log_id), 1, last)


def test_a_change_of_a_record_that_nothing_describes_is_an_error() -> None:
    reference = Reference(1)
    reference.grow(12)
    plan = msgspec.structs.replace(plan_of(reference), descriptions={})
    with pytest.raises(CorruptLogError, match=r"ledger 101 entry \d+: revision \d+ is a record of type"):
        list(read_steps(reference.blocks(11, 12), plan)) or list(read_steps(reference.blocks(12, 13), plan))
