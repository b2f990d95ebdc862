"""A Spark query that writes, in small: drivers, tasks, zombies, a leader and its log; one random number decides all.

What is real: the map, the kernel's state, the composer of entries, the table of writers; how a task cuts its rows, and
what task and driver send. What is simulated: who runs when, which message or reply is lost or comes twice, which leader
dies before or after its entry is in the log, and what is left of the log when it was trimmed.

Each row has a key of its own. So what must hold is easily said:

* a key is written once: its version is 1
* when a batch has ended in the state, all its keys are there; when the checkpoint says so, it has ended
* after a later run has written, an earlier one of the same writer never does
* left alone, the last driver ends all batches
"""

# Longer than 400 lines: who writes, the network and the leader are one world, and steps through all of it.

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.types import BinaryType, StructField, StructType

from connectors.sink.chunks import ChunkSplitter, RowLimits
from connectors.sink.map_rows import MapCommands
from connectors.sink.marks import BatchName, PartMessage, call_marks, chunk_mark, end_marks
from connectors.sink.options import RowKind, SinkOptions
from rsm_spark.core.batching import BatchLimits, Composer
from rsm_spark.core.commands import AnswerStatus, Command, OpenSession, Request
from rsm_spark.core.envelope import body_of
from rsm_spark.core.machine import Row
from rsm_spark.core.records import WRITERS_LEVEL, KernelRecord, decode_records
from rsm_spark.core.state import ReplicatedState, StateTip
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.core.writer_marks import (
    DIGEST_BYTES,
    MarkedReply,
    MarkedStatus,
    WriterMark,
    decode_marked_reply,
    encode_mark,
)
from rsm_spark.core.writers import WriterTable
from rsm_spark.map.commands import RowWrite
from rsm_spark.map.machine import MapMachine

BATCHES = 4
_PARTS = 3
_STEPS_MAX = 4_000
_TROUBLE_STEPS = 400
_WRITER = "job"
_OPTIONS = SinkOptions("log", RowKind.MAP, _WRITER)
# Rows that may not be written twice.
_SCHEMA = StructType([StructField(name, BinaryType()) for name in ("key", "value", "expected")])


class FewRows(MapCommands):
    """A few rows are many: chunks of two, batches of up to six in one command."""

    limits = RowLimits(whole_rows=6, chunk_rows=2)


COMMANDS = FewRows(_OPTIONS, _SCHEMA)
REFUSED = (MarkedStatus.REFUSED, MarkedStatus.GONE)


class BrokenPromiseError(AssertionError):
    """Something that must hold does not."""


class Plan:
    """What the query writes: batch -> part -> keys; the same at each run."""

    def __init__(self, rng: random.Random) -> None:
        self.parts: list[list[list[bytes]]] = []
        for batch in range(BATCHES):
            counts = [rng.choice((0, 1, 2, 5, 9)) for _ in range(rng.randint(1, _PARTS))]
            self.parts.append([
                [b"%d/%d/%d" % (batch, part, row) for row in range(count)] for part, count in enumerate(counts)
            ])  # fmt: skip

    def keys(self, batch: int) -> Iterator[bytes]:
        for part in self.parts[batch]:
            yield from part


class Delivery:
    """A mark on its way, and who waits for its reply."""

    def __init__(self, mark: WriterMark, asker: Asker | None) -> None:
        self.mark = mark
        self.asker = asker


class Asker:
    """Somebody who sends one mark after the other and waits for each: a task's attempt, or a driver's end of a batch.

    Attributes:
        reply: To the mark that was sent last.

    """

    def __init__(self, marks: Sequence[WriterMark]) -> None:
        self.left = list(marks)
        self.is_waiting = False
        self.is_refused = False

    @property
    def is_done(self) -> bool:
        return not self.left and not self.is_waiting

    def answered(self, mark: WriterMark, reply: MarkedReply) -> None:
        if self.is_waiting and self.left and self.left[0] is mark:
            self.is_waiting = False
            self.is_refused |= reply.status in REFUSED
            self.left.pop(0)

    def forget_reply(self) -> None:
        """The reply will not come: the same mark is sent again."""
        self.is_waiting = False


