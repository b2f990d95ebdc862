"""Entries (design D5): group commit, failed adds, what is learned when a ledger is closed; and what clients ask for."""

from __future__ import annotations

from tests.model.following import step_down
from tests.model.rules import need, rule
from tests.model.world import (
    CLOSED,
    ODD,
    OPEN,
    READ,
    Entry,
    Phase,
    Record,
    Request,
    World,
    entry_of,
    shown,
    yes,
)

__all__ = ["begin_ledger"]


def begin_ledger(w: World, i: int) -> None:
    """Append the batch of the ledger before again, unchanged; without one, lead."""
    r = w.replica(i)
    r.acked = 0
    if r.batch is not None:
        push(w, i)
    else:
        r.phase = Phase.LEAD


# ---- entries


@rule
def compose(w: World, i: int, entry: Entry | None = None) -> None:
    """Decide what has arrived, apply it ahead, send it as one entry; an empty one if nothing is logged."""
    r = w.replica(i)
    need(r.phase == Phase.LEAD and r.batch is None, "it does not lead, or a batch is in flight")
    requests, r.inbox, r.waiting, r.proven = r.inbox, (), (), ()
    records: list[Record] = []
    value, sessions = r.state.value, list(r.state.sessions)
    for request in requests:
        record, reply, seen = _decide(w, value, sessions[request.session], request)
        if record is not None:
            records.append(record)
            sessions[request.session] = (record.sequence, record.reply)
            value += record.added
        if reply is not None:
            r.waiting += ((request, reply, seen),)
    r.batch = entry or _entry(w, i, tuple(records))
    following = r.state.apply(r.batch)
    need(following is not None, "the entry does not follow the state")
    assert following is not None
    r.ahead = following
    push(w, i)


def _entry(w: World, i: int, records: tuple[Record, ...]) -> Entry:
    """What the log cannot hold yet is logged as its version has it."""
    r = w.replicas[i]
    raises = r.code if r.raising and (r.state.version < r.code or "raised_twice" in w.bugs) else 0
    r.raising = "raised_twice" in w.bugs and r.raising
    version = raises or r.state.version
    needs = r.code if "not_narrowed" in w.bugs else min(r.code, version)
    return entry_of(r.state, r.epoch, records, raises=raises, needs=needs if records else 1, code=r.code)


def _decide(w: World, value: int, known: tuple[int, int], q: Request) -> tuple[Record | None, int | None, int]:
    """Return (record or None, reply or None, value shown) of one request."""
    last, reply = known
    if q.kind == READ:
        return None, yes(value), value
    if q.sequence < last:
        return None, None, value  # Its client has gone on.
    if q.sequence == last:
        return None, reply, shown(reply)
    if q.kind == ODD and value % 2 == 0:
        no = value * 2
        return (None if "no_is_not_logged" in w.bugs else Record(q.session, q.sequence, 0, no)), no, value
    return Record(q.session, q.sequence, 1, yes(value + 1)), yes(value + 1), value + 1


def push(w: World, i: int) -> None:
    r = w.replica(i)
    assert r.batch is not None
    w.ledger(r.ledger).entries += (r.batch,)
    r.phase = Phase.SENT
    if "reply_early" in w.bugs:
        _answer(w, i)


@rule
def store(w: World, number: int) -> None:
    """An ack quorum holds one more entry."""
    led = w.ledger(number)
    need(led.stored < len(led.entries), "nothing is on its way")
    need(not led.is_fenced and led.meta != CLOSED, "a fenced ledger takes nothing")
    led.stored += 1


@rule
def acknowledge(w: World, number: int) -> None:
    """The writer's handle hears of it, unless it has given up."""
    led = w.ledger(number)
    need(led.lac < led.stored and not led.is_frozen, "nothing is to be acknowledged, or nobody listens")
    led.lac += 1


@rule
def confirmed(w: World, i: int) -> None:
    """The leader hears of it."""
    r = w.replicas[i]
    need(r.phase == Phase.SENT and w.ledgers[r.ledger].lac > r.acked, "the entry is not acknowledged")
    _confirm(w, i)
    w.replica(i).phase = Phase.LEAD


def _confirm(w: World, i: int) -> None:
    """Take the batch as committed: its replies leave."""
    r = w.replica(i)
    assert r.batch is not None
    w.commit(i, r.batch)
    state = r.state.apply(r.batch)
    if state is None:
        w.fail("no-gap", "the own batch does not follow the state")
        return
    r.acked += 1
    if r.batch.raises:
        r.raising = False
    r.state, r.place, r.batch, r.leading = state, (r.ledger, r.acked), None, True
    _answer(w, i)


def _answer(w: World, i: int) -> None:
    r = w.replica(i)
    waiting, r.waiting = r.waiting, ()
    for request, reply, value in waiting:
        w.tell(request, reply, value)


@rule
def add_failed(w: World, i: int) -> None:
    """An add failed, for whatever reason: nothing is known of the entry."""
    r = w.replica(i)
    need(r.phase == Phase.SENT and w.ledgers[r.ledger].lac == r.acked, "the entry is acknowledged")
    w.ledger(r.ledger).is_frozen = True
    r.phase = Phase.CLOSE
    if "failed_is_not_applied" in w.bugs:
        step_down(w, i, is_known=True)
    elif "again_at_once" in w.bugs:
        r.phase = Phase.CREATE


