"""Following, stepping down, snapshots and trimming (design D8, D9)."""

from __future__ import annotations

from tests.model.rules import need, rule
from tests.model.world import CLOSED, Chain, Entry, Ledger, Phase, State, World, write_chain

__all__ = ["apply", "deleted_by", "may_lead", "next_entry", "orphans", "step_down"]

# ---- leaving, following


def step_down(w: World, i: int, *, is_known: bool | None = None) -> None:
    """Follow. Between a known end and the next append the batch is certainly not applied."""
    r = w.replica(i)
    if is_known is None:
        is_known = r.phase in (Phase.CREATE, Phase.CHAIN)
    denied, waiting = r.inbox, r.waiting
    if "not_rebuilt" in w.bugs and r.batch is not None:
        r.state = r.ahead
    r.phase, r.batch, r.waiting, r.inbox, r.proven = Phase.FOLLOW, None, (), (), ()
    r.write, r.asked, r.leading = None, -1, False
    r.raising = r.raising and "raised_twice" in w.bugs
    w.deny((*denied, *(request for request, _, _ in waiting if is_known)))


@rule
def resign(w: World, i: int) -> None:
    """The session with the metadata store is lost, or the replica stops leading for another reason."""
    need(w.replicas[i].phase != Phase.FOLLOW, "it does not lead")
    step_down(w, i)


@rule
def crash(w: World, i: int) -> None:
    """The process ends, and begins again with its newest snapshot."""
    r = w.replica(i)
    r.inbox = r.waiting = r.proven = ()
    step_down(w, i)
    r = w.replica(i)
    r.state, r.place = r.snapshot
    r.ahead = r.state


@rule
def install(w: World, i: int, code: int) -> None:
    """The process ends, and another one begins that runs this version: the next, or the one before."""
    crash(w, i)
    r = w.replica(i)
    r.code, r.since = code, w.chain.epoch
    r.raising = False


@rule
def boot(w: World, i: int, state: State, place: tuple[int, int]) -> None:
    """Begin with a snapshot: whosever it is, it holds what is committed."""
    r = w.replica(i)
    need(r.phase == Phase.FOLLOW, "it does not follow")
    need(state.number == 0 or w.truth[state.number - 1] == state.prefix, "nobody committed this state")
    r.state = r.ahead = state
    r.place = place
    r.snapshot = (state, place)


@rule
def apply(w: World, i: int) -> None:
    """Apply the next entry that is committed."""
    found = next_entry(w, i)
    need(found is not None, "the next entry is not known to be committed")
    assert found is not None
    (number, at), entry = found
    w.commit(i, entry)
    r = w.replica(i)
    state = r.state.apply(entry)
    if state is None:
        w.fail("no-gap", f"replica {i}: entry {entry.number} does not follow its state")
        return
    r.state, r.place = state, (number, at + 1)


def may_lead(w: World, i: int) -> bool:
    """Return whether the log, as far as the replica knows it, is of no newer version than its own."""
    return w.replicas[i].state.version <= w.replicas[i].code or "old_leads" in w.bugs


def next_entry(w: World, i: int) -> tuple[tuple[int, int], Entry] | None:
    """Return the next entry that replica `i` may take as committed, and where it lies."""
    r = w.replicas[i]
    if r.phase not in (Phase.FOLLOW, Phase.CLAIM, Phase.RECOVER):
        return None
    here = [number for number, _ in w.chain.ledgers]
    number, at = r.place
    if number < 0 and here and here[0] == 0:
        number, at = 0, 0
    if number not in here:
        return None
    for there in here[here.index(number) :]:
        led = w.ledgers[there]
        if led.is_gone:
            return None
        if at < _limit(w, led):
            return (there, at), led.entries[at]
        if not (led.meta == CLOSED and at >= led.end or "successor_ends" in w.bugs):
            return None
        at = 0
    return None


def _limit(w: World, led: Ledger) -> int:
    """Return how many entries of a ledger are known to be committed."""
    if led.meta == CLOSED and "successor_ends" not in w.bugs:
        return led.end
    if "above_lac" in w.bugs:
        return len(led.entries)
    return max(led.lac, led.header) if "header_lac" in w.bugs else led.lac


# ---- snapshots, trimming, orphans


@rule
def snap(w: World, i: int) -> None:
    """A snapshot reaches the disk."""
    r = w.replica(i)
    need(r.phase in (Phase.FOLLOW, Phase.LEAD), "the state is not between two entries")
    r.snapshot = (r.state, r.place)