class Driver:
    """One start of the query: it runs the batches behind its checkpoint, each in tasks, then ends it."""

    def __init__(self, run: str, plan: Plan, checkpoint: list[int], *, calls: bool) -> None:
        self.run = run
        self._calls = calls
        self._plan = plan
        self._checkpoint = checkpoint
        self.batch = checkpoint[0]
        self.is_stopped = False
        self.tasks: dict[int, Asker] = {}
        self.zombies: list[Asker] = []
        self._messages: dict[int, PartMessage] = {}
        self.end: Asker | None = None
        self._begin()

    def _begin(self) -> None:
        self.tasks, self._messages, self.end = {}, {}, None
        if self.batch < BATCHES:
            for part in range(len(self._plan.parts[self.batch])):
                self.start_task(part)

    def start_task(self, part: int) -> None:
        """Begin an attempt; one that was there goes on as a zombie."""
        before = self.tasks.get(part)
        if before is not None and not before.is_done:
            self.zombies.append(before)
        name = BatchName(_WRITER, "checkpoint", self.run, self.batch)
        cutter = ChunkSplitter[RowWrite](part, COMMANDS.limits)
        for key in self._plan.parts[self.batch][part]:
            cutter.add(RowWrite(key, b"v"), 1)
        if self._calls:
            keys = self._plan.parts[self.batch][part]
            made = [COMMANDS.command([RowWrite(key, b"v")]) for key in keys]
            self.tasks[part] = Asker(call_marks(name, part, 0, bytes(DIGEST_BYTES), made))
            self._messages[part] = PartMessage(name, part, len(keys), len(keys), len(keys), (), 0)
            return
        chunks = [(COMMANDS.command(chunk), len(chunk)) for chunk in cutter.finish()]
        kept = tuple(command for command, _ in chunks) if cutter.is_kept else ()
        sent = [] if cutter.is_kept else chunks
        marks = [
            chunk_mark(name, part, number, command, count, is_repeatable=False)
            for number, (command, count) in enumerate(sent)
        ]
        self.tasks[part] = Asker(marks)
        self._messages[part] = PartMessage(name, part, cutter.row_count, cutter.row_count, len(sent), kept, 0)

    def go_on(self) -> None:
        """Take the next step of the query, if one is due."""
        if self.is_stopped or self.batch >= BATCHES:
            return
        refused = any(task.is_refused for task in self.tasks.values()) or (self.end is not None and self.end.is_refused)
        if refused:
            self.is_stopped = True  # Spark ends the query with the error.
        elif self.end is None:
            if all(task.is_done for task in self.tasks.values()):
                self.end = Asker(list(end_marks(list(self._messages.values()), COMMANDS)))
        elif self.end.is_done:
            self._checkpoint[0] = max(self._checkpoint[0], self.batch + 1)
            self.batch += 1
            self._begin()

    def askers(self) -> list[Asker]:
        ends = [] if self.end is None else [self.end]
        return [*self.tasks.values(), *self.zombies, *ends]


