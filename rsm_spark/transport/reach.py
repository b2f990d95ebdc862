"""Reach of a caller's messages: each operation in them is looked at, where the caller's scope is bounded.

* A query beyond it is answered REFUSED, and is not asked.
* Who may not write has commands answered REFUSED, and no session is opened for it, whatever it is told: nothing of it
  reaches the log.
* A command of a writer beyond its keys takes its place in the session as one that changes nothing, so that those behind
  it go on, and is answered REFUSED.
* A command that changes rights, code or holds stands behind a record of who sent it; once it is answered, another one
  says what came of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from ledger.audit_lines import tell
from ledger.rights.principal import ClientAccess, Principal, Role
from ledger.rights.table import Right, may
from rsm_spark.core.commands import ASKED, Answer, AnswerStatus, Audited, Command, OpenSession, Query, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.core.writer_marks import WriterMark, decode_mark, is_marked
from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport.codec import ReceivedRequests
from rsm_spark.transport.watch_codec import WatchRequest


class KeyScopes(Protocol):
    """Keys that a client's requests touch, as a machine knows them. All calls are synchronous and quick."""

    nothing: bytes
    """A command that changes nothing."""
    has_keys: bool
    """Its state has keys, of which a client may have some."""

    def log_fault(self, principal: Principal) -> str:
        """Return why a client's scope has nothing of such a log; "" = it has some of it, or all."""
        ...

    def is_governing(self, command: bytes) -> bool:
        """Return whether a command administers the log: no client may give it."""
        ...

    def command_fault(self, command: bytes, principal: Principal) -> str:
        """Return what of a command is beyond a principal's keys; "" = nothing."""
        ...

    def query_fault(self, query: bytes, principal: Principal) -> str:
        """Return what of a query is beyond a principal's keys; "" = nothing."""
        ...

    def watch_fault(self, table: str, start: bytes, end: bytes | None, principal: Principal) -> str:
        """Return why a principal may not watch a range of a table; "" = it may."""
        ...


class AuditWords(NamedTuple):
    """Words of a machine about its commands, for the audit.

    Attributes:
        of_command: Returns what one changes, if that is rights, code or holds; "" = it is nothing of that kind.
        of_reply: Returns what came of it, by its reply: "done", or why not.

    """

    of_command: Callable[[bytes], str]
    of_reply: Callable[[bytes], str]


class _WholeLog:
    """Scopes of a machine whose state has no keys: a client may touch all of its log, or nothing of it."""

    nothing = b""
    has_keys = False

    def log_fault(self, principal: Principal) -> str:
        if principal.prefix:
            return _NO_KEYS.format(principal)
        return _NO_TABLES.format(principal) if principal.has_table_bounds else ""

    def is_governing(self, command: bytes) -> bool:  # noqa: ARG002 - as `KeyScopes` has it
        return False

    def command_fault(self, command: bytes, principal: Principal) -> str:  # noqa: ARG002 - as `KeyScopes` has it
        return _NO_KEYS.format(principal)

    def query_fault(self, query: bytes, principal: Principal) -> str:  # noqa: ARG002
        return _NO_KEYS.format(principal)

    def watch_fault(self, table: str, start: bytes, end: bytes | None, principal: Principal) -> str:  # noqa: ARG002
        return _NO_KEYS.format(principal)


_NO_KEYS = "the state of this log has no keys: {} has a prefix of keys, and may not touch it"
_NO_TABLES = "the state of this log has no SQL tables: {} has the right to some tables, and may not touch it"
WHOLE_LOG: KeyScopes = _WholeLog()

_UNLOGGED = frozenset({AnswerStatus.NOT_LEADER, AnswerStatus.OUTCOME_UNKNOWN})


class Submitter(Protocol):
    """Taker of requests: a replica."""

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness, owner: str
    ) -> asyncio.Future[Sequence[Answer]]:
        """Queue requests; one future of all their answers."""
        ...


