"""What the fast path writes is what protobuf writes, and both read the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.metadata import DigestType
from ledger.errors import RemoteProtocolError
from ledger.wire import packets as p
from ledger.wire import v3, v3_fast
from ledger.wire.add_batch import AddEncoder
from ledger.wire.codes import FenceState, OperationType, Status
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal, unseal
from ledger.wire.frames import frame
from ledger.wire.varint import decode_varint, encode_varint

txn_ids = st.integers(0, 2**64 - 1)
ids = st.integers(0, 2**63 - 1)
signed = st.integers(-(2**63), 2**63 - 1)
statuses = st.sampled_from(list(Status))
payloads = st.binary(max_size=600)
keys = st.binary(min_size=20, max_size=20)
maybe_bytes = st.none() | st.binary(max_size=50)


def body_of(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    return seal(ledger_id, entry_id, entry_id - 1, len(payload), payload, Digest(DigestType.CRC32C))


ENTRY = body_of(5, 0, b"x")
BAD = Status.EBADVERSION


@st.composite
def add_requests(draw: st.DrawFn) -> p.AddRequest:
    ledger_id, entry_id = draw(ids), draw(ids)
    body = body_of(ledger_id, entry_id, draw(payloads))
    flags = draw(st.booleans()), draw(st.integers(0, 1)), draw(st.sampled_from([0, 100]))
    return p.AddRequest(draw(txn_ids), ledger_id, entry_id, draw(keys), body, *flags)


requests = st.one_of(
    add_requests(),
    st.builds(
        p.ReadRequest, txn_ids, ids, signed, st.none() | keys, st.booleans(), st.just(False), st.none() | signed,
        st.none() | ids, st.sampled_from([0, 100]),
    ),
    st.builds(p.ReadRequest, txn_ids, ids, signed, is_piggyback=st.just(True), previous_lac=signed, timeout_ms=ids),
    st.builds(p.AuthRequest, txn_ids, st.text(max_size=9), st.binary(max_size=9)),
    st.builds(p.WriteLacRequest, txn_ids, ids, signed, keys, st.binary(max_size=40)),
    st.builds(p.ReadLacRequest, txn_ids, ids),
    st.builds(p.FenceCheckRequest, txn_ids, ids, keys),
    st.builds(p.InfoRequest, txn_ids, st.integers(0, 3)),
    st.builds(p.StartTlsRequest, txn_ids),
    st.builds(p.ForceRequest, txn_ids, ids),
    st.builds(p.ListRequest, txn_ids, ids),
    st.builds(p.UnsupportedRequest, txn_ids, st.just(OperationType.RANGE_READ_ENTRY)),
)  # fmt: skip
responses = st.one_of(
    st.builds(p.AddResponse, txn_ids, statuses, ids, signed),
    st.builds(p.ReadResponse, txn_ids, statuses, ids, signed, maybe_bytes, st.none() | signed, st.none() | signed),
    st.builds(p.AuthResponse, txn_ids, statuses, st.text(max_size=9), st.binary(max_size=9)),
    st.builds(p.WriteLacResponse, txn_ids, statuses, ids),
    st.builds(p.ReadLacResponse, txn_ids, statuses, ids, maybe_bytes, maybe_bytes),
    st.builds(p.FenceCheckResponse, txn_ids, statuses, ids),
    st.builds(p.FenceCheckResponse, txn_ids, st.just(Status.EOK), ids, st.sampled_from(list(FenceState))),
    st.builds(p.InfoResponse, txn_ids, statuses, st.none() | ids, st.none() | ids),
    st.builds(p.StartTlsResponse, txn_ids, statuses),
    st.builds(p.ForceResponse, txn_ids, statuses, ids),
    st.builds(p.ListResponse, txn_ids, statuses, ids, maybe_bytes),
    st.builds(p.UnsupportedResponse, txn_ids, statuses, st.just(OperationType.BATCH_READ_ENTRY)),
)


@given(signed)
def test_a_varint_survives_a_round_trip(number: int) -> None:
    assert decode_varint(encode_varint(number)) == number


@given(requests)
def test_a_request_survives_a_round_trip(request: p.Request) -> None:
    assert v3.decode_request(v3.encode_request(request)[4:]) == request


@given(requests)
def test_a_request_is_the_bytes_of_protobuf(request: p.Request) -> None:
    assert v3.encode_request(request) == frame(v3._request_message(request).SerializeToString())


@given(st.integers(0, 2**63 - 1), ids, signed)
def test_a_plain_read_is_the_bytes_of_protobuf(txn_id: int, ledger_id: int, entry_id: int) -> None:
    request = p.ReadRequest(txn_id, ledger_id, entry_id)
    assert v3_fast.read_request_frame(encode_varint(txn_id), ledger_id, entry_id) == v3.encode_request(request)


@given(requests)
def test_both_paths_read_the_same_request(request: p.Request) -> None:
    packet = memoryview(v3.encode_request(request))[4:]
    assert v3.decode_request(packet) == v3._decode_request(packet)


@given(responses)
def test_a_response_survives_a_round_trip(response: p.Response) -> None:
    assert v3.decode_response(v3.encode_response(response)[4:]) == response


@given(responses)
def test_a_response_is_the_bytes_of_protobuf(response: p.Response) -> None:
    assert v3.encode_response(response) == frame(v3._response_message(response).SerializeToString())


@given(st.builds(p.ReadResponse, txn_ids, st.just(Status.EOK), ids, signed, payloads, st.none() | signed))
def test_an_entry_in_parts_is_the_frame_of_protobuf(response: p.ReadResponse) -> None:
    assert response.body is not None
    parts = v3_fast.read_response_parts(
        response.txn_id, response.ledger_id, response.entry_id, response.body, response.max_lac
    )
    assert b"".join(parts) == v3.encode_response(response)


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_a_batch_of_adds_is_the_requests_one_by_one(digest_type: DigestType) -> None:
    digest = Digest(digest_type, b"secret")
    key = master_key(b"secret")
    batch = [b"one", b"", b"three" * 50]
    lengths = [103, 103, 353]
    heads, answers = AddEncoder(7, key, digest).heads(500, 10, 9, lengths, batch)
    for number, (head, payload) in enumerate(zip(heads, batch, strict=True)):
        body = seal(7, 10 + number, 9, lengths[number], payload, digest)
        assert head + payload == v3.encode_request(p.AddRequest(500 + number, 7, 10 + number, key, body))
        assert answers[number] == v3.encode_response(p.AddResponse(500 + number, Status.EOK, 7, 10 + number))


def test_a_batch_of_adds_may_cross_the_sizes_of_numbers() -> None:
    digest = Digest(DigestType.CRC32C)
    key = master_key(b"")
    batch = [b"x" * (number % 3) for number in range(20)]
    heads, answers = AddEncoder(300, key, digest).heads(16375, 120, -1, range(20), batch)
    for number, (head, payload) in enumerate(zip(heads, batch, strict=True)):
        body = seal(300, 120 + number, -1, number, payload, digest)
        assert head + payload == v3.encode_request(p.AddRequest(16375 + number, 300, 120 + number, key, body))
        assert answers[number] == v3.encode_response(p.AddResponse(16375 + number, Status.EOK, 300, 120 + number))


def test_an_add_sent_again_carries_the_same_entry_under_another_transaction() -> None:
    digest = Digest(DigestType.CRC32C)
    encoder = AddEncoder(7, master_key(b""), digest)
    (head,), _ = encoder.heads(1, 0, -1, [5], [b"hello"])
    again, answer = encoder.again(300, 0, head, b"hello")
    first = v3.decode_request((head + b"hello")[4:])
    second = v3.decode_request((again + b"hello")[4:])
    assert isinstance(first, p.AddRequest)
    assert isinstance(second, p.AddRequest)
    assert (second.txn_id, second.body) == (300, first.body)
    assert answer == v3.encode_response(p.AddResponse(300, Status.EOK, 7, 0))
    assert unseal(second.body, digest, ledger_id=7, entry_id=0).payload == b"hello"


@pytest.mark.parametrize("entry_id", [6, -1])
def test_an_add_whose_entry_is_another_is_a_bad_request(entry_id: int) -> None:
    request = p.AddRequest(1, 5, entry_id, b"k" * 20, body_of(5, 7 if entry_id == 6 else -1, b"x"))
    assert v3.decode_request(v3.encode_request(request)[4:]) == p.UnsupportedRequest(1, OperationType.ADD_ENTRY)


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_is_a_packet(packet: bytes) -> None:
    for decode in (v3.decode_request, v3.decode_response):
        try:
            decode(packet)
        except RemoteProtocolError:
            pass


@given(add_requests(), st.integers(0, 2**31))
def test_an_add_request_cut_anywhere_is_never_an_add(request: p.AddRequest, cut: int) -> None:
    packet = v3.encode_request(request)[4:]
    try:
        decoded = v3.decode_request(packet[: cut % len(packet)])
    except RemoteProtocolError:
        return
    assert decoded == p.UnsupportedRequest(request.txn_id, OperationType.ADD_ENTRY)  # cut right behind the header


@given(add_requests(), st.integers(0, 2**31), st.integers(1, 255))
def test_a_damaged_add_request_reads_as_protobuf_reads_it(request: p.AddRequest, place: int, flip: int) -> None:
    packet = bytearray(v3.encode_request(request)[4:])
    packet[place % len(packet)] ^= flip
    fast = v3_fast.fast_add_request(bytes(packet))
    assert fast is None or fast == v3._decode_request(bytes(packet))


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (p.AddRequest(1, 5, 0, b"k" * 20, ENTRY), p.AddResponse(1, BAD, 5, 0)),
        (p.ReadRequest(1, 5, 7), p.ReadResponse(1, BAD, 5, 7)),
        (p.ReadLacRequest(1, 5), p.ReadLacResponse(1, BAD, 5)),
        (p.FenceCheckRequest(1, 5, b"k" * 20), p.FenceCheckResponse(1, BAD, 5)),
        (p.WriteLacRequest(1, 5, 7, b"k" * 20, b"lac"), p.WriteLacResponse(1, BAD, 5)),
        (p.ForceRequest(1, 5), p.ForceResponse(1, BAD, 5)),
        (p.ListRequest(1, 5), p.ListResponse(1, BAD, 5)),
        (p.InfoRequest(1, 3), p.InfoResponse(1, BAD)),
    ],
)
def test_a_request_of_another_version_carries_the_answer_that_says_so(request_: p.Request, answer: p.Response) -> None:
    message = v3._request_message(request_)
    message.header.version = 2
    refused = v3.decode_request(message.SerializeToString())
    assert isinstance(refused, p.RefusedRequest)
    assert v3.decode_response(refused.answer[4:]) == answer


@pytest.mark.parametrize("request_", [p.AuthRequest(1, "x", b""), p.StartTlsRequest(1)])
def test_a_log_in_and_a_change_to_tls_are_of_any_version(request_: p.Request) -> None:
    message = v3._request_message(request_)
    message.header.version = 1
    assert v3.decode_request(message.SerializeToString()) == request_
