"""Entries as a block."""

from __future__ import annotations

import pytest

from ledger.core.entry import Entry
from ledger.core.entry_block import EntryBlock

ENTRIES = [Entry(4, 5, 103, b"abc"), Entry(5, 5, 103, b""), Entry(6, 5, 105, b"de")]


def test_a_block_of_entries_holds_what_readers_count_and_pass_on() -> None:
    block = EntryBlock.of(ENTRIES)
    assert (block.first_entry_id, len(block), block.payload_bytes) == (4, 3, 5)
    assert list(block.payloads) == [b"abc", b"", b"de"]
    assert list(block.lengths) == [103, 103, 105]


def test_the_head_of_a_block_is_a_block_of_its_first_entries() -> None:
    block = EntryBlock.of(ENTRIES)
    head = block.head(2)
    assert (head.first_entry_id, list(head.payloads), list(head.lengths)) == (4, [b"abc", b""], [103, 103])
    assert block.head(3) is block
    assert block.head(10) is block


def test_a_block_without_a_length_for_each_payload_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        EntryBlock(0, [b"a"], [])