class WriterWorld:
    """See the module.

    Args:
        seed: Decides all.
        composer: Of the leader.
        writers: Table of writers of every state.
        restores_writers: False = planted: a snapshot has no rows of writers.
        calls: Each row is a command of its own.

    """

    def __init__(
        self,
        seed: int,
        *,
        composer: type[Composer] = Composer,
        writers: type[WriterTable] = WriterTable,
        restores_writers: bool = True,
        calls: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self.plan = Plan(self.rng)
        self.checkpoint = [0]
        self._calls = calls
        self.driver = Driver("run 0", self.plan, self.checkpoint, calls=calls)
        self.old_drivers: list[Driver] = []
        self.network: list[Delivery] = []
        self.counts: dict[str, int] = {}
        self._runs = 1
        self._composer_type, self._writers_type = composer, writers
        self._restores_writers = restores_writers
        self._entries: list[bytes] = []
        self._snapshot: tuple[list[Row], StateTip] | None = None
        self._written_by: list[str] = []
        self._sessions = 0
        self._epoch = 0
        self._lead()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # ---- the leader

    def _replayed(self) -> ReplicatedState:
        state = ReplicatedState(MapMachine(), bytes(16))
        state.writers = self._writers_type()
        if self._snapshot is not None:
            rows, tip = self._snapshot
            state.restore(rows, tip, None)
        for payload in self._entries:
            state.apply_entry(payload)
        return state

    def _lead(self) -> None:
        """Have a new leader, on what is in the log."""
        self._epoch += 1
        self.state = self._replayed()
        self._composer = self._composer_type(
            self.state,
            BatchLimits(1 << 20, 100, 1 << 30),
            leader_epoch=self._epoch,
            promoted_ms=0,
            session_ttl_ms=1 << 40,
            checkpoint_records=1 << 40,
            format_level=WRITERS_LEVEL,
        )
        self._check(self.state)

    def _take_snapshot(self) -> None:
        """Trim the log: a snapshot stands for all before it."""
        rows = [row for row in self.state.rows() if self._restores_writers or row.table != "_writers"]
        self._snapshot = rows, self.state.tip
        self._entries = []
        self._count("trims")

    def _serve(self, deliveries: list[Delivery]) -> None:
        """Compose an entry of what has come; it may get into the log or not, and the replies may be lost."""
        queue = RequestQueue()
        submissions = []
        for delivery in deliveries:
            self._sessions += 1
            session = self._sessions.to_bytes(16, "big")  # One each: what a session remembers is of no help here.
            requests: list[Request] = [OpenSession(session), Command(session, 1, 0, encode_mark(delivery.mark))]
            submissions.append(Submission(requests, None))
            queue.add(submissions[-1])
        batch = self._composer.compose(queue, 0)
        batch.confirm()
        dies = self.in_trouble and self.rng.random() < 0.1
        if dies and self.rng.random() < 0.5:
            self._count("entries lost")
        else:
            self._entries.append(batch.payload)
            self._see(batch.payload)
            for delivery, submission in zip(deliveries, submissions, strict=True):
                self._reply(delivery, submission, is_lost=dies)
        if dies:
            self._count("failovers")
            for delivery in deliveries:
                if delivery.asker is not None:
                    delivery.asker.forget_reply()
            self._lead()
        else:
            self._check(self.state)

    def _reply(self, delivery: Delivery, submission: Submission, *, is_lost: bool) -> None:
        answer = submission.answers[1]
        assert answer.status is AnswerStatus.OK
        reply = decode_marked_reply(answer.payload)
        self._count(reply.status.name)
        if delivery.asker is None:
            return
        if is_lost or (self.in_trouble and self.rng.random() < 0.1):
            self._count("replies lost")
            delivery.asker.forget_reply()
        else:
            delivery.asker.answered(delivery.mark, reply)

    # ---- what must hold

    def _see(self, payload: bytes) -> None:
        """Look at what an entry that is in the log says."""
        for record in decode_records(body_of(payload)):
            if record.type == KernelRecord.WRITER_MARKED and record.fields[1] == -1:
                run = record.fields[3]
                if run in self._written_by[:-1] and run != self._written_by[-1]:
                    raise BrokenPromiseError(f"{run} writes after {self._written_by[-1]} has")
                if not self._written_by or self._written_by[-1] != run:
                    self._written_by.append(run)

    def _check(self, state: ReplicatedState) -> None:
        machine = state.machine
        assert isinstance(machine, MapMachine)
        written: dict[bytes, Any] = machine.live.entries
        for key, entry in written.items():
            if entry.version != 1:
                raise BrokenPromiseError(f"{key!r} was written {entry.version} times")
        own = state.writers.get(_WRITER)
        ended = self.checkpoint[0] if own is None else max(self.checkpoint[0], own.batch + own.is_ended)
        for batch in range(ended):
            missing = [key for key in self.plan.keys(batch) if key not in written]
            if missing:
                raise BrokenPromiseError(f"batch {batch} has ended without {missing[0]!r}")

    # ---- steps

    def run(self) -> None:
        """Run until all batches are in the checkpoint.

        Raises:
            BrokenPromiseError: See the module.

        """
        for step in range(_STEPS_MAX):
            self.in_trouble = step < _TROUBLE_STEPS
            if self.in_trouble:
                self._trouble()
            elif self.driver.is_stopped:
                raise BrokenPromiseError("the last driver was refused")
            for driver in (self.driver, *self.old_drivers):
                driver.go_on()
            self._send()
            self._deliver()
            if self.checkpoint[0] >= BATCHES and not self.in_trouble:
                self._check(self._replayed())
                return
        raise BrokenPromiseError(f"only {self.checkpoint[0]} of {BATCHES} batches have ended")

    in_trouble = True

    def _trouble(self) -> None:
        rng = self.rng
        if rng.random() < 0.02 or self.driver.is_stopped:
            # Another driver starts; the one before is dead, or does not know that it should be.
            if rng.random() < 0.5:
                self.old_drivers.append(self.driver)
            self.driver = Driver(f"run {self._runs}", self.plan, self.checkpoint, calls=self._calls)
            self._runs += 1
            self._count("drivers")
        if rng.random() < 0.05 and self.driver.tasks and self.driver.end is None:
            self.driver.start_task(rng.choice(list(self.driver.tasks)))
            self._count("attempts")
        if rng.random() < 0.03:
            self._take_snapshot()

    def _send(self) -> None:
        for driver in (self.driver, *self.old_drivers):
            if driver.is_stopped:
                continue
            for asker in driver.askers():
                if asker.left and not asker.is_waiting and self.rng.random() < 0.6:
                    asker.is_waiting = True
                    self.network.append(Delivery(asker.left[0], asker))
                    if self.in_trouble and self.rng.random() < 0.1:
                        self.network.append(Delivery(asker.left[0], None))
                        self._count("sent twice")

    def _deliver(self) -> None:
        arrived: list[Delivery] = []
        stays: list[Delivery] = []
        for delivery in self.network:
            chance = 0.1 if delivery.asker is None else 0.6  # What comes twice comes late.
            if self.rng.random() >= chance:
                stays.append(delivery)
            elif self.in_trouble and self.rng.random() < 0.05:
                self._count("messages lost")
                if delivery.asker is not None:
                    delivery.asker.forget_reply()
            else:
                arrived.append(delivery)
        self.network = stays
        if arrived or self._composer.wanted:
            self.rng.shuffle(arrived)
            self._serve(arrived)
