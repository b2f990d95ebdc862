"""No stretch of more than twelve lines stands twice in product code, also with other names, strings and numbers."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.tidy.twins import Twins, find_twins

_ROOT = Path(__file__).resolve().parents[2]
_PRODUCT = ("ledger", "rsm_spark", "broker", "connectors", "jobs", "rsm_demo")
_GENERATED = re.compile(r"_pb2(_grpc)?\.py$|(^|/)(client|logs)/blocking\.py$")
_LINES = 12
_ALLOWED = {
    ("broker/client/task.py", "broker/machine/commands.py"): (
        "a task as its caller says it (seconds, text) and as the log keeps it (milliseconds, bytes): a client imports "
        "no state machine, and a test holds the fields of one against the other"
    ),
}
"""Two places, in the order of their names, and why both stand."""


def _product() -> list[tuple[str, str]]:
    return [
        (name, path.read_text(encoding="utf-8"))
        for package in _PRODUCT
        for path in sorted((_ROOT / package).rglob("*.py"))
        if not _GENERATED.search(name := path.relative_to(_ROOT).as_posix())
    ]


def _pair(twins: Twins) -> tuple[str, str]:
    first, second = sorted((twins.one.path, twins.other.path))
    return first, second


@pytest.fixture(scope="module")
def twins() -> list[Twins]:
    return find_twins(_product(), more_than=_LINES)


def test_nothing_of_the_product_stands_twice(twins: list[Twins]) -> None:
    found = [
        f"{one.lines} lines stand twice: {one.one} and {one.other}; make them one, under a name of the field"
        for one in twins
        if _pair(one) not in _ALLOWED
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_what_may_stand_twice_does(twins: list[Twins]) -> None:
    assert set(_ALLOWED) <= set(map(_pair, twins))


_ORIGINAL = '''
class Journal:
    """Takes what comes."""

    def take(self, entries: list[Entry], now_ms: int, limit: int = 64) -> int:
        """Take what there is room for."""
        taken = 0
        for entry in entries:
            if entry.ledger_id not in self._ledgers:
                raise MissingLedgerError(f"ledger {entry.ledger_id} is not here")
            if taken >= limit:
                break
            # Room is made first.
            self._room -= len(entry.payload)
            while self._room < 0:
                self._room += self._flush(now_ms - 10)
            self._ledgers[entry.ledger_id].append(entry.payload)
            taken += 1
        return taken
'''
_RENAMED = '''
import time

class Mailbox:
    def deliver(
        self, letters: list[Letter], at: int, most: int = 100
    ) -> int:
        """Says something else."""
        count = 0

        for letter in letters:
            if letter.street not in self.doors:
                raise NoSuchDoor(f"nobody lives in {letter.street}")
            if count >= most:
                break
            self.weight -= len(letter.paper)
            while self.weight < 0:
                self.weight += self._carry(at - 3,)  # Not all at once.
            self.doors[letter.street].append(letter.paper)
            count += 1
        return count
'''
_DIFFERENT = """
class Mailbox:
    def deliver(self, letters: list[Letter], at: int, most: int = 100) -> int:
        count = 0
        for letter in letters:
            if letter.street not in self.doors:
                raise NoSuchDoor(f"nobody lives in {letter.street}")
            if count >= most:
                break
            self.doors[letter.street] = [*self.doors[letter.street], letter.paper]
            self.weight = max(self.weight - len(letter.paper), 0)
            if not self.weight:
                self.carry(at)
            count += 1
        return count
"""


def _found(one: str, other: str) -> list[Twins]:
    return find_twins([("one.py", textwrap.dedent(one)), ("other.py", textwrap.dedent(other))], more_than=_LINES)


def test_a_twin_with_other_names_strings_numbers_and_layout_is_found() -> None:
    (twins,) = _found(_ORIGINAL, _RENAMED)
    assert (twins.one.path, twins.one.last) == ("one.py", 19)
    assert (twins.other.path, twins.other.last) == ("other.py", 21)
    assert twins.lines > _LINES


def test_a_twin_within_one_file_is_found() -> None:
    (twins,) = find_twins([("one.py", _ORIGINAL + _RENAMED)], more_than=_LINES)
    assert twins.one.last < twins.other.first


def test_code_that_does_another_thing_is_no_twin() -> None:
    assert _found(_ORIGINAL, _DIFFERENT) == []


def test_a_list_of_parameters_counts_by_its_names() -> None:
    parameters = ",\n".join(f"    parameter_{number}: int | None = None" for number in range(14))
    one = f"def write(\n{parameters},\n) -> None: ..."
    assert [twins.lines for twins in _found(one, one.replace("write", "send"))] == [16]
    assert _found(one, re.sub(r"parameter_(\d+)", r"option_\1", one)) == []


def test_rows_of_tables_and_declarations_are_no_code() -> None:
    rows = "\n".join(f'    Row({number}, "{number}", Kind.PLAIN, is_kept=True),' for number in range(20))
    assert _found(f"ROWS = (\n{rows}\n)", f"OTHERS = (\n{rows.replace('PLAIN', 'ODD')}\n)") == []
    fields = "\n".join(f"    field_{number}: int = {number}" for number in range(20))
    assert _found(f"class One:\n{fields}", f"class Other:\n{fields.replace('field', 'column')}") == []
    fields = "\n".join(
        f"    @property\n    def field_{n}(self) -> int:\n        return self._held.field_{n}" for n in range(8)
    )
    assert _found(f"class One:\n{fields}", f"class Other:\n{fields.replace('field', 'column')}") == []
