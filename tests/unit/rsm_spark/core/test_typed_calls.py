"""Calls and replies as bytes: what is checked, where, and what an error is said as."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import rsm_spark as rsm
from examples.bank import Bank, InsufficientFunds
from rsm_spark.core.typed_calls import (
    TypedCall,
    call_of,
    encode_call,
    encode_error,
    is_json_call,
    json_value,
    split_call,
)
from rsm_spark.errors import DomainError, InvalidCommandError, RsmError
from tests.unit.rsm_spark.core.typed_bank import Outbox, ShelfFull

TRANSFER, _ = call_of(Bank.transfer)


def test_a_call_is_a_name_and_its_arguments_by_name() -> None:
    sent = encode_call(Bank.transfer, "ann", amount=5, target="bob")
    assert msgspec.msgpack.decode(sent) == ["transfer", {"source": "ann", "target": "bob", "amount": 5}]
    assert not is_json_call(sent)
    name, raw = split_call(sent, is_json=False)
    assert name == "transfer"
    assert TRANSFER.called(raw, is_json=False) == (("ann", "bob", 5), {})


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        (("ann",), {}, "missing required field `target`"),
        (("ann", "bob", 5, 6), {}, "takes 3 arguments, not 4"),
        (("ann", "bob", 5), {"amount": 6}, "argument 'amount' is there twice"),
        (("ann", "bob"), {"amount": -1}, "Expected `int` >= 1"),
        (("ann", "bob", 5), {"much": 6}, "unknown field `much`"),
        (("ann", "bob", 1 << 70), {}, "transfer"),
    ],
)
def test_wrong_arguments_are_not_sent(args: tuple[Any, ...], kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidCommandError, match=r"^transfer\(") as caught:
        TRANSFER.encode("transfer", args, kwargs)
    assert said in str(caught.value)


def test_an_argument_by_name_alone_is_one() -> None:
    post, _ = call_of(Outbox.post)
    with pytest.raises(InvalidCommandError, match="takes 1 arguments, not 2"):
        post.encode("post", ("hello", "b"), {})
    raw = split_call(post.encode("post", ("hello",), {"shelf": "b"}), is_json=False)[1]
    assert post.called(raw, is_json=False) == (("hello",), {"shelf": "b"})


@pytest.mark.parametrize("is_json", [False, True])
def test_a_reply_is_checked_before_it_is_said(*, is_json: bool) -> None:
    assert TRANSFER.encode_reply(5, is_json=is_json) in (b"[5]", b"\x91\x05")
    for wrong in ("5", True, None, [5], object()):
        with pytest.raises(TypeError, match="which is not of that type"):
            TRANSFER.encode_reply(wrong, is_json=is_json)


def test_an_error_arrives_as_its_class_or_as_what_is_known_of_it() -> None:
    with pytest.raises(InsufficientFunds) as known:
        TRANSFER.decode_reply(encode_error(InsufficientFunds(3), is_json=False))
    assert (known.value.missing, str(known.value)) == (3, "InsufficientFunds(missing=3)")
    with pytest.raises(DomainError) as unknown:
        TRANSFER.decode_reply(msgspec.msgpack.encode(("AccountFrozen", {"since": 2020})))
    assert type(unknown.value) is DomainError
    assert (unknown.value.error_name, unknown.value.error_fields) == ("AccountFrozen", {"since": 2020})
    assert repr(unknown.value) == "AccountFrozen(since=2020)"
    with pytest.raises(DomainError, match="wrong"):  # Of another version of the class.
        TRANSFER.decode_reply(msgspec.msgpack.encode(("InsufficientFunds", {"missing": "wrong"})))
    with pytest.raises(ShelfFull, match=r"ShelfFull\(shelf='a', room=0\)"):
        TRANSFER.decode_reply(msgspec.msgpack.encode(("ShelfFull", {"shelf": "a"})))


@pytest.mark.parametrize("reply", [b"", b"\x91", b"\x91\xa1a", b"[5]", b"\x93\x01\x02\x03", b"done"])
def test_a_reply_that_cannot_be_read_says_of_which_call(reply: bytes) -> None:
    with pytest.raises(RsmError, match=r"the reply to transfer\(.*\) -> int cannot be read"):
        TRANSFER.decode_reply(reply)


def test_of_two_errors_of_a_name_that_of_the_service_is_raised() -> None:
    class InsufficientFunds(DomainError):  # noqa: N818 - a word of the domain
        missing: int

    with pytest.raises(rsm.DomainError) as caught:
        TRANSFER.decode_reply(encode_error(InsufficientFunds(3), is_json=False))
    assert type(caught.value).__module__ == "examples.bank"


def test_an_error_cannot_have_the_name_of_the_answer_to_a_wrong_call() -> None:
    with pytest.raises(TypeError, match="give this DomainError another name"):
        type("InvalidCommandError", (DomainError,), {})


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        (lambda self, amount: 5, "argument amount needs a type"),  # noqa: ARG005
        (lambda self: 5, "it needs the type of its reply"),  # noqa: ARG005
        (lambda self, *names: 5, "needs a type, and no stars"),  # noqa: ARG005
    ],
)
def test_a_method_without_types_is_no_call(method: Any, fault: str) -> None:
    with pytest.raises(TypeError, match=fault.replace("*", r"\*")):
        _ = TypedCall(method, is_query=False).types


def test_what_is_no_call_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'Bank.calls' is no command or query|'Service.calls' is no command or query"):
        call_of(Bank.calls)


def test_a_reply_in_json_is_read_without_the_services_class() -> None:
    assert json_value(b'[{"a": 1}]') == {"a": 1}
    with pytest.raises(DomainError, match=r"^AccountFrozen\(since=2020\)$"):
        json_value(b'["AccountFrozen", {"since": 2020}]')
    with pytest.raises(InvalidCommandError, match="^no such$"):
        json_value(b'["InvalidCommandError", {"message": "no such"}]')
    for reply in (b"", b"done", b"5", b"[]", b"[1, 2]", b"[1, 2, 3]"):
        with pytest.raises(InvalidCommandError, match="this service has no typed commands"):
            json_value(reply)
