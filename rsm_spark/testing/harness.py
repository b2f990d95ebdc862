"""A state machine on a log in memory: what `execute` does is what a leader does, byte for byte, without a cluster.

bank = MachineHarness(Bank())
assert bank.execute(b"ann").reply == b"1"
bank.restart(BankOfTheNextVersion())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Concatenate, NamedTuple, overload

import msgspec

from rsm_spark.core.batching import BatchLimits, Composer
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query, Request
from rsm_spark.core.envelope import ENTRY_BYTES_MAX, body_of
from rsm_spark.core.machine import StateMachine, encode_description, evolving
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.core.typed_calls import N, P, T, call_of
from rsm_spark.errors import InvalidCommandError

_LOG_ID = bytes(16)
_SESSION = b"harness's session"[:16]
_LIMITS = BatchLimits(ENTRY_BYTES_MAX, 10_000, 10)
_SESSION_TTL_MS = 1 << 50
_CHECKPOINT_RECORDS = 100
_COLUMNS: msgspec.msgpack.Decoder[tuple[Any, ...]] = msgspec.msgpack.Decoder(tuple[Any, ...])


class NamedRecord(NamedTuple):
    """A record of the machine, as its description names it: its name, its fields by name."""

    name: str
    fields: dict[str, Any]


class ExecutedCommand(NamedTuple):
    """A command that was executed.

    Attributes:
        reply: What the client is told.
        records: What was logged, in order.
        revision: Of the last record of the entry.

    """

    reply: bytes
    records: tuple[NamedRecord, ...]
    revision: int


class MachineHarness:
    """A machine that leads a log of its own, in memory.

    Args:
        machine: Empty.
        now_ms: Logged time at which the log begins.

    Attributes:
        machine: The machine.
        entries: Payloads of the log's entries, in order.
        now_ms: Logged time.

    """

    def __init__(self, machine: StateMachine, *, now_ms: int = 1_700_000_000_000) -> None:
        self.machine = machine
        self.entries: list[bytes] = []
        self.now_ms = now_ms
        self._sequence = 0
        self._state = ReplicatedState(machine, _LOG_ID)
        self._composer = self._lead()
        self._ask(OpenSession(_SESSION))

    def _lead(self) -> Composer:
        composer = Composer(
            self._state, _LIMITS, leader_epoch=len(self.entries) + 1, promoted_ms=self.now_ms,
            session_ttl_ms=_SESSION_TTL_MS, checkpoint_records=_CHECKPOINT_RECORDS,
        )  # fmt: skip
        if self._state.description is not None and evolving(self.machine) is not None:
            composer.description = self._state.description
        described = (KernelRecord.MACHINE_DESCRIBED, (encode_description(composer.description),))
        self.entries.append(composer.compose_start([described], self.now_ms).payload)
        return composer

    def _compose(self, queue: RequestQueue) -> None:
        batch = self._composer.compose(queue, self.now_ms)
        batch.confirm()
        self.entries.append(batch.payload)

    def _ask(self, request: Request) -> Answer:
        queue, submission = RequestQueue(), Submission([request], None)
        queue.add(submission)
        while not submission.answers:
            self._compose(queue)
        self._raise_failure()
        (answer,) = submission.answers
        if answer.status is not AnswerStatus.OK:
            said = answer.payload.decode(errors="replace")
            raise InvalidCommandError(f"the service answers {answer.status.name.lower()}{': ' if said else ''}{said}")
        return answer

    def _raise_failure(self) -> None:
        failures, self._composer.failures = self._composer.failures, []
        if failures:
            raise failures[0]

    # ---- what a client does

    def execute(self, command: bytes) -> ExecutedCommand:
        """Decide a command, log it, fold it.

        Raises:
            Exception: Whatever the machine raised, or what was wrong with its decision. A service would refuse the
                command with that text, for good, and go on.

        """
        self._sequence += 1
        first = len(self.entries)
        answer = self._ask(Command(_SESSION, self._sequence, self._sequence - 1, command))
        return ExecutedCommand(answer.payload, self._records(first), answer.revision)

    def query(self, query: bytes) -> bytes:
        """Answer a read."""
        return self._ask(Query(query)).payload

    @overload
    def call(self, method: Callable[Concatenate[N, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    def call(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def call(self, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Execute a typed command or query of a `Service`; return its value, or raise its `DomainError`."""
        typed, path = call_of(method)
        sent = typed.encode(path, args, kwargs)
        return typed.decode_reply(self.query(sent) if typed.is_query else self.execute(sent).reply)

    # ---- what time does

    def advance(self, ms: int) -> tuple[NamedRecord, ...]:
        """Let logged time pass; return the records of what fell due, in order.

        Args:
            ms: Milliseconds.

        Raises:
            InvalidDescriptionError: A record that is due is not as described, or the log's version cannot hold it yet.
                A service would tell so, and go on without it.

        """
        until, first = self.now_ms + ms, len(self.entries)
        while True:
            due_ms = self._composer.next_due_ms()
            if due_ms is None or due_ms > until:
                break
            self.now_ms, before = max(self.now_ms, due_ms), self._state.revision
            self._compose(RequestQueue())
            self._raise_failure()
            if self._state.revision == before:
                break
        self.now_ms = until
        return self._records(first)

    # ---- what a cluster does

    def restart(self, machine: StateMachine | None = None) -> None:
        """Take a snapshot, and go on from it with another process, of another version too.

        Args:
            machine: Empty; None = a new one of the same class, made without arguments.

        """
        rows, tip, description = list(self._state.rows()), self._state.tip, self._state.description
        self.machine = type(self.machine)() if machine is None else machine
        self._state = ReplicatedState(self.machine, _LOG_ID)
        self._state.restore(rows, tip, description)
        assert sorted(self._state.rows()) == sorted(rows), "the machine restores other rows than it was given"
        self._composer = self._lead()

    def promote(self) -> None:
        """Begin another leadership with the same process: its first entry describes the machine again."""
        self._composer = self._lead()

    def raise_version(self) -> None:
        """Raise the log's version to that of the machine, as a leader does once every replica runs it.

        Migrations run to their end.

        Raises:
            InvalidDescriptionError: A migration fails on a row, which stays as it is.

        """
        self._composer.description = self.machine.description
        self._composer.describe_wanted = True
        self._compose(RequestQueue())
        while self._state.migration is not None:
            due_ms = self._composer.next_due_ms()
            self._raise_failure()
            if due_ms is None or due_ms > self.now_ms + 1:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self._compose(RequestQueue())

    def replay(self, machine: StateMachine) -> ReplicatedState:
        """Fold the whole log with another machine, as a follower does; return its state.

        Args:
            machine: Empty.

        Raises:
            RsmError: It cannot fold the log, or comes to another state at one of its checkpoints.

        """
        state = ReplicatedState(machine, _LOG_ID)
        for payload in self.entries:
            state.apply_entry(payload)
        return state

    # ---- what it is

    @property
    def digest(self) -> int:
        """Digest of the state: the same on every replica that has folded the same log."""
        return self._state.digest

    @property
    def revision(self) -> int:
        """Revision of the last record."""
        return self._state.revision

    def rows(self, table: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Return the rows of a table as they are stored: key columns, other columns."""
        return {_COLUMNS.decode(r.key): _COLUMNS.decode(r.row) for r in self.machine.rows() if r.table == table}

    def _records(self, first: int) -> tuple[NamedRecord, ...]:
        description = self._state.description
        assert description is not None
        return _named(self.entries[first:], {record.type: record for record in description.records}.get)


def _named(payloads: Iterable[bytes], described: Callable[[int], Any]) -> tuple[NamedRecord, ...]:
    found = []
    for payload in payloads:
        for record in decode_records(body_of(payload)):
            known = described(record.type)
            if known is not None:
                names = (field.name for field in known.fields)
                found.append(NamedRecord(known.name, dict(zip(names, record.fields, strict=True))))
    return tuple(found)
