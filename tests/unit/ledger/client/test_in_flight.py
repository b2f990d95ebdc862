"""What is in flight on one connection, against streams of answers that are right, odd and damaged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from ledger.client.add_runs import AddBatch
from ledger.client.in_flight import InFlight, joined
from ledger.core.metadata import DigestType
from ledger.errors import RemoteProtocolError
from ledger.wire import v2, v3
from ledger.wire.codes import Status
from ledger.wire.digests import Digest, master_key
from ledger.wire.frames import FrameBuffer
from ledger.wire.packets import AddResponse, ReadResponse, Response
from ledger.wire.protocol import PROTOCOLS
from tests.sets import examples


class Nobody:
    """An asker that is only looked at."""

    def on_stored(self, bookie_id: str, tokens: Sequence[Any]) -> None:
        raise NotImplementedError

    def on_responses(self, bookie_id: str, responses: list[tuple[Any, Response]]) -> None:
        raise NotImplementedError

    def on_unanswered(self, bookie_id: str, tokens: Sequence[Any], reason: str) -> None:
        raise NotImplementedError


class Flight:
    """40 adds in 4 batches and 10 reads, and the frames that answer them."""

    def __init__(self, name: str) -> None:
        self.protocol = PROTOCOLS[name]
        self.in_flight = InFlight(self.protocol)
        self.frames: list[bytes] = []
        encode = v2.encode_response if name == "v2" else v3.encode_response
        encoder = self.protocol.add_encoder(5, master_key(b""), Digest(DigestType.CRC32C))
        for first in range(0, 40, 10):
            _, answers = encoder.heads(120 + first, first, -1, range(10), [b"x"] * 10)
            self.in_flight.add_batch(AddBatch(Nobody(), 5, range(first, first + 10), answers), now=float(first))
            refused = AddResponse(120 + first + 3, Status.EIO, 5, first + 3)
            self.frames += [*answers[:3], encode(refused), *answers[4:]]
        for number in range(10):
            _, key = self.protocol.encode_read(300 + number, 5, number)
            self.in_flight.add_request(key, (Nobody(), f"read {number}"), now=0.0)
            status = Status.EOK if number % 2 else Status.ENOENTRY
            self.frames.append(encode(ReadResponse(300 + number, status, 5, number, b"entry" if number % 2 else None)))
        self.tokens: list[Any] = []

    def receive(self, stream: bytes, rng: random.Random) -> None:
        """Take a stream in pieces, as a channel does; the tokens that were answered are in `tokens`."""
        buffer = FrameBuffer()
        while stream:
            part, stream = stream[: (size := rng.choice((1, 9, 28, 100, 5000)))], stream[size:]
            buffer.get_buffer(-1)[: len(part)] = part
            stored, packets = buffer.take_after_run(len(part), self.in_flight.adds.take_stored)
            self.tokens += [entry_id for _, entry_ids in stored for entry_id in entry_ids]
            for packet in packets:
                self.tokens += [token for _, token, _ in self.in_flight.take(packet)]
            if buffer.damage is not None:
                raise buffer.damage
            self.in_flight.adds.validate()


@pytest.mark.parametrize("name", ["v2", "v3"])
def test_every_request_is_answered_once_in_any_order(name: str) -> None:
    everything = sorted([*map(str, range(40)), *(f"read {number}" for number in range(10))])
    for seed in range(100):
        rng = random.Random(seed)
        flight = Flight(name)
        if seed:
            rng.shuffle(flight.frames)
        flight.receive(b"".join(flight.frames), rng)
        assert sorted(map(str, flight.tokens)) == everything
        assert flight.in_flight.clear() == []


@pytest.mark.parametrize("name", ["v2", "v3"])
def test_a_damaged_stream_ends_in_its_own_error_and_answers_nothing_twice(name: str) -> None:
    ended = 0
    seeds = examples(600)
    for seed in range(seeds):
        rng = random.Random(seed)
        flight = Flight(name)
        stream = bytearray(b"".join(flight.frames))
        for _ in range(rng.choice((1, 2, 5))):
            place = rng.randrange(len(stream))
            match rng.randrange(3):
                case 0:
                    stream[place] ^= 1 << rng.randrange(8)
                case 1:
                    del stream[place : place + rng.choice((1, 28, 100))]
                case _:
                    stream[place:place] = rng.choice(flight.frames)
        try:
            flight.receive(bytes(stream), rng)
        except RemoteProtocolError:
            ended += 1
        answered = list(map(str, flight.tokens))
        assert len(set(answered)) == len(answered)
        rest = [str(token) for _, tokens in flight.in_flight.clear() for token in tokens]
        assert sorted(answered + rest) == sorted([*map(str, range(40)), *(f"read {number}" for number in range(10))])
    assert ended > seeds // 3


@pytest.mark.parametrize("name", ["v2", "v3"])
def test_an_answer_after_its_time_is_taken_for_nothing_and_a_second_one_is_an_error(name: str) -> None:
    flight = Flight(name)
    given_up = flight.in_flight.overdue(now=105.0, limit_s=90.0)
    assert sorted(str(token) for _, tokens in given_up for token in tokens) == sorted(
        [*map(str, range(20)), *(f"read {number}" for number in range(10))]
    )
    assert flight.in_flight.late_count == 30
    flight.receive(b"".join(flight.frames), random.Random(1))
    assert flight.tokens == list(range(20, 40))
    assert flight.in_flight.late_count == 0
    with pytest.raises(RemoteProtocolError, match="belongs to no request"):
        flight.receive(flight.frames[0], random.Random(1))


def test_requests_with_one_key_are_answered_in_the_order_of_asking() -> None:
    in_flight = InFlight(PROTOCOLS["v2"])
    _, key = PROTOCOLS["v2"].encode_read(1, 5, 7)
    for token in ("first", "second", "third"):
        in_flight.add_request(key, (Nobody(), token), now=0.0)
    answer = v2.encode_response(ReadResponse(0, Status.ENOENTRY, 5, 7))[4:]
    assert [in_flight.take(answer)[0][1] for _ in range(3)] == ["first", "second", "third"]
    with pytest.raises(RemoteProtocolError):
        in_flight.take(answer)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([range(3, 5)], range(3, 5)),
        ([["token"]], ["token"]),
        ([range(3, 5), range(5, 6), range(6, 9)], range(3, 9)),
        ([range(3, 5), range(6, 7)], [3, 4, 6]),
        ([range(3, 5), (5,)], [3, 4, 5]),
        ([[1], range(2, 4)], [1, 2, 3]),
        ([range(5, 7), range(3, 5)], [5, 6, 3, 4]),
    ],
)
def test_runs_are_joined_in_order(runs: list[Sequence[Any]], expected: Sequence[Any]) -> None:
    assert joined(runs) == expected
