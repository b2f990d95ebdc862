"""Whatever a client, a worker or a stranger sends is answered; nothing of it is an error of the broker."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.machine import messages
from broker.machine.commands import BrokerCommand, SubmitTasks, TaskSpec, WorkerAppeared
from broker.machine.policies import WorkerOffer
from broker.machine.queries import BrokerQuery
from broker.machine.statuses import TaskStatus
from tests.unit.broker.machine.driven_broker import DrivenBroker

INTS = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 5, 7, 2**31, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(-10, 100)
TEXTS = st.sampled_from(["", "acme", "mail", "w", "i1", "s", "k", "x" * 201, "é" * 101, "a\nb", "{}", "a=1,b"])
FLOATS = st.sampled_from([float("nan"), float("inf"), -1.0, 0.0, 0.5, 1.0, 1e308])


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a type, the odd ones above all."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: INTS, str: TEXTS | st.text(max_size=5), bytes: st.binary(max_size=20), float: FLOATS, bool: st.booleans(),
        type(None): st.none(),
    }  # fmt: skip
    if hint in plain:
        return plain[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return st.one_of(*map(values, arguments))
    if origin is list:
        return st.lists(values(arguments[0]), max_size=4)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    hints = get_type_hints(hint)
    return st.builds(hint, **{name: values(hints[name]) for name in hint.__struct_fields__})


COMMANDS = st.one_of(*[values(kind) for kind in get_args(BrokerCommand)])
QUERIES = st.one_of(*[values(kind) for kind in get_args(BrokerQuery)])


def lively() -> DrivenBroker:
    """Return a broker with tasks in most states."""
    broker = DrivenBroker()
    broker.run(WorkerAppeared("w", "i1", "", WorkerOffer(2)))
    broker.submit(*[TaskSpec("mail", slot=slot) for slot in ("s", "", "", "")], TaskSpec("mail", delay_ms=5))
    broker.fire()
    broker.end(broker.listed(statuses=[TaskStatus.RUNNING])[0], TaskStatus.ERROR)
    return broker


@settings(max_examples=150, deadline=None)
@given(commands=st.lists(COMMANDS, min_size=1, max_size=12), query=QUERIES)
def test_odd_commands_and_queries_are_answered_and_leave_a_sound_state(commands: list[Any], query: Any) -> None:
    broker = lively()
    for command in commands:
        broker.run(command)
        broker.fire()
    broker.ask(query)
    broker.check()


@settings(max_examples=200, deadline=None)
@given(text=st.binary(max_size=60) | COMMANDS.map(messages.encode), at=st.integers(0, 60), to=st.integers(0, 255))
def test_damaged_bytes_are_answered(text: bytes, at: int, to: int) -> None:
    broker = DrivenBroker()
    if at < len(text):
        text = text[:at] + bytes((to,)) + text[at + 1 :]
    broker.run(text)
    broker.ask(text)


@given(command=COMMANDS)
def test_a_command_comes_back_from_its_bytes(command: Any) -> None:
    text = messages.encode(command)
    try:
        decoded = messages.decode_command(text)
    except msgspec.ValidationError:
        return  # A number that its field does not take.
    assert messages.encode(decoded) == text


def test_a_message_of_a_newer_version_with_more_fields_is_read() -> None:
    text = messages.encode(SubmitTasks("acme", [TaskSpec("mail")]))
    newer = msgspec.msgpack.encode([*msgspec.msgpack.decode(text), "more"])
    assert messages.decode_command(newer) == SubmitTasks("acme", [TaskSpec("mail")])


@pytest.mark.parametrize("decode", [messages.decode_reply, messages.decode_result, messages.decode_query])
def test_bytes_that_are_no_message_are_said_to_be_none(decode: Any) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(b"\x91\xcc\xff")
