"""The context of a trace in an add of protocol v3: where BookKeeper's own requests have their pairs."""

from __future__ import annotations

import pytest

from ledger.core.metadata import DigestType
from ledger.wire import v3
from ledger.wire.add_batch import AddEncoder, request_context
from ledger.wire.digests import Digest, master_key
from ledger.wire.packets import AddRequest
from ledger.wire.proto import bookkeeper_pb2 as pb

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
KEY = master_key(b"")


def _frames(context: bytes, payload: bytes) -> tuple[bytes, bytes]:
    encoder = AddEncoder(5, KEY, Digest(DigestType.CRC32C))
    (head,), (stored,) = encoder.heads(1_000, 7, 6, [len(payload)], [payload], context)
    return head + payload, stored


@pytest.mark.parametrize("size", [0, 1, 100, 200, 20_000, 1_000_000])
def test_an_add_with_a_context_is_the_same_add(size: int) -> None:
    plain, stored = _frames(b"", b"x" * size)
    traced, answered = _frames(request_context("traceparent", TRACEPARENT), b"x" * size)
    assert int.from_bytes(traced[:4], "big") == len(traced) - 4
    assert answered == stored
    message = pb.Request.FromString(traced[4:])
    assert [(pair.key, pair.value) for pair in message.requestContext] == [("traceparent", TRACEPARENT)]
    message.ClearField("requestContext")
    assert message == pb.Request.FromString(plain[4:])
    found, without = v3.decode_request(traced[4:]), v3.decode_request(plain[4:])
    assert isinstance(found, AddRequest)
    assert isinstance(without, AddRequest)
    assert (found.trace, without.trace) == (TRACEPARENT, "")
    assert (found.ledger_id, found.entry_id, found.master_key, bytes(found.body)) == (5, 7, KEY, bytes(without.body))


def test_an_entry_that_is_sent_again_is_the_same_without_its_context() -> None:
    encoder = AddEncoder(5, KEY, Digest(DigestType.CRC32C))
    context = request_context("traceparent", TRACEPARENT)
    (head,), _ = encoder.heads(1_000, 7, 6, [1], [b"x"], context)
    (plain,), _ = encoder.heads(2_000, 7, 6, [1], [b"x"])
    assert encoder.again(2_000, 7, head, b"x")[0] == plain


@pytest.mark.parametrize("count", [1, 7, 8, 10_000])
def test_other_pairs_are_ignored_and_not_all_of_them_are_looked_at(count: int) -> None:
    message = pb.Request.FromString(_frames(b"", b"x")[0][4:])
    for number in range(count):
        message.requestContext.add(key=f"k{number}", value="v" * 100)
    message.requestContext.add(key="traceparent", value="not\x00one")
    found = v3.decode_request(message.SerializeToString())
    assert isinstance(found, AddRequest)
    assert found.trace == ("not\x00one" if count < 8 else "")
