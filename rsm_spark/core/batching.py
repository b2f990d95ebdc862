"""Group commit: what has arrived becomes one entry.

1. Requests are decided and applied one after the other, those of one owner in order of arrival, owners in turns (see
   `rsm_spark.core.submissions`); a query sees what stands before it.
2. The records of one command are in one entry; what does not fit stays queued, undecided, for the next.
3. A large command is decided in no entry that began with a small one: what came before it need not wait for it.
4. No answer leaves before the entry that carries it, or was composed with it, is confirmed. A repeated command waits
   for that too: the reply that it is given must be committed.

    queued     not decided                          -> `RequestQueue`, from `Submission.decided` on
    in flight  decided, entry not confirmed         -> the `Batch`; `Submission.confirmed` <= i < `decided`
    answered   its entry is confirmed               -> i < `Submission.confirmed`
"""

# Longer than 400 lines: one composer: every way into an entry shares its body and its order.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.commands import (
    Answer,
    AnswerStatus,
    Audited,
    Command,
    CommandColumn,
    OpenSession,
    Query,
    QueryColumn,
    ReadIndex,
    Report,
    ReportDiverged,
    Request,
)
from rsm_spark.core.envelope import HEADER_BYTES, Envelope, encode_envelope, entry_hash
from rsm_spark.core.machine import Decision, DeclinedDecision, PacedMachine, TimedMachine, encode_description
from rsm_spark.core.migrations import MigrationWork, steps_between
from rsm_spark.core.records import (
    AUDIT_LEVEL,
    REPLY_BYTES_MAX,
    WRITERS_LEVEL,
    CommandHead,
    KernelRecord,
    Record,
)
from rsm_spark.core.replies import (
    KERNELS_MARK,
    answer_queries,
    answer_query,
    answer_verdict,
    check_reply,
    failed_reply,
    reply_answer,
)
from rsm_spark.core.reports import judge_report
from rsm_spark.core.seal import EntryKey, checkpoint_message
from rsm_spark.core.sessions import TOO_LARGE_REPLY, SessionVerdict
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import OwnerQueue, RequestQueue, Submission
from rsm_spark.core.table_machine import TableMachine
from rsm_spark.core.writer_marks import MAGIC, MarkedReply, MarkedStatus, decode_mark, encode_marked_reply
from rsm_spark.core.writers import MarkVerdict
from rsm_spark.errors import InvalidCommandError, InvalidDescriptionError

AUDIT_CHARS_MAX = 512
"""Characters of each text of an audit: a longer name is cut."""

_ENCODER = msgspec.msgpack.Encoder()
_ARRAY_BYTES_MAX = 5
_LARGE_BYTES = 100_000
"""A command of so many bytes may take milliseconds to decide and to apply."""
_SIZE_MAX = 1 << 62
_encode_into = _ENCODER.encode_into
_EXECUTE = SessionVerdict.EXECUTE
_NOTHING: tuple[Any, ...] = ()
_ANSWERED = ((KernelRecord.COMMAND_ANSWERED, _NOTHING),)
REASON_CHARS_MAX = 800
"""Characters of the reason in the reply to a writer."""
_STATUS_OF = {
    MarkVerdict.DONE: MarkedStatus.DONE,
    MarkVerdict.REFUSED: MarkedStatus.REFUSED,
    MarkVerdict.GONE: MarkedStatus.GONE,
}


class BatchLimits(msgspec.Struct, frozen=True):
    """Bounds of one entry; see `ReplicaSettings`.

    Attributes:
        entry_records_max: At so many records no further command is taken: small ones by the hundred thousand would
            keep the event loops of all replicas busy for long. More than what is expired in one entry.

    """

    entry_bytes_max: int
    entry_commands_max: int
    sessions_max: int
    entry_records_max: int = 5_000


class Batch(msgspec.Struct, frozen=True):
    """An entry and what waits for it.

    Attributes:
        payload: Of the entry; it keeps every byte if it has to be appended again.
        prefix_hash: Hash after it.
        envelope: Its header.
        submissions: All that have answers in this batch, in order.
        answer_counts: Per submission, how many of its answers are final once this entry is confirmed.

    """

    payload: bytes
    prefix_hash: bytes
    envelope: Envelope
    submissions: tuple[Submission, ...]
    answer_counts: tuple[int, ...]

    def confirm(self) -> list[Submission]:
        """Make the answers final; return the submissions that are answered in full."""
        complete: list[Submission] = []
        for submission, count in zip(self.submissions, self.answer_counts, strict=True):
            submission.confirmed = count
            if count == len(submission.requests):
                complete.append(submission)
        return complete