@rule
def roll(w: World, i: int) -> None:
    """The ledger is big or old enough."""
    r = w.replica(i)
    need(r.phase == Phase.LEAD and r.batch is None, "a batch is in flight")
    w.ledger(r.ledger).is_frozen = True
    r.phase = Phase.CLOSE


@rule
def raise_version(w: World, i: int, is_forced: bool) -> None:
    """The next ledger begins with the leader's version: every live replica runs it, or an operator says so."""
    r = w.replica(i)
    need(r.phase == Phase.LEAD and r.leading and r.batch is None, "it does not lead, or a batch is in flight")
    need(r.state.version < r.code, "the log is of that version")
    is_asked = is_forced or "raised_unasked" in w.bugs
    need(is_asked or all(other.code >= r.code for other in w.replicas), "a live replica runs an older one")
    w.is_forced |= is_forced
    r.raising = True
    roll(w, i)


@rule
def close(w: World, number: int) -> None:
    """The writer closes its ledger where it was acknowledged; one that is in recovery it recovers like anybody."""
    led = w.ledger(number)
    need(led.meta == OPEN or "close_over" in w.bugs and led.meta != CLOSED, "it is not open")
    need(led.is_frozen, "its writer writes")
    led.meta, led.end = CLOSED, led.lac


@rule
def learned(w: World, i: int) -> None:
    """The own ledger is closed, whoever closed it: what lies below its end is committed, the rest is not."""
    r = w.replica(i)
    need(r.phase == Phase.CLOSE, "nothing is being closed")
    led = w.ledgers[r.ledger]
    need(led.meta == CLOSED, "it is not closed")
    if not r.acked <= led.end <= r.acked + (r.batch is not None):
        w.fail("acked-is-durable", "closed below an acknowledged entry, or above what was sent")
        return
    if r.batch is not None and (led.stored if "late_ack" in w.bugs else led.end) > r.acked:
        _confirm(w, i)
    w.replica(i).phase = Phase.CREATE


# ---- reads without an entry

_BEFORE = {"check_before_the_read", "looked_before_a_pause"}


@rule
def check(w: World, i: int) -> None:
    """An ack quorum of each write set says that it has taken no fence: so it was for all reads that have come."""
    r = w.replica(i)
    need(r.phase == Phase.LEAD and r.leading, "it does not lead")
    need(r.inbox and all(request.kind == READ for request in r.inbox), "nothing but reads is checked for")
    asked = r.ledger
    if "check_of_a_former_ledger" in w.bugs:
        asked = next(number for number, led in enumerate(w.ledgers) if led.epoch == r.epoch)
    need(not w.ledgers[asked].is_fenced or "check_ignored" in w.bugs, "it is fenced")
    r.proven = r.inbox


@rule
def answer_reads(w: World, i: int) -> None:
    """Reads are answered by a check, from the confirmed state."""
    r = w.replica(i)
    need(r.proven, "nothing is proven")
    need(r.phase == Phase.LEAD and r.batch is None, "a batch is in flight")
    covered = [request for request in r.inbox if request in r.proven or _BEFORE & w.bugs]
    covered = [request for request in covered if request.kind == READ]
    r.inbox = tuple(request for request in r.inbox if request not in covered)
    r.proven = ()
    for request in covered:
        w.tell(request, yes(r.state.value), r.state.value)


# ---- clients


@rule
def invoke(w: World, session: int, i: int) -> None:
    """A client asks for the next thing."""
    c = w.client(session)
    need(not c.is_waiting and c.sequence + 1 < len(w.script[session]), "it has nothing to ask")
    c.sequence += 1
    c.kind, c.floor, c.is_waiting, c.tries = w.script[session][c.sequence], w.seen, True, 0
    request(w, session, i)


@rule
def request(w: World, session: int, i: int) -> None:
    """Its message reaches a replica; for the first time or again."""
    c = w.client(session)
    need(c.is_waiting, "it waits for nothing")
    c.tries += 1
    r = w.replica(i)
    q = Request(session, c.sequence, c.kind)
    if not r.leading:
        w.deny([q])
    elif "read_joins_what_was_sent" in w.bugs and q.kind == READ and r.phase == Phase.SENT:
        r.waiting += ((q, yes(r.ahead.value), r.ahead.value),)
    elif "read_at_once" in w.bugs and q.kind == READ:
        w.tell(q, yes(r.state.value), r.state.value)
    elif "check_ahead" in w.bugs and q.kind == READ and r.phase == Phase.SENT and not w.ledgers[r.ledger].is_fenced:
        w.tell(q, yes(r.ahead.value), r.ahead.value)
    elif (
        "no_at_once" in w.bugs
        and q.kind == ODD
        and r.ahead.value % 2 == 0
        and q.sequence > r.ahead.sessions[session][0]
    ):
        w.tell(q, r.ahead.value * 2, r.ahead.value)
    else:
        r.inbox += (q,)
