from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from connectors.state.blocks import BLOCK_ARROW, ChangeSplitter, PartRule, changes_batch, part_count_of, split_changes
from connectors.state.fold import LogFold, TableChanges, decode_entry
from connectors.state.parts import SessionPart
from rsm_spark.core.digest import digest_bytes, row_term, table_prefix
from rsm_spark.core.envelope import Envelope, encode_envelope
from rsm_spark.core.records import CommandHead, Record, encode_records, pack
from tests.unit.connectors.state.histories import Shop

KEYS = [b"", b"\0", b"\0\0", b"a", b"a\0", b"ab", *(pack((f"key-{number}",)) for number in range(5_000))]


def test_a_key_is_in_the_same_part_whatever_stands_beside_it() -> None:
    parts = PartRule(7, 11)
    found = parts.of(pa.array(KEYS, pa.binary()))
    shuffled = random.Random(1).sample(range(len(KEYS)), len(KEYS))
    again = parts.of(pa.array([KEYS[place] for place in shuffled], pa.binary()).slice(3))
    assert again.tolist() == found[shuffled][3:].tolist()
    assert [int(parts.of(pa.array([key], pa.binary()))[0]) for key in KEYS[:50]] == found[:50].tolist()
    assert np.bincount(found, minlength=7).min() > len(KEYS) // 14, "a part has its share"


def test_who_does_not_know_the_seed_does_not_know_the_parts() -> None:
    one, other = (PartRule(64, seed).of(pa.array(KEYS, pa.binary())) for seed in (1, 2))
    together = [key for key, part in zip(KEYS, one, strict=True) if part == one[-1]]
    spread = PartRule(64, 2).of(pa.array(together, pa.binary()))
    assert (one == other).mean() < 0.1
    assert len(set(spread.tolist())) > 32


def test_the_size_of_a_log_says_how_many_parts_there_are() -> None:
    sizes = [0, 1 << 30, 1 << 34, 1 << 60]
    assert [part_count_of(size) for size in sizes] == sorted({part_count_of(size) for size in sizes})


@pytest.mark.parametrize("rows", [[None, b"x", None, b"long" * 99], [None], [b"", b"y"]])
def test_changes_carry_what_each_row_adds_to_the_digest(rows: list[bytes | None]) -> None:
    keys = [b"k%d" % number * number for number in range(len(rows))]
    found = changes_batch(TableChanges("t", keys, [5] * len(rows), rows), is_summed=True)
    found.validate(full=True)
    prefix = table_prefix("t")
    terms = [None if r is None else digest_bytes(row_term(prefix, key, r)) for key, r in zip(keys, rows, strict=True)]
    assert found.column("row").to_pylist() == terms


def test_blocks_hold_every_change_once_and_those_of_a_part_in_order() -> None:
    parts, splitter = PartRule(5, 3), ChangeSplitter(PartRule(5, 3))
    for first in (1, 6_001):
        revisions = list(range(first, first + len(KEYS)))
        splitter.add("t", changes_batch(TableChanges("t", KEYS, revisions, [b"r"] * len(KEYS)), is_summed=False))
    assert splitter.change_count == 2 * len(KEYS)
    seen: dict[bytes, list[int]] = defaultdict(list)
    for block in splitter.take():
        changes = pa.ipc.read_record_batch(pa.py_buffer(block.packed), BLOCK_ARROW)
        assert (block.table, block.change_count) == ("t", changes.num_rows)
        assert set(parts.of(changes.column("key")).tolist()) == {block.part}
        for row in changes.to_pylist():
            seen[row["key"]].append(row["revision"])
    assert seen == {key: [1 + place, 6_001 + place] for place, key in enumerate(KEYS)}
    assert splitter.change_count == 0
    assert list(splitter.take()) == []


def test_changes_of_one_part_are_one_block() -> None:
    changes = changes_batch(TableChanges("t", KEYS, [1] * len(KEYS), [b"r"] * len(KEYS)), is_summed=False)
    (block,) = split_changes("t", changes, PartRule(1, 9))
    assert block.change_count == len(KEYS)


@pytest.mark.parametrize("seed", range(5))
def test_a_part_of_a_session_is_what_its_commands_leave_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    answered, replies, sequence = 0, dict[int, bytes](), 0
    part, waiting = SessionPart(None, 1, 1), list[CommandHead]()
    for revision in range(2, 9_000):
        sequence += rng.choice((1, 1, 1, 2))
        upto = max(0, sequence - rng.choice((1, 5, 5_000, 9_000)))
        head = CommandHead(b"s" * 16, sequence, upto, 1, b"%d" % sequence)
        if upto > answered:
            answered, replies = upto, {number: reply for number, reply in replies.items() if number > upto}
        replies[sequence] = head.reply
        waiting.append(head)
        if rng.random() < 0.3:
            part.answer(waiting, 7 * revision, revision)
            assert part.revision == revision
            waiting = []
            if rng.random() < 0.01:
                assert part.packed() == pack((None, 7 * revision, answered, sequence, sorted(replies.items())))
    part.answer([*waiting, head], 5, 9_001)
    assert part.packed() == pack((None, 5, answered, sequence, sorted(replies.items())))


def test_what_later_records_undo_is_not_held_for_long() -> None:
    fold, number = LogFold(Shop.description), 0
    for first in range(1, 100_001, 1_000):
        records = [Record(18, None, (f"item-{at % 3}", at)) for at in range(first, first + 1_000)]
        envelope = Envelope(b"i" * 16, 1, first, 0, 5, len(records), b"h" * 32)
        payload = encode_envelope(envelope, encode_records(records))
        fold.add(decode_entry(payload, envelope, "here"), first, 5)
        assert fold.change_count <= 20_000
        number = first + 999
    rows = {row.key: (row.revision, row.row) for row in fold.take()}
    assert rows == {pack((f"item-{at % 3}",)): (at, pack((at,))) for at in range(number - 2, number + 1)}
    assert fold.change_count == 0