class Composer:
    """Composes entries on the live state of a leader.

    Args:
        state: Changed by every batch; back to the confirmed one only by a rebuild.
        limits: Of one entry.
        leader_epoch: Of the own claim.
        promoted_ms: Logged time when this leadership began.
        session_ttl_ms: See `ReplicaSettings`.
        checkpoint_records: See `ReplicaSettings`.
        format_level: Of the log.

    Attributes:
        format_level: Of the log; raised by who leads.
        checkpoint_wanted: The next entry begins with a checkpoint.
        describe_wanted: The next entry begins with `description`: a new ledger of the log has begun.
        description: Of the machine, in force in the log, or to come into force with the next ledger.
        wanted: Records of the kernel that the next entry is to carry, in order; emptied by it.
        entry_key: Seals every entry; None = the log has no key.
        sign: Signs checkpoints with that key; None = it cannot.
        failures: Errors that the machine raised where it must not; whoever tells of them empties it.
        contradictions: By reporter, what a replica whose state differs from this leader's has said.
        query_count: Queries decided in entries.
        level_wanted: Format level that a command needs and the log does not have yet; whoever raises it sets it to 0.

    """

    def __init__(
        self,
        state: ReplicatedState,
        limits: BatchLimits,
        *,
        leader_epoch: int,
        promoted_ms: int,
        session_ttl_ms: int,
        checkpoint_records: int,
        format_level: int = 1,
    ) -> None:
        self.state = state
        self.limits = limits
        self.leader_epoch = leader_epoch
        self.promoted_ms = promoted_ms
        self.session_ttl_ms = session_ttl_ms
        self.checkpoint_records = checkpoint_records
        self.format_level = format_level
        self.checkpoint_wanted = False
        self.describe_wanted = False
        self.description = state.machine.description
        self.wanted: list[tuple[int, tuple[Any, ...]]] = []
        self.entry_key: EntryKey | None = None
        self.sign: Callable[[bytes], bytes] | None = None
        self.failures: list[Exception] = []
        self.contradictions: dict[str, ReportDiverged] = {}
        self.query_count = 0
        self.level_wanted = 0
        self._checked = state.machine if isinstance(state.machine, TableMachine) else None
        self._paced = state.machine if isinstance(state.machine, PacedMachine) else None
        self._timed = state.machine if isinstance(state.machine, TimedMachine) else None
        machine = self._checked
        self._work = None if machine is None else MigrationWork(lambda: machine.migration, machine.tables)
        self._body = bytearray()
        self._record_count = 0
        self._logged_ms = 0
        self._commands_first = False
        self._undue = ""  # Why what was due last could not be logged.
        self._size_max = _SIZE_MAX  # Of the commands that this entry takes.

    def compose_start(self, kernel_records: Sequence[tuple[int, tuple[Any, ...]]], logged_ms: int) -> Batch:
        """Compose the first entry of a leadership: kernel records alone."""
        return self._compose(None, kernel_records, logged_ms)

    def next_due_ms(self) -> int | None:
        """Return the logged time at which the machine wants an entry, or None."""
        due_ms = None if self._timed is None else self._timed.next_due_ms(self.promoted_ms)
        return due_ms if self._work is None or self.state.migration is None else self._work.next_due_ms(due_ms)

    def compose(self, queue: RequestQueue, logged_ms: int) -> Batch:
        """Decide and apply what is queued, as far as it fits; an entry without records if it yields none.

        Args:
            queue: What was decided is taken out.
            logged_ms: Of the entry; not before that of the entry before.

        """
        return self._compose(queue, self._own_records(logged_ms), logged_ms)

    def _own_records(self, logged_ms: int) -> list[tuple[int, tuple[Any, ...]]]:
        """Return the kernel's own records that are due, which begin an entry."""
        state = self.state
        own: list[tuple[int, tuple[Any, ...]]] = []
        is_raised = self.describe_wanted
        if self.describe_wanted:
            own.append((KernelRecord.MACHINE_DESCRIBED, (encode_description(self.description),)))
            self.describe_wanted = False
        # Before anything that changes a row: it names the state between two entries, where snapshots are taken.
        if self.checkpoint_wanted or state.revision - state.checkpoint_revision >= self.checkpoint_records:
            digest = state.digest.to_bytes(16, "big")
            own.append((KernelRecord.CHECKPOINT_LOGGED, (state.revision, digest, state.row_count)))
            if self.entry_key is not None and self.sign is not None:
                message = checkpoint_message(
                    state.log_id, state.revision, state.prefix_hash, digest, state.row_count, logged_ms
                )
                own.append((KernelRecord.CHECKPOINT_SIGNED, (self.entry_key.key_id, self.sign(message))))
            self.checkpoint_wanted = False
        if is_raised:
            own += self._begun_migration(state.revision + len(own) + 1)
        own += self.wanted
        self.wanted.clear()
        due = state.sessions.due(logged_ms, self.promoted_ms, self.session_ttl_ms, self.limits.entry_commands_max)
        own.extend((KernelRecord.SESSION_EXPIRED, (session,)) for session in due)
        return own

    def _begun_migration(self, revision: int) -> list[tuple[int, tuple[Any, ...]]]:
        """Return the record that begins the migration to the version that is described now, if it needs one."""
        logged, machine = self.state.description, self._checked
        if logged is None or machine is None or logged.version >= self.description.version:
            return []
        if not steps_between(machine.migrations, logged.version, self.description.version):
            return []
        return [(KernelRecord.MIGRATED, (self.description.version, logged.version, revision, 0))]

    def _log_migration(self) -> None:
        """Add rows of a migration, up to half an entry; and that it has ended."""
        running, work = self.state.migration, self._work
        bytes_max = self.limits.entry_bytes_max // 2
        machine = self._checked
        if running is None or work is None or machine is None or len(self._body) >= bytes_max:
            return
        for record_type, fields in work.records(self._logged_ms, machine.migrated_rows_max, self.failures.append):
            try:
                ((_, loggable),) = machine.loggable([(record_type, fields)])
            except InvalidDescriptionError as error:
                work.fail(error, self.failures.append)
                continue
            self._log(record_type, loggable)
            if len(self._body) >= bytes_max:
                return
        if work.has_ended:
            self._log(KernelRecord.MIGRATED, (*running, self.state.revision + 1))

    def _compose(self, queue: RequestQueue | None, own: Sequence[tuple[int, tuple[Any, ...]]], logged_ms: int) -> Batch:
        state = self.state
        assert logged_ms >= state.logged_ms
        first_revision, confirmed, prefix_hash = state.revision + 1, state.revision, state.prefix_hash
        # Room for the header, which is known last: the records need not be copied behind it.
        self._body = bytearray(HEADER_BYTES + _ARRAY_BYTES_MAX)
        self._record_count = 0
        self._logged_ms = logged_ms
        for record_type, fields in own:
            self._log(record_type, fields)
        submissions: dict[Submission, None] = {}  # In order; one may have several turns.
        if queue is not None:
            room = self.limits.entry_commands_max
            logged = 0 if self._commands_first else self._log_due(room)
            if not self._commands_first:
                self._log_migration()
            before = self._record_count
            self._take(queue, submissions)
            # One that does not fit beside what is due begins the next entry: it would wait for ever on a busy log.
            self._commands_first = queue.request_count > 0 and not submissions
            if self._record_count > before and logged <= room // 2:
                self._log_due(room - logged)
        envelope = Envelope(
            state.log_id,
            self.leader_epoch,
            first_revision,
            confirmed,
            logged_ms,
            self._record_count,
            prefix_hash,
            b"" if self.entry_key is None else self.entry_key.key_id,
        )
        payload, prefix_hash = self._finish(envelope)
        state.finish_entry(envelope, prefix_hash)
        return Batch(payload, prefix_hash, envelope, tuple(submissions), tuple(s.decided for s in submissions))

    def _log(self, record_type: int, fields: tuple[Any, ...]) -> None:
        """Add a record of the leader's own, and apply it."""
        _ENCODER.encode_into(Record(record_type, None, fields), self._body, -1)
        self._record_count += 1
        self.state.fold(record_type, None, fields, self._logged_ms)

    def _log_due(self, limit: int) -> int:
        """Add what time makes due, up to half an entry: commands have room in every one.

        Once before the commands, once behind them: what they have made due at once needs no entry of its own.

        Args:
            limit: At most so many records.

        Returns:
            How many there were.

        """
        timed = self._timed
        if timed is None:
            return 0
        due_ms = timed.next_due_ms(self.promoted_ms)
        bytes_max = self.limits.entry_bytes_max // 2
        if due_ms is None or due_ms > self._logged_ms or len(self._body) >= bytes_max:
            return 0
        before = self._record_count
        for found in timed.due(self._logged_ms, self.promoted_ms, limit):
            if isinstance(found, Exception):
                self.failures.append(found)
                continue
            together = found if isinstance(found, list) else [found]
            loggable = [(record_type, self._loggable_due(record_type, fields)) for record_type, fields in together]
            if any(fields is None for _, fields in loggable):
                break
            for record_type, fields in loggable:
                assert fields is not None, "just looked at"
                self._log(record_type, fields)
            if len(self._body) >= bytes_max:
                break  # The rest is as due for the next entry.
        return self._record_count - before

    def _loggable_due(self, record_type: int, fields: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the fields as they can be logged; None if they cannot: it stays due, and is told once."""
        if self._checked is None:
            return fields
        try:
            ((_, loggable),) = self._checked.loggable([(record_type, fields)])
        except InvalidDescriptionError as error:
            if str(error) != self._undue:
                self._undue = str(error)
                self.failures.append(error)
            return None
        return loggable

    def _take(self, queue: RequestQueue, submissions: dict[Submission, None]) -> None:
        """Decide what waits, its owners in turns, until nothing waits or the entry is full."""
        line = queue.first()
        room = self.limits.entry_commands_max
        # A large command has to begin an entry: the small ones before it do not wait for it.
        self._size_max = _SIZE_MAX if line is not None and _is_large(line.submissions[0]) else _LARGE_BYTES
        while line is not None and room > 0:
            taken, is_full = self._take_turn(queue, line, room, submissions)
            if is_full and not taken:
                return  # It is the first of the next entry.
            queue.turn()
            if is_full:
                return
            room -= taken
            line = queue.first()

    def _take_turn(
        self, queue: RequestQueue, line: OwnerQueue, room: int, submissions: dict[Submission, None]
    ) -> tuple[int, bool]:
        """Decide from the front of a line; return how many requests, and whether the entry is full."""
        waiting = line.submissions
        total = 0
        while waiting and total < room and (line.credit > 0 or not queue.is_shared):
            submission = waiting[0]
            requests, answers = submission.requests, submission.answers
            first = len(answers)
            last = min(len(requests), first + room - total)
            if queue.is_shared:
                last = line.affords(requests, first, last)
            self._decide_all(requests, last, answers)
            taken = len(answers) - first
            queue.taken(line, taken)
            total += taken
            if taken:
                submissions[submission] = None
            if queue.is_shared:
                line.spend(requests, first, first + taken)
            if len(answers) < last:
                return total, True
            if last == len(requests):
                queue.pop(line)
        return total, False

    def _decide_all(self, requests: Sequence[Request], last: int, answers: AnswerColumn) -> None:
        """Decide from the first request without an answer on, up to `last` or to the first that does not fit."""
        if type(requests) is CommandColumn:
            execute, session, answered_up_to = self._execute, requests.session, requests.answered_up_to
            first = len(answers)
            for sequence, payload in zip(requests.sequences[first:last], requests.payloads[first:], strict=False):
                if not execute(session, sequence, answered_up_to, payload, answers):
                    return
        if type(requests) is CommandColumn or type(requests) is QueryColumn:
            queries = requests.payloads[len(answers) : last]
            self.query_count += len(queries)
            answer_queries(self.state.machine, queries, self.state.revision, self.failures, answers)
            return
        for index in range(len(answers), last):
            request = requests[index]
            if type(request) is Command:
                sent = request.session, request.sequence, request.answered_up_to, request.payload
                if not self._execute(*sent, answers):
                    return
                continue
            answer = self._answer(request)
            if answer is None:
                return
            answers.append(answer)

    def _answer(self, request: Request) -> Answer | None:
        """Decide what is no command; None if its records do not fit this entry any more, and nothing was changed."""
        state = self.state
        if type(request) is Query:
            self.query_count += 1
            return answer_query(state.machine, request.payload, state.revision, self.failures)
        if isinstance(request, ReadIndex):
            return Answer(AnswerStatus.OK, state.revision, b"")
        if isinstance(request, OpenSession):
            return self._open(request.session)
        if isinstance(request, Audited):
            return self._audit(request)
        assert not isinstance(request, Command | Query)
        return self._judge(request)

    def _execute(
        self, session: bytes, sequence: int, answered_up_to: int, payload: bytes, answers: AnswerColumn
    ) -> bool:
        """Decide a command, by the fields of `Command`. One call for what nearly all of them need.

        Returns:
            Whether its answer was added; False if it does not fit this entry any more, and nothing was changed.

        """
        state = self.state
        if self._record_count >= self.limits.entry_records_max or (self._paced is not None and self._paced.is_spent):
            return False
        if len(payload) > self._size_max:
            return False
        verdict, reply = state.sessions.judge(session, sequence, answered_up_to)
        if verdict is not _EXECUTE:
            answers.append(answer_verdict(verdict, reply, state.revision))
            return True
        # Encoded first, applied last: a command that does not fit is cut off here, with the state as it was.
        body = self._body
        mark = len(body)
        records: Sequence[tuple[int, tuple[Any, ...]]]
        try:
            if payload.startswith(MAGIC):
                records, reply = self._decide_marked(payload)
            else:
                records, reply = self._decided(payload)
                if len(reply) > REPLY_BYTES_MAX:
                    records, reply = _NOTHING, TOO_LARGE_REPLY
            head = CommandHead(session, sequence, answered_up_to, len(records) or 1, reply)
            self._encode(head, records)
        except Exception as error:  # noqa: BLE001 - see `rsm_spark.core.replies`
            self.failures.append(error)
            del body[mark:]
            records, reply = (), failed_reply(error)
            head = CommandHead(session, sequence, answered_up_to, 1, reply)
            self._encode(head, records)
        if len(body) > self.limits.entry_bytes_max:
            del body[mark:]
            if self._record_count:
                return False
            records, reply = (), TOO_LARGE_REPLY
            head = CommandHead(session, sequence, answered_up_to, 1, reply)
            self._encode(head, records)
        self._record_count += head.record_count
        state.fold_command(records, head, self._logged_ms)
        if reply and reply[0] == KERNELS_MARK:
            answers.append(reply_answer(reply, state.revision))
        else:
            answers.add(state.revision, reply)
        return True

    def _decided(self, payload: bytes) -> Decision:
        """Return what the machine decides, as it can be logged."""
        decision = self.state.machine.decide(payload, self.state.revision + 1, self._logged_ms)
        if self._checked is not None:
            decision = decision._replace(records=self._checked.loggable(decision.records))
        reply = decision.reply
        if type(reply) is not bytes or (reply and reply[0] == KERNELS_MARK):
            check_reply(reply)
        return decision

    def _decide_marked(self, command: bytes) -> tuple[Sequence[tuple[int, tuple[Any, ...]]], bytes]:
        """Decide a writer's command: what the machine decides, and behind it the mark."""
        if self.format_level < WRITERS_LEVEL:
            self.level_wanted = WRITERS_LEVEL
            reason = f"the log has format level {self.format_level}, writers are known from {WRITERS_LEVEL} on"
            return _NOTHING, encode_marked_reply(MarkedReply(MarkedStatus.WAITING, reason))
        try:
            mark = decode_mark(command)
        except InvalidCommandError as error:
            return _NOTHING, encode_marked_reply(MarkedReply(MarkedStatus.REFUSED, str(error)[:REASON_CHARS_MAX]))
        standing, reason, marks = self.state.writers.judge(mark)
        if standing is not MarkVerdict.APPLY:
            return _NOTHING, encode_marked_reply(MarkedReply(_STATUS_OF[standing], reason[:REASON_CHARS_MAX]))
        records: Sequence[tuple[int, tuple[Any, ...]]] = _NOTHING
        reply, status = b"", MarkedStatus.APPLIED
        if mark.payload:
            decision = self._decided(mark.payload)
            records, reply = decision.records, decision.reply
            if isinstance(decision, DeclinedDecision):
                marks, status = marks if mark.is_call else _NOTHING, MarkedStatus.DECLINED
        whole = encode_marked_reply(MarkedReply(status, "", reply))
        return (_NOTHING, TOO_LARGE_REPLY) if len(whole) > REPLY_BYTES_MAX else ((*records, *marks), whole)

    def _encode(self, head: CommandHead, records: Sequence[tuple[int, tuple[Any, ...]]]) -> None:
        """Add the records of a command to the entry, as arrays that are read as `Record`."""
        body, own = self._body, head
        for record_type, fields in records or _ANSWERED:
            _encode_into((record_type, own, fields), body, -1)
            own = None  # type: ignore[assignment]  # only the first record of a command carries it

    def _open(self, session: bytes) -> Answer | None:
        state = self.state
        if state.sessions.get(session) is None:
            if len(state.sessions) >= self.limits.sessions_max:
                return Answer(AnswerStatus.OVERLOADED, state.revision, b"")
            if not self._fits(KernelRecord.SESSION_OPENED, (session,)):
                return None
            self._log(KernelRecord.SESSION_OPENED, (session,))
        return Answer(AnswerStatus.OK, state.revision, b"")

    def _audit(self, audited: Audited) -> Answer | None:
        state = self.state
        if self.format_level < AUDIT_LEVEL:
            return Answer(AnswerStatus.REFUSED, state.revision, b"the log's format level does not know audits yet")
        fields = audit_fields(audited)
        if not self._fits(KernelRecord.AUDITED, fields):
            return None
        self._log(KernelRecord.AUDITED, fields)
        return Answer(AnswerStatus.OK, state.revision, b"")

    def _judge(self, report: Report) -> Answer | None:
        state = self.state
        refusal, record = judge_report(state, report)
        if refusal:
            return Answer(AnswerStatus.REFUSED, state.revision, refusal.encode())
        if isinstance(report, ReportDiverged):
            self.contradictions[report.by] = report
        if record is not None:
            if not self._fits(*record):
                return None
            self._log(*record)
        return Answer(AnswerStatus.OK, state.revision, b"")

    def _fits(self, record_type: int, fields: tuple[Any, ...]) -> bool:
        size = len(_ENCODER.encode(Record(record_type, None, fields)))
        return len(self._body) + size <= self.limits.entry_bytes_max

    def _finish(self, envelope: Envelope) -> tuple[bytes, bytes]:
        """Return the payload (the header, the array's head, the records, the seal), and the prefix hash after it."""
        count = self._record_count
        if count < 16:
            head = bytes((0x90 | count,))
        elif count < 65_536:
            head = b"\xdc" + count.to_bytes(2, "big")
        else:
            head = b"\xdd" + count.to_bytes(4, "big")
        body = self._body
        start = _ARRAY_BYTES_MAX - len(head)
        body[start + HEADER_BYTES : HEADER_BYTES + _ARRAY_BYTES_MAX] = head
        body[start : start + HEADER_BYTES] = encode_envelope(envelope, b"")
        if self.entry_key is None:
            payload = bytes(memoryview(body)[start:])
            return payload, entry_hash(payload)
        prefix_hash = self.entry_key.finish(body, start)
        return bytes(memoryview(body)[start:]), prefix_hash


def _is_large(submission: Submission) -> bool:
    """Return whether the next request of a submission is a large command."""
    requests, decided = submission.requests, submission.decided
    if decided == len(requests):
        return False
    if type(requests) is CommandColumn:
        return decided < len(requests.sequences) and len(requests.payloads[decided]) > _LARGE_BYTES
    request = requests[decided]
    return type(request) is Command and len(request.payload) > _LARGE_BYTES


def audit_fields(audited: Audited) -> tuple[str, ...]:
    """Return the fields of an AUDITED record."""
    return tuple(text[:AUDIT_CHARS_MAX] for text in msgspec.structs.astuple(audited))
