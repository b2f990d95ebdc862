"""Layouts of partitioned logs: where keys go, what waits for what, and which nodes are none."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.partition_layout import (
    GENERATIONS_MAX,
    PARTITIONS_MAX,
    KeyOrder,
    LayoutGeneration,
    PartitionLayout,
    check_growth,
    decode_layout,
    encode_layout,
    key_hash,
    new_layout,
    partition_log,
    partition_of,
    share_keys,
    split_partition_log,
)
from rsm_spark.errors import CorruptLogError, LogError


def _ids(count: int, first: int = 1) -> list[str]:
    return [f"{number:032x}" for number in range(first, first + count)]


def _grown(*counts: int, ends: int = 10) -> PartitionLayout:
    layout = new_layout("f" * 32, _ids(counts[0]))
    for number, count in enumerate(counts[1:], 1):
        present = layout.partition_count
        layout = layout.grown(_ids(count - present, present + 1), [ends * number] * present)
    return layout


def test_the_hash_of_a_key_is_what_it_has_always_been() -> None:
    assert key_hash(b"") == 0xE3B0C44298FC1C14
    assert key_hash(b"ann") == 0x49915E0D7D4B402E
    assert [partition_of(b"%d" % number, 4) for number in range(8)] == [0, 1, 2, 3, 2, 3, 3, 2]


def test_the_end_of_a_generation_is_passed_once_it_was_reached() -> None:
    order = KeyOrder(_grown(2, 3, 6))
    assert [order.passes_end(0, *span) for span in ((0, 9), (0, 10), (9, 30), (10, 19), (10, 20), (20, 99))] == [
        False, True, True, False, True, False,
    ]  # fmt: skip
    assert not order.passes_end(2, 0, 19), "it came with the second generation"
    assert order.passes_end(2, 0, 20)
    assert not order.passes_end(5, 0, 99)


@given(key=st.binary(max_size=20), before=st.integers(1, 40), after=st.integers(1, 40))
def test_a_key_goes_only_between_partitions_that_share_keys(key: bytes, before: int, after: int) -> None:
    assert share_keys(partition_of(key, before), before, partition_of(key, after), after)


@given(one=st.integers(1, 12), other=st.integers(1, 12))
def test_partitions_that_share_keys_do(one: int, other: int) -> None:
    """For each pair there is a hash, below the product of the two numbers, that goes to both."""
    found = {(number % one, number % other) for number in range(one * other)}
    for partition in range(one):
        for beside in range(other):
            assert share_keys(partition, one, beside, other) == ((partition, beside) in found)


def test_names_of_partitions_lead_back() -> None:
    assert split_partition_log(partition_log("clicks.p1", 12)) == ("clicks.p1", 12)
    for name in ("clicks", "clicks.p", "clicks.p01", ".p1", "clicks.px", "clicks.p1234"):
        assert split_partition_log(name) is None


def test_nothing_waits_before_the_first_growth() -> None:
    assert KeyOrder(_grown(4)).limit(3, {0: 0, 3: 0}) is None


def test_a_partition_waits_for_those_that_its_keys_came_from() -> None:
    order = KeyOrder(_grown(2, 4))
    assert order.limit(0, {0: 0, 1: 0, 2: 0, 3: 0}) is None, "keys of 0 were in 0 before"
    assert order.limit(2, {0: 9, 1: 10, 2: 0, 3: 0}) == 0, "2 waits for 0"
    assert order.limit(2, {0: 10, 1: 0, 2: 0, 3: 0}) is None
    assert order.limit(3, {0: 10, 1: 9, 2: 0, 3: 0}) == 0, "3 waits for 1"


def test_a_partition_is_handed_out_to_the_end_of_its_generation_while_others_lag() -> None:
    order = KeyOrder(_grown(2, 3, 4))
    assert order.limit(0, {0: 5, 1: 0, 2: 0, 3: 0}) == 10, "0 gets keys of 1 behind position 10"
    assert order.limit(0, {0: 5, 1: 10, 2: 0, 3: 0}) == 20
    assert order.limit(0, {0: 20, 1: 20, 2: 19, 3: 0}) == 20
    assert order.limit(0, {0: 20, 1: 20, 2: 20, 3: 0}) is None
    assert not order.is_settled({0: 20, 1: 20, 2: 19})
    assert order.is_settled({0: 20, 1: 20, 2: 20, 3: 0})


def test_only_partitions_that_are_read_are_waited_for() -> None:
    assert KeyOrder(_grown(2, 4)).limit(2, {2: 0, 3: 0}) is None


@given(data=st.data(), counts=st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True))
def test_some_partition_can_always_go_on_and_keys_keep_their_order(data: st.DataObject, counts: list[int]) -> None:
    """Records of all hashes in all generations: whatever partition is read next, each hash comes in order."""
    counts = sorted(counts)
    logs: dict[int, list[tuple[int, int]]] = {}  # By partition, (hash, generation) of the records.
    ends: list[list[int]] = []
    for generation, count in enumerate(counts):
        for number in range(12):
            logs.setdefault(number % count, []).append((number, generation))
        ends.append([len(logs.get(partition, [])) for partition in range(count)])
    layout = new_layout("f" * 32, _ids(counts[0]))
    for generation, count in enumerate(counts[1:]):
        present = layout.partition_count
        layout = layout.grown(_ids(count - present, present + 1), ends[generation])
    order, read = KeyOrder(layout), dict.fromkeys(range(counts[-1]), 0)
    last: dict[int, int] = {}
    while any(read[partition] < len(logs.get(partition, [])) for partition in read):
        ready = []
        for partition, position in read.items():
            limit = order.limit(partition, read)
            if position < len(logs.get(partition, [])) and (limit is None or position < limit):
                ready.append(partition)
        assert ready, f"nothing can be read at {read}"
        partition = data.draw(st.sampled_from(ready))
        number, generation = logs[partition][read[partition]]
        assert last.get(number, -1) < generation
        last[number] = generation
        read[partition] += 1


def test_a_layout_is_read_back() -> None:
    layout = _grown(1, 3, 7).claimed("a" * 32)
    assert decode_layout(encode_layout(layout), log="clicks") == layout
    assert layout.partition_count == 7


def test_a_log_only_gets_more_partitions() -> None:
    for count in (0, 3, 4, PARTITIONS_MAX + 1):
        with pytest.raises(LogError):
            check_growth("clicks", _grown(4), count)
    check_growth("clicks", _grown(4), 5)
    with pytest.raises(LogError, match="which is all that it can"):
        check_growth("clicks", _grown(*range(1, GENERATIONS_MAX + 1)), 200)


_GOOD = _grown(2, 4)


@pytest.mark.parametrize(
    "bad",
    [
        {"layout_id": "x"},
        {"log_ids": _GOOD.log_ids[:3]},
        {"log_ids": (*_GOOD.log_ids[:3], _GOOD.log_ids[0])},
        {"log_ids": (*_GOOD.log_ids[:3], "../../../etc/passwd")},
        {"generations": ()},
        {"generations": (LayoutGeneration(4),) * 2},
        {"generations": (LayoutGeneration(2, (1,)), LayoutGeneration(4))},
        {"generations": (LayoutGeneration(2, (1, -1)), LayoutGeneration(4))},
        {"generations": (LayoutGeneration(2, (9, 9)), LayoutGeneration(3, (9, 8, 1)), LayoutGeneration(4))},
        {"generations": (LayoutGeneration(2, (1, 1)), LayoutGeneration(4, (1, 1, 1, 1)))},
        {"generations": (LayoutGeneration(-1), LayoutGeneration(4))},
        {"log_ids": tuple(_ids(300)), "generations": (LayoutGeneration(300),)},
        {"generations": tuple(LayoutGeneration(1 + n, (0,) * (1 + n)) for n in range(40))},
        {"claim": -1},
        {"format": 2},
    ],
)
def test_a_node_that_cannot_be_a_layout_is_refused(bad: dict[str, object]) -> None:
    value = encode_layout(msgspec.structs.replace(_GOOD, **bad))
    with pytest.raises(CorruptLogError, match="the layout of log clicks"):
        decode_layout(value, log="clicks")


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff\xfe", b'{"layout_id": 1}', b" " * 1_000_001])
def test_bytes_that_are_no_layout_are_refused(value: bytes) -> None:
    with pytest.raises(CorruptLogError, match="the layout of log clicks"):
        decode_layout(value, log="clicks")
