"""Deciding of a `Branch`: a transaction of conditions on ranges, with transactions inside.

1. All conditions, of the transactions inside as well, are judged on the map before the command.
2. Operations are then done in order; each sees what those before it did. If one cannot be done, none is.
3. The reply tells which way each transaction went. What keys held before is not in it: a reply is kept in the log, and
   the history of the map knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from rsm_spark.core.machine import Decision
from rsm_spark.errors import InvalidCommandError
from rsm_spark.map.commands import Branch, Branched, CompareRange, Seen, Unfulfilled, Unmet, WriteKey
from rsm_spark.map.draft import RELATIONS, Draft, operation_fault
from rsm_spark.map.limits import BRANCH_PARTS_MAX, COMPARED_KEYS_MAX
from rsm_spark.map.messages import encode

_ABSENT = Seen(b"", 0, 0, 0)


def branch_fault(branch: Branch) -> str | None:
    """Return what is wrong with a transaction, or None."""
    for count, part in enumerate(_parts(branch)):
        if count >= BRANCH_PARTS_MAX:
            return f"a transaction has at most {BRANCH_PARTS_MAX} comparisons and operations in all"
        fault = None
        if isinstance(part, CompareRange):
            fault = part.fault
        elif isinstance(part, WriteKey):
            fault = operation_fault(part)
        if fault is not None:
            return fault
    return None


def _parts(branch: Branch) -> Iterator[object]:
    pending = [branch]
    while pending:
        one = pending.pop()
        yield one
        for part in chain(one.compares, one.then, one.orelse):
            if isinstance(part, Branch):
                pending.append(part)
            else:
                yield part


def decide_branch(branch: Branch, draft: Draft, revision: int) -> Decision:
    """Decide a transaction.

    Args:
        branch: The transaction, without a fault.
        draft: Of this command, empty.
        revision: Of its first record.

    Raises:
        InvalidCommandError: It is too large.

    """
    taken: list[bool] = []
    _judge(branch, draft, taken)
    ways = iter(taken)
    unmet = _run(branch, draft, ways)
    if unmet is not None:
        return Decision((), encode(Unfulfilled(unmet, revision)))
    records = draft.dated_records()
    return Decision(records, encode(Branched(revision, revision + max(1, len(records)) - 1, taken)))


def _judge(branch: Branch, draft: Draft, taken: list[bool]) -> None:
    holds = all(holds_of(compare, draft) for compare in branch.compares)
    taken.append(holds)
    for operation in branch.then if holds else branch.orelse:
        if isinstance(operation, Branch):
            _judge(operation, draft, taken)


def _run(branch: Branch, draft: Draft, ways: Iterator[bool]) -> Unmet | None:
    for operation in branch.then if next(ways) else branch.orelse:
        unmet: Unmet | None = None
        if isinstance(operation, Branch):
            unmet = _run(operation, draft, ways)
        elif isinstance(operation, WriteKey):
            unmet = draft.write(operation)
        else:
            draft.run(operation)
        if unmet is not None:
            return unmet
    return None


def holds_of(compare: CompareRange, draft: Draft) -> bool:
    """Return whether a condition holds for all keys of its range; the draft is empty.

    Raises:
        InvalidCommandError: There are very many.

    """
    count = 0
    for key in draft.keys(compare.start, compare.end):
        found = draft.look(key)
        assert found is not None
        if not _relates(compare, found, draft.lease_of(key)):
            return False
        count += 1
        if count > COMPARED_KEYS_MAX:
            raise InvalidCommandError(f"a comparison looks at {COMPARED_KEYS_MAX} keys at most: the range has more")
    return count > 0 or (compare.what != "value" and _relates(compare, _ABSENT, 0))


def _relates(compare: CompareRange, found: Seen, lease: int) -> bool:
    return relates(compare, lease if compare.what == "lease" else getattr(found, compare.what))


def relates(compare: CompareRange, left: int | bytes) -> bool:
    """Return whether the relation of a condition holds for what a key has."""
    right = compare.operand
    return RELATIONS[compare.relation][1 + (left > right) - (left < right)]  # type: ignore[operator]  # of one type
