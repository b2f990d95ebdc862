from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from connectors.pool.shares import StatementSlots, write_allocations


def test_runs_at_once_have_pools_of_their_own_and_a_pool_that_is_free_is_lent_again() -> None:
    slots = StatementSlots()
    with slots.taken() as first:
        with ExitStack() as stack:
            names = [first, *(stack.enter_context(slots.taken()) for _ in range(3))]
            assert names == [f"statement-{number}" for number in range(1, 5)]
        with slots.taken() as again:
            assert again == "statement-2"
    with slots.taken() as last:
        assert last == "statement-1"


def test_a_pool_that_is_taken_while_a_lower_one_is_free_is_not_lent_twice() -> None:
    slots = StatementSlots()
    first, second = slots.taken(), slots.taken()
    first.__enter__()
    assert second.__enter__() == "statement-2"
    first.__exit__(None, None, None)
    with slots.taken() as one, slots.taken() as other:
        assert (one, other) == ("statement-1", "statement-3")
    second.__exit__(None, None, None)


def test_the_file_of_pools_gives_each_statement_one_share_and_functions_as_many_as_they_are(tmp_path: Path) -> None:
    uri = write_allocations(tmp_path, statements=2, functions=3)
    pools = ET.parse(urlsplit(uri).path).getroot()  # noqa: S314 - it was written here
    found = {pool.get("name"): (pool.findtext("schedulingMode"), pool.findtext("weight")) for pool in pools}
    assert found == {"statement-1": ("FIFO", "1"), "statement-2": ("FIFO", "1"), "default": ("FAIR", "3")}
