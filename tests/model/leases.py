"""Leases of reads: what bookies promise the writer of a ledger, and when each side takes it for over.

There is no time here. What leases need of it is one rule: the leader's lease ends before the promises do. So bookies
may end theirs only when no replica holds it any more.
"""

from __future__ import annotations

from tests.model.rules import need, rule
from tests.model.world import READ, Phase, World

__all__ = ["may_end_promise", "may_look"]


def may_look(w: World, i: int) -> bool:
    """Return whether a leader holds a lease of the ledger that it writes."""
    r = w.replicas[i]
    return r.lease == r.ledger >= 0 or (r.lease >= 0 and "lease_of_a_former_ledger" in w.bugs)


def may_end_promise(w: World, number: int) -> bool:
    """Return whether bookies may take their promise for over."""
    if "promise_forgotten" in w.bugs or "counted_from_the_answer" in w.bugs:
        return True
    return all(r.lease != number for r in w.replicas)


@rule
def grant(w: World, i: int) -> None:
    """An ack quorum of each write set promises that nobody hears of a fence; none of them has taken one."""
    r = w.replica(i)
    need(r.phase == Phase.LEAD and r.leading, "it does not lead")
    led = w.ledger(r.ledger)
    need(not led.is_fenced or "granted_when_fenced" in w.bugs, "it is fenced")
    led.is_promised = True
    r.lease = r.ledger


@rule
def lease_over(w: World, i: int) -> None:
    """The leader's time is over."""
    need(w.replicas[i].lease >= 0, "it holds none")
    w.replica(i).lease = -1


@rule
def promise_over(w: World, number: int) -> None:
    """The bookies' time is over."""
    need(w.ledgers[number].is_promised, "nothing is promised")
    need(may_end_promise(w, number), "somebody relies on it")
    w.ledger(number).is_promised = False


@rule
def fence_taken(w: World, k: int) -> None:
    """A fence has come; its answer waits."""
    number, chosen = w.recoveries[k]
    need(chosen < 0 and w.ledgers[number].is_promised, "it is told at once")
    w.ledger(number).is_fenced = True


@rule
def lease_look(w: World, i: int) -> None:
    """The lease holds: so nobody has taken over, for all reads that have come. They are answered later."""
    r = w.replica(i)
    need(r.phase == Phase.LEAD and r.leading, "it does not lead")
    need(may_look(w, i), "it holds no lease of this ledger")
    need(r.inbox and all(request.kind == READ for request in r.inbox), "nothing but reads is answered by a lease")
    r.proven = r.inbox
