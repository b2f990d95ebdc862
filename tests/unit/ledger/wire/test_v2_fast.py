"""What the quick codecs of protocol v2 write is what `ledger.wire.v2` writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.metadata import DigestType
from ledger.wire import packets as p
from ledger.wire import v2, v2_fast
from ledger.wire.codes import Status
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.v2_fast import V2AddEncoder

ids = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize("digest_type", list(DigestType))
@given(ledger_id=ids, first=st.integers(0, 2**40), payloads=st.lists(st.binary(max_size=300), max_size=5))
def test_a_batch_of_adds_is_the_requests_one_by_one(
    digest_type: DigestType, ledger_id: int, first: int, payloads: list[bytes]
) -> None:
    digest, key = Digest(digest_type, b"secret"), master_key(b"secret")
    lengths = range(100, 100 + len(payloads))
    heads, answers = V2AddEncoder(ledger_id, key, digest).heads(9, first, first - 1, lengths, payloads)
    assert len(heads) == len(answers) == len(payloads)
    for number, (head, answer, payload) in enumerate(zip(heads, answers, payloads, strict=True)):
        body = seal(ledger_id, first + number, first - 1, 100 + number, payload, digest)
        assert head + payload == v2.encode_request(p.AddRequest(0, ledger_id, first + number, key, body))
        assert answer == v2.encode_response(p.AddResponse(0, Status.EOK, ledger_id, first + number))


def test_an_add_sent_again_is_the_same_bytes() -> None:
    encoder = V2AddEncoder(7, master_key(b""), Digest(DigestType.HMAC, b"x"))
    (head,), (answer,) = encoder.heads(1, 3, -1, [5], [b"hello"])
    assert encoder.again(2, 3, head, b"hello") == (head, answer)


@given(ids, st.integers(-1, 2**63 - 1))
def test_a_plain_read_is_the_request(ledger_id: int, entry_id: int) -> None:
    assert v2_fast.read_request_frame(ledger_id, entry_id) == v2.encode_request(p.ReadRequest(0, ledger_id, entry_id))


@given(ids, ids, st.binary(max_size=30), st.integers(0, 60))
def test_only_a_whole_answer_that_says_stored_is_read(ledger_id: int, entry_id: int, before: bytes, cut: int) -> None:
    frame = v2.encode_response(p.AddResponse(0, Status.EOK, ledger_id, entry_id))
    assert v2_fast.stored_frame(ledger_id, entry_id) == frame
    stream = before + frame
    end = min(cut, len(stream))
    expected = (ledger_id, entry_id, len(stream)) if end == len(stream) else None
    assert v2_fast.stored_ids(stream, len(before), end) == expected
    refused = v2.encode_response(p.AddResponse(0, Status.EIO, ledger_id, entry_id))
    assert v2_fast.stored_ids(refused, 0, len(refused)) is None
