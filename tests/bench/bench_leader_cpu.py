"""CPU of an operation at the map's leader and at a follower, in µs, without sockets, bookies and disks.

    RSM_BENCH_ROUNDS=30 .venv/bin/python -m tests.bench.bench_leader_cpu

From the bytes of clients' messages to those of their answers, as on the framed port: what a leader does for puts of
eight clients with eight each in a message, and for one message of 1,000; and what a follower does for such an entry.
Gets of eight clients with eight each are answered without the question to the bookies. The digest is brought up to
date as part of it. Every key was written before. A round tells its quickest turn, which other work has disturbed least.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable

from rsm_spark.core.batching import Batch, BatchLimits, Composer
from rsm_spark.core.commands import QueryColumn
from rsm_spark.core.machine import encode_description
from rsm_spark.core.operation import Message, Operation, Sent
from rsm_spark.core.records import KernelRecord
from rsm_spark.core.replies import answer_queries
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from rsm_spark.transport.packed_codec import PACKED_EXCHANGE
from tests.bench.figure import print_figure, say
from tests.bench.store_load import CLIENT_COUNT_MAX, KEYS, VALUE

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "30"))
_LOG_ID = bytes(16)
_TURNS = 100
_MANY = 1_000


class _Client:
    """Composes messages of puts; has all answers to those before."""

    def __init__(self, number: int) -> None:
        self._session = bytes([number]) * 16
        self._number = number
        self._sequence = 0
        self._next = number * 1_000

    def open(self) -> bytes:
        return self._encode(Message(1, self._session, True, 0, [], []))

    def puts(self, count: int) -> bytes:
        answered = self._sequence
        commands: list[Sent] = []
        for _ in range(count):
            self._sequence += 1
            self._next = (self._next + 1) % len(KEYS)
            payload = m.encode(m.Put(KEYS[self._next], VALUE))
            commands.append(Operation(payload, 0.0, None, sequence=self._sequence))
        return self._encode(Message(2, self._session, False, answered, commands, []))

    def gets(self, count: int) -> bytes:
        first = self._number * 1_000
        asked = [Operation(m.encode(m.Get(key)), 0.0, None, is_query=True) for key in KEYS[first : first + count]]
        return self._encode(Message(2, self._session, False, 0, [], [*asked]))

    def _encode(self, message: Message) -> bytes:
        return PACKED_EXCHANGE.encode_requests(message, "bench", self._number)


class _Leader:
    def __init__(self) -> None:
        self.state = ReplicatedState(MapMachine(), _LOG_ID)
        self.follower = ReplicatedState(MapMachine(), _LOG_ID)
        limits = BatchLimits(4 * 1024 * 1024, 4_096, 10_000)
        self.composer = Composer(
            self.state, limits, leader_epoch=1, promoted_ms=1, session_ttl_ms=10**9, checkpoint_records=10**9
        )
        self.queue = RequestQueue()
        description = encode_description(self.composer.description)
        started = self.composer.compose_start([(KernelRecord.MACHINE_DESCRIBED, (description,))], 1)
        self.follower.apply_entry(started.payload)
        self._now_ms = 1

    def turn(self, text: bytes) -> tuple[bytes, Batch]:
        """Take what has come; return the answers, and the entry."""
        received = PACKED_EXCHANGE.decode_request_batch(text)
        for one in received:
            self.queue.add(Submission(one.requests, one.message_id, "bench"))
        self._now_ms += 1
        batch = self.composer.compose(self.queue, self._now_ms)
        self.state.settle()
        texts: list[bytes] = []
        for submission in batch.confirm():
            texts += PACKED_EXCHANGE.encode_answers(submission.ticket, submission.answers, None)
        return PACKED_EXCHANGE.join(texts), batch

    def answer(self, text: bytes) -> bytes:
        """Take reads that have come; return the answers, as `ReadChecks` gives them."""
        for one in PACKED_EXCHANGE.decode_request_batch(text):
            self.queue.add(Submission(one.requests, one.message_id, "bench"))
        texts: list[bytes] = []
        for submission in self.queue.take_reads(self.queue.set_mark(), 4_096):
            asked = submission.requests
            assert type(asked) is QueryColumn
            answer_queries(self.state.machine, asked.payloads, self.state.revision, [], submission.answers)
            texts += PACKED_EXCHANGE.encode_answers(submission.ticket, submission.answers, None)
        return PACKED_EXCHANGE.join(texts)


def main() -> None:
    """Measure and print a line per figure."""
    leader = _Leader()
    clients = [_Client(number) for number in range(CLIENT_COUNT_MAX)]
    _, batch = leader.turn(PACKED_EXCHANGE.join([client.open() for client in clients]))
    leader.follower.apply_entry(batch.payload)
    figures: dict[str, list[float]] = defaultdict(list)

    def play(name: str, count: int, turns: int, compose: Callable[[], bytes]) -> None:
        spent_s = follower_s = float("inf")
        for _ in range(turns):
            text = compose()
            began_s = time.thread_time()
            answers, batch = leader.turn(text)
            told_s = time.thread_time()
            leader.follower.apply_entry(batch.payload)
            leader.follower.settle()
            spent_s, follower_s = min(spent_s, told_s - began_s), min(follower_s, time.thread_time() - told_s)
            assert batch.envelope.record_count == count
            assert sum(len(one.payloads) for one in PACKED_EXCHANGE.decode_answer_batch(answers)) == count
        figures[f"leader_{name}_cpu_us"].append(spent_s / count * 1e6)
        figures[f"follower_{name}_cpu_us"].append(follower_s / count * 1e6)

    def read(count: int) -> None:
        spent_s = float("inf")
        for _ in range(_TURNS):
            text = PACKED_EXCHANGE.join([client.gets(count) for client in clients])
            began_s = time.thread_time()
            answers = leader.answer(text)
            spent_s = min(spent_s, time.thread_time() - began_s)
            assert sum(len(one.payloads) for one in PACKED_EXCHANGE.decode_answer_batch(answers)) == count * len(
                clients
            )
        figures["leader_get_cpu_us"].append(spent_s / count / len(clients) * 1e6)

    for _ in range(len(KEYS) // _MANY):
        leader.follower.apply_entry(leader.turn(PACKED_EXCHANGE.join([clients[0].puts(_MANY)]))[1].payload)
    for number in range(ROUND_COUNT):
        say(f"leader: round {number + 1} of {ROUND_COUNT}")
        play("put", 64, _TURNS, lambda: PACKED_EXCHANGE.join([client.puts(8) for client in clients]))
        read(8)
        play("put_many", _MANY, _TURNS // 10, lambda: PACKED_EXCHANGE.join([clients[0].puts(_MANY)]))
    assert leader.state.digest == leader.follower.digest
    for name, values in figures.items():
        print_figure(name, values, "µs")
        say(f"  {name}: least {min(values):.2f}")


if __name__ == "__main__":
    main()