def fault_of(principal: Principal, log: str, keys: KeyScopes | None) -> str:
    """Return why a principal may send nothing to a log; "" = it may."""
    if principal.role is not Role.CLIENT:
        return ""
    if not principal.may_log(log):
        return f"{principal} may not touch the log {log!r}"
    if keys is None:
        return f"the log {log!r} has no keys that a client could be given: {principal} is one"
    return keys.log_fault(principal)


def reach_of(
    principal: Principal,
    keys: KeyScopes | None,
    audit_words: AuditWords | None = None,
    source: str = "",
    on_refused: Callable[[str], object] = lambda _: None,
) -> Reach | None:
    """Return what is to be looked at in a principal's messages; None = nothing.

    Args:
        principal: Who sends.
        keys: See `KeyScopes`.
        audit_words: Of the machine; None = nothing of it is audited.
        source: Address that it sends from.
        on_refused: Told of each message of which something is beyond it, and what.

    """
    is_client = principal.role is Role.CLIENT
    has_keys = is_client and keys is not None and keys.has_keys
    is_bounded = (has_keys and bool(principal.prefix)) or (is_client and principal.has_table_bounds)
    # A client is kept from what administers a log, where there is such a thing.
    governed = keys if has_keys else None
    if may(principal, Right.STATE_WRITE) and not is_bounded and governed is None and audit_words is None:
        return None
    return Reach(principal, keys if is_bounded else None, audit_words, source, on_refused, governed=governed)


def watch_fault(principal: Principal, log: str, keys: KeyScopes | None, request: WatchRequest) -> str:
    """Return why a principal may not have a watch; "" = it may."""
    fault = fault_of(principal, log, keys)
    if fault or keys is None or principal.role is not Role.CLIENT:
        return fault
    if not principal.prefix and not principal.has_table_bounds:
        return ""
    return keys.watch_fault(request.table, request.start, request.end, principal)