@rule
def lose_disk(w: World, i: int) -> None:
    """One disk is lost, with the process."""
    r = w.replica(i)
    r.snapshot = (r.state._replace(number=0, prefix=0, epoch=0, value=0, sessions=((-1, 0),) * len(w.script)), (-1, 0))
    crash(w, i)


@rule
def fetch(w: World, i: int) -> None:
    """The place in the log has been trimmed: begin with the best snapshot that anybody has."""
    r = w.replica(i)
    need(r.phase == Phase.FOLLOW, "it does not follow")
    here = [number for number, _ in w.chain.ledgers]
    need(here and here[0] != 0, "nothing is missing")
    r.state, r.place = max((other.snapshot for other in w.replicas), key=lambda kept: kept[0].number)
    r.ahead = r.state
    if r.place[0] not in here:
        w.fail("acked-is-durable", "no snapshot reaches the log")


@rule
def trim(w: World, i: int) -> None:
    """The oldest ledger leaves the chain: it is closed, and two disks hold what it said."""
    r = w.replica(i)
    need(r.phase == Phase.LEAD and r.leading and r.held is not None and not r.held.deleting, "it does not lead")
    assert r.held is not None
    first = r.held.ledgers[0][0]
    copies = sum(other.snapshot[1][0] > first for other in w.replicas)
    need(first != r.ledger and w.ledgers[first].meta == CLOSED, "it is being written")
    need(copies >= (1 if "one_copy" in w.bugs else min(2, len(w.replicas))), "not enough snapshots reach beyond it")
    amend(w, i, (first,))


@rule
def delete(w: World, i: int) -> None:
    """What has left the chain is deleted, and then forgotten."""
    held = w.replicas[i].held
    need(held is not None and held.deleting, "nothing is to be deleted")
    assert held is not None
    for number in held.deleting:
        remove(w, number)
    amend(w, i, forgotten=held.deleting)


@rule
def amend(w: World, i: int, leaving: tuple[int, ...] = (), forgotten: tuple[int, ...] = ()) -> None:
    """A leader writes the chain with nothing in flight: ledgers leave at the front, or are deleted and forgotten."""
    r = w.replica(i)
    held = r.held
    need(r.phase == Phase.LEAD and r.batch is None and held is not None, "it does not lead, or a batch is in flight")
    assert held is not None
    need(tuple(number for number, _ in held.ledgers[: len(leaving)]) == leaving, "they are not at the front")
    need(r.ledger not in leaving, "it is being written")
    need(all(w.ledgers[number].is_gone for number in forgotten), "it is not deleted")
    deleting = tuple(number for number in (*held.deleting, *leaving) if number not in forgotten)
    r.phase = Phase.AMEND
    chain = held._replace(version=held.version + 1, ledgers=held.ledgers[len(leaving) :], deleting=deleting)
    write_chain(w, r, chain)


@rule
def remove(w: World, number: int) -> None:
    """Delete a ledger: the chain has named it as being deleted, or an earlier leader never chained it."""
    led, chain = w.ledger(number), w.chain
    need(not any(number == named for named, _ in chain.ledgers), "the chain names it")
    was_named = any(number in before.deleting for before in w.history)
    need(was_named or led.epoch < chain.epoch, "its creator may still chain it")
    led.is_gone = True


def orphans(w: World, i: int, chain: Chain) -> list[int]:
    """Return the ledgers of lower epochs that a chain does not name."""
    known = {number for number, _ in chain.ledgers} | set(chain.deleting)
    epoch = w.replicas[i].epoch
    return [
        number for number, led in enumerate(w.ledgers) if not led.is_gone and led.epoch < epoch and number not in known
    ]


def deleted_by(w: World, i: int) -> list[int]:
    """Return the orphans that replica `i` would delete now."""
    r = w.replicas[i]
    if "orphan_early" in w.bugs and r.phase == Phase.CLAIM and r.write is not None:
        return orphans(w, i, w.history[r.write.version - 2])
    if r.phase == Phase.LEAD and r.leading and r.held is not None:
        return orphans(w, i, r.held)
    return []


@rule
def collect(w: World, i: int) -> None:
    """Delete ledgers of lower epochs that the chain, as this leader wrote it, does not name."""
    found = deleted_by(w, i)
    need(found, "there are no orphans, or it is too early to tell")
    for number in found:
        w.ledger(number).is_gone = True
