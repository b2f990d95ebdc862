"""Properties that every state machine must have, looked for with commands that hypothesis draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.decoding import json_decoder
from rsm_spark.core.envelope import body_of
from rsm_spark.core.machine import Fold, MachineDescription, StateMachine, evolving
from rsm_spark.core.records import MACHINE_TYPE_FIRST, decode_records, pack
from rsm_spark.testing.harness import MachineHarness

if TYPE_CHECKING:  # Only tests have hypothesis.
    from hypothesis.strategies import SearchStrategy

_PAUSES_MS = (0, 1, 1_000, 3_600_000)


def check_machine(
    make: Callable[[], StateMachine],
    commands: SearchStrategy[bytes],
    *,
    queries: SearchStrategy[bytes] | None = None,
    older: Callable[[], StateMachine] | None = None,
    commands_max: int = 30,
) -> None:
    """Check a machine with sequences of commands; hypothesis finds the shortest one that breaks it.

    * `decide` and `query` change nothing, and decide the same again
    * two machines that are asked the same log the same, and tell the same
    * a replica that only folds the log comes to the same digest
    * one that begins from a snapshot goes on as if it had been there
    * the description tells the truth: whoever folds the log by it alone has the machine's rows
    * with `older`: what an older version logged is folded by this one, and its snapshots are restored

    Args:
        make: Makes an empty machine.
        commands: Draws commands; such that are refused too.
        queries: Draws queries; None = none are asked.
        older: Makes an empty machine of an older version, which decides the same commands first.
        commands_max: At most so many commands at once.

    Raises:
        AssertionError: A property does not hold; the message names it.
        ModuleNotFoundError: hypothesis is not installed: `pip install hypothesis`.

    """
    from hypothesis import given, settings  # noqa: PLC0415 - only tests have it
    from hypothesis import strategies as st  # noqa: PLC0415

    steps = st.lists(st.tuples(commands, st.sampled_from(_PAUSES_MS)), max_size=commands_max)
    asked = st.lists(queries, max_size=3) if queries is not None else st.just([])

    if older is not None:
        MachineHarness(older()).restart(make())  # Versions that cannot follow each other are told without a search.

    @settings(report_multiple_bugs=False)
    @given(steps, steps if older is not None else st.just([]), asked)
    def check(steps: Sequence[tuple[bytes, int]], before: Sequence[tuple[bytes, int]], asked: Sequence[bytes]) -> None:
        _check(make, steps, asked, older, before)

    check()


def _check(
    make: Callable[[], StateMachine],
    steps: Sequence[tuple[bytes, int]],
    asked: Sequence[bytes],
    older: Callable[[], StateMachine] | None,
    before: Sequence[tuple[bytes, int]],
) -> None:
    first, second = (
        MachineHarness(make() if older is None else older()),
        MachineHarness(make() if older is None else older()),
    )
    if older is not None:
        for harness in (first, second):
            for command, pause_ms in before:
                _step(harness, command, pause_ms)
            harness.restart(make())
            if evolving(harness.machine) is not None:
                harness.raise_version()
    for number, (command, pause_ms) in enumerate(steps):
        if number == len(steps) // 2:
            first.promote()
            second.restart(make())  # A leadership begins by an entry: both have the same log.
        _decides_purely(first, command)
        told = [_step(harness, command, pause_ms) for harness in (first, second)]
        assert told[0] == told[1], f"deterministic: command {command!r} came to {told[0]}, and then to {told[1]}"
    for query in asked:
        digest = first.digest
        answers = {_outcome(partial(harness.query, query)) for harness in (first, second)}
        assert len(answers) == 1, f"deterministic: query {query!r} is answered with {sorted(map(repr, answers))}"
        assert first.digest == digest, f"query {query!r} changes the state"
    assert first.entries == second.entries, "deterministic: the same commands made another log"
    follower = first.replay(make())
    assert follower.digest == first.digest, "a replica that folds the log comes to another state"
    follower.validate()
    _description_is_true(first)


def _step(harness: MachineHarness, command: bytes, pause_ms: int) -> Any:
    return _outcome(partial(harness.execute, command)), harness.advance(pause_ms)


def _outcome(ask: Callable[[], Any]) -> Any:
    """Return what was told, also of a machine that raised: a service refuses that command, for good."""
    try:
        return ask()
    except AssertionError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the machine's
        return f"{type(error).__name__}: {error}"


def _decides_purely(harness: MachineHarness, command: bytes) -> None:
    rows = sorted(harness.machine.rows())

    def decide() -> Any:
        decision = harness.machine.decide(command, harness.revision + 1, harness.now_ms)
        return [(kind, tuple(fields)) for kind, fields in decision.records], decision.reply

    once, again = _outcome(decide), _outcome(decide)
    assert once == again, f"pure: `decide` of {command!r} answers {once}, and then {again}"
    assert sorted(harness.machine.rows()) == rows, f"pure: `decide` of {command!r} changes the state"


def _description_is_true(harness: MachineHarness) -> None:
    """Fold the log by its descriptions alone, as Spark does, and compare."""
    rows: dict[tuple[str, bytes], bytes] = {}
    description: MachineDescription | None = None
    for payload in harness.entries:
        for record in decode_records(body_of(payload)):
            if record.type == 0:
                description = json_decoder(MachineDescription).decode(record.fields[0])
            elif record.type >= MACHINE_TYPE_FIRST:
                assert description is not None
                fold_row(rows, description, record.type, record.fields)
    own = {(row.table, row.key): row.row for row in harness.machine.rows()}
    assert rows == own, (
        f"the description is true: the log says {len(rows)} rows, the machine has {len(own)}; different are "
        f"{sorted({key for key in {**rows, **own} if rows.get(key) != own.get(key)})[:3]}"
    )


def fold_row(rows: dict[tuple[str, bytes], bytes], description: MachineDescription, kind: int, fields: Any) -> None:
    """Fold a record by a description alone, as whoever reads a log does who has not the machine's code.

    Args:
        rows: Of all tables, by table and key; changed.
        description: In force in the log.
        kind: The record's type.
        fields: Its fields.

    Raises:
        AssertionError: It is not as described.

    """
    record = next((one for one in description.records if one.type == kind), None)
    assert record is not None, f"the description is true: record type {kind} is not described"
    assert len(fields) == len(record.fields), (
        f"the description is true: record {record.name!r} has {len(fields)} fields"
    )
    values = dict(zip((field.name for field in record.fields), fields, strict=True))
    key = record.table, pack([values[name] for name in record.key])
    if record.fold is Fold.UPSERT:
        rows[key] = pack([values[name] for name in record.row])
    elif record.fold is Fold.DELETE:
        rows.pop(key, None)