class Reach:
    """See the module.

    Args:
        principal: Who sends.
        keys: Looks into what is asked; None = all keys are in its scope.
        audit_words: See `AuditWords`; None = nothing is audited.
        source: Address that it sends from.
        on_refused: See `reach_of`.
        governed: Knows commands that the principal may not give, whatever its keys are; None = there are none.

    """

    def __init__(
        self,
        principal: Principal,
        keys: KeyScopes | None,
        audit_words: AuditWords | None = None,
        source: str = "",
        on_refused: Callable[[str], object] = lambda _: None,
        *,
        governed: KeyScopes | None = None,
    ) -> None:
        self._principal = principal
        self._governed = governed
        self._keys = keys
        self._audit_words = audit_words
        self._source = source
        self._on_refused = on_refused
        self._can_write = principal.role is not Role.CLIENT or principal.access is ClientAccess.WRITE
        self._can_write = self._can_write and may(principal, Right.STATE_WRITE)

    def submit(self, backend: Submitter, received: ReceivedRequests, owner: str) -> asyncio.Future[Sequence[Answer]]:
        """Give a message to a replica, as far as it may go; return the future of its answers."""
        sent: list[Request] = []
        faults: dict[int, str] = {}
        unsent: set[int] = set()
        audits: dict[int, Audited] = {}  # By place in `sent`, the command behind it: nobody waits for their answers.
        for place, request in enumerate(received.requests):
            fault = self._fault(request)
            if not self._can_write and isinstance(request, OpenSession):
                unsent.add(place)
                continue
            if fault:
                faults[place] = fault
                beyond = self._keys or self._governed
                if isinstance(request, Command) and self._can_write and beyond is not None:
                    request = Command(  # noqa: PLW2901 - what is sent instead
                        request.session, request.sequence, request.answered_up_to, beyond.nothing
                    )
                else:
                    unsent.add(place)
                    continue
            audited = self._audited(request)
            if audited is not None:
                audits[len(sent)] = audited
                sent.append(audited)
            sent.append(request)
        if faults:
            self._on_refused(next(iter(faults.values())))
        merged: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()

        def merge(answers: Sequence[Answer]) -> None:
            if merged.done():
                return
            self._tell_outcomes(backend, audits, answers, owner)
            given = (answer for place, answer in enumerate(answers) if place not in audits)
            merged.set_result([
                _answer(faults.get(place, ""), None if place in unsent else next(given))
                for place in range(len(received.requests))
            ])  # fmt: skip

        if not sent:
            merge(())
            return merged
        future = backend.submit(sent, freshness=received.freshness, owner=owner)
        future.add_done_callback(lambda done: merged.cancel() if done.cancelled() else merge(done.result()))
        return merged

    def _tell_outcomes(
        self, backend: Submitter, audits: dict[int, Audited], answers: Sequence[Answer], owner: str
    ) -> None:
        """Write lines of what was asked and what came of it, and have the latter logged where the former was."""
        ended: list[Request] = []
        for place, asked in audits.items():
            before, after = answers[place], answers[place + 1]
            end = msgspec.structs.replace(asked, outcome=self._outcome(after))
            if before.status not in _UNLOGGED:
                tell(msgspec.structs.asdict(asked), revision=before.revision or None)
                ended.append(end)
            tell(msgspec.structs.asdict(end))
        if ended:
            # A leader that is deposed meanwhile told it by its line.
            backend.submit(ended, freshness=LINEARIZABLE, owner=owner)

    def _outcome(self, answer: Answer) -> str:
        match answer.status:
            case AnswerStatus.OK:
                assert self._audit_words is not None
                return self._audit_words.of_reply(answer.payload)
            case AnswerStatus.OUTCOME_UNKNOWN:
                return "not known: this leader was deposed"
            case AnswerStatus.NOT_LEADER:
                return "not done: another replica leads"
            case status:
                return f"refused: {status.name}"

    def _audited(self, request: Request) -> Audited | None:
        if self._audit_words is None or not isinstance(request, Command):
            return None
        words = self._audit_words.of_command(request.payload)
        principal = self._principal
        return Audited(principal.name, principal.role.value, self._source, words, "", ASKED) if words else None

    def _fault(self, request: Request) -> str:
        principal = self._principal
        if isinstance(request, Command) and not self._can_write:
            return f"{principal} reads only"
        if isinstance(request, Command) and is_marked(request.payload):
            try:
                return self._mark_fault(decode_mark(request.payload))
            except InvalidCommandError as error:
                return str(error)
        if self._governed is not None and isinstance(request, Command) and self._governed.is_governing(request.payload):
            return f"{principal} may not administer the log"
        if self._keys is None:
            return ""
        if isinstance(request, Query):
            return self._keys.query_fault(request.payload, principal)
        return self._keys.command_fault(request.payload, principal) if isinstance(request, Command) else ""

    def _mark_fault(self, mark: WriterMark) -> str:
        """Return what of a writer's command is beyond the principal: its keys, the name of the writer, or rights."""
        principal, keys = self._principal, self._keys
        if self._audit_words is not None and self._audit_words.of_command(mark.payload):
            return f"writer {mark.writer[:40]!r}: a writer writes rows, it changes no rights, code or holds"
        if self._governed is not None and self._governed.is_governing(mark.payload):
            return f"{principal} may not administer the log"
        if keys is None:
            return ""
        if not mark.writer.startswith(f"{principal.name}/"):
            return f"{principal} may write as {principal.name}/… only, not as writer {mark.writer[:40]!r}"
        return keys.command_fault(mark.payload, principal) if mark.payload else ""


def _answer(fault: str, answer: Answer | None) -> Answer:
    if answer is None:
        return Answer(AnswerStatus.REFUSED if fault else AnswerStatus.OK, 0, fault.encode())
    if fault and answer.status in (AnswerStatus.OK, AnswerStatus.REFUSED):
        return Answer(AnswerStatus.REFUSED, answer.revision, fault.encode())
    return answer
