"""Taking a log over (design D6, D7): the claim, the held version, recovery, replay, a new ledger in the chain."""

from __future__ import annotations

from tests.model.entries import begin_ledger
from tests.model.following import apply, may_lead, next_entry, step_down
from tests.model.rules import need, rule
from tests.model.world import CLOSED, RECOVERING, Chain, Ledger, Phase, World, write_chain

__all__: list[str] = []

# ---- the chain


@rule
def elect(w: World, i: int) -> None:
    """The election is won, rightly or not: read the chain."""
    r = w.replica(i)
    need(r.phase == Phase.FOLLOW, "only a follower is elected")
    need(may_lead(w, i), "it runs an older version than the log's")
    r.phase, r.write, r.held, r.asked = Phase.CLAIM, None, None, w.chain.version
    r.epoch, r.is_recovered, r.leading = 0, False, False


@rule
def read(w: World, i: int, version: int) -> None:
    """The chain as it was at some moment since it was asked for."""
    r = w.replica(i)
    need(0 <= r.asked <= version <= w.chain.version, f"version {version} of the chain was not there to be read")
    now, r.asked = w.history[version - 1], -1
    if r.phase in (Phase.RECOVER, Phase.CLOSE):
        assert r.held is not None
        if now.version == r.held.version:
            w.fail("acked-is-durable", "a ledger that the chain names is gone")
        step_down(w, i)
    elif r.write is None:
        r.epoch = now.epoch + 1
        if "no_claim" in w.bugs:
            _arrived(w, i, now)
        else:
            write_chain(w, r, now._replace(version=version + 1, epoch=r.epoch, leader=r.name))
    else:
        _judge(w, i, now)


def _judge(w: World, i: int, now: Chain) -> None:
    """Held version: send again. The next one, and mine: done. Anything else: deposed."""
    r = w.replica(i)
    assert r.write is not None
    is_mine = now == r.write
    if "mine_by_name" in w.bugs and r.phase == Phase.CLAIM:
        is_mine = (now.epoch, now.leader) == (r.write.epoch, r.write.leader)
    if is_mine:
        _arrived(w, i, now)
    elif now.version == r.write.version - 1:
        if "orphan_own" in w.bugs and r.phase == Phase.CHAIN:
            w.ledger(r.ledger).is_gone = True
            step_down(w, i)
        else:
            write_chain(w, r, r.write)
    elif "fresh_version" in w.bugs and r.phase == Phase.CHAIN:
        ledgers = (*now.ledgers, (r.ledger, None))
        write_chain(w, r, Chain(now.version + 1, r.epoch, r.name, ledgers, now.deleting))
    else:
        step_down(w, i)


@rule
def arrive(w: World, k: int) -> None:
    """A write arrives at the metadata store and replaces the version that its writer held."""
    need(0 <= k < len(w.writes), "no such write is on its way")
    chain = w.writes[k]
    need(chain.version == w.chain.version + 1, "another write came before")
    w.chain = chain
    w.history += (chain,)
    w.writes = tuple(write for write in w.writes if write.version > chain.version)
    for number, _ in chain.ledgers:
        if w.ledgers[number].is_gone:
            w.fail("acked-is-durable", "a deleted ledger is in the chain")
    if not w.bugs and any(w.ledgers[number].meta != CLOSED for number, _ in chain.ledgers[:-1]):
        w.fail("closed-is-final", "a ledger that is not the last of the chain is not closed")


@rule
def written(w: World, i: int) -> None:
    """The writer is told that its write arrived."""
    want = w.replicas[i].write
    need(want is not None and want.version <= len(w.history) and w.history[want.version - 1] == want, "not arrived")
    assert want is not None
    _arrived(w, i, want)


@rule
def write_failed(w: World, i: int) -> None:
    """The write was refused, or its reply is lost: it may have arrived, or still arrive. Read the chain."""
    r = w.replica(i)
    need(r.write is not None and r.asked < 0, "no write is under way")
    r.asked = w.chain.version


def _arrived(w: World, i: int, chain: Chain) -> None:
    r = w.replica(i)
    r.held, r.write, r.asked = chain, None, -1
    if r.phase == Phase.CLAIM:
        r.phase = Phase.RECOVER
        r.is_recovered = all(end is not None for _, end in chain.ledgers)
    elif r.phase == Phase.AMEND:
        r.phase = Phase.LEAD
    elif r.phase == Phase.CHAIN:
        if any(epoch == r.epoch and who != i for epoch, who in w.chained):
            w.fail("single-writer", f"epoch {r.epoch} is used twice")
        if (r.epoch, i) not in w.chained:
            w.chained += ((r.epoch, i),)
        begin_ledger(w, i)


# ---- taking over


@rule
def recover(w: World, number: int) -> None:
    """Somebody begins to recover a ledger: a new leader, its writer, an auto-recovery."""
    led = w.ledger(number)
    need(led.meta != CLOSED and not led.is_gone, "there is nothing to recover")
    led.meta = RECOVERING
    w.recoveries += ((number, -1),)


@rule
def fence(w: World, k: int, end: int) -> None:
    """A recovery has fenced, read what is there, and written it back. It shows its own, rising LAC."""
    number, chosen = w.recoveries[k]
    led = w.ledger(number)
    need(chosen < 0, "it has chosen")
    need(not led.is_promised or "fence_not_waited_for" in w.bugs, "nobody hears of a fence")
    need(max(led.stored, led.kept) <= end <= len(led.entries), f"a recovery cannot find {end} entries")
    led.is_fenced = led.is_fenced or "no_fence" not in w.bugs
    led.kept = max(led.kept, end)
    led.header = max(led.header, end - 1)
    w.recoveries = (*w.recoveries[:k], (number, end), *w.recoveries[k + 1 :])


@rule
def finish(w: World, k: int) -> None:
    """A recovery closes the ledger, unless somebody has."""
    number, end = w.recoveries[k]
    led = w.ledger(number)
    need(end >= 0 or led.meta == CLOSED or led.is_gone, "it has not fenced")
    w.recoveries = w.recoveries[:k] + w.recoveries[k + 1 :]
    if led.is_gone:
        if number in [x for x, _ in w.chain.ledgers]:
            w.fail("acked-is-durable", "a ledger that the chain names is gone")
    elif led.meta != CLOSED:
        led.meta, led.end = CLOSED, end


@rule
def recovered(w: World, i: int) -> None:
    """The chain's last ledger, the only one that could be open, is closed: its own metadata say so."""
    r = w.replica(i)
    need(r.phase == Phase.RECOVER and not r.is_recovered and r.held is not None, "nothing is being recovered")
    assert r.held is not None
    need(all(w.ledgers[number].meta == CLOSED for number, _ in r.held.ledgers), "it is not closed")
    r.is_recovered = True


@rule
def gone(w: World, i: int) -> None:
    """The ledger to be recovered or closed does not exist: ask the chain what that means."""
    r = w.replica(i)
    need(r.phase in (Phase.RECOVER, Phase.CLOSE) and r.held is not None, "no ledger is asked for")
    assert r.held is not None
    need(any(w.ledgers[number].is_gone for number, _ in r.held.ledgers), "it is there")
    r.asked = w.chain.version


@rule
def replayed(w: World, i: int) -> None:
    """The state is at the end of the log."""
    r = w.replica(i)
    need(r.phase == Phase.RECOVER and r.is_recovered, "it is not time to replay")
    held = w.replicas[i].held
    assert held is not None
    here = [number for number, _ in held.ledgers]
    while (found := next_entry(w, i)) is not None and found[0][0] in here:
        apply(w, i)
        if w.broken:
            return
    r = w.replica(i)
    if any(w.ledgers[number].is_gone for number in here) or (r.place[0] >= 0 and r.place[0] not in here):
        step_down(w, i)  # Trimmed by a later leader, or before this replica was there.
        return
    rest = here[here.index(r.place[0]) :] if r.place[0] >= 0 else here
    ends = [w.ledgers[number].end - (r.place[1] if number == r.place[0] else 0) for number in rest]
    if any(ends) and here and r.place[0] < 0 and here[0] != 0:
        step_down(w, i)
        return
    if any(ends):
        w.fail("no-gap", f"replica {i} does not come to the end of the log")
    if r.state.number < len(w.truth) and w.chain == held:
        w.fail("acked-is-durable", "a committed entry is lost")
    if "no_claim" in w.bugs:
        r.epoch = r.state.epoch + 1
    if "replies_lost" in w.bugs:
        r.state = r.state._replace(sessions=((-1, 0),) * len(r.state.sessions))
    if not may_lead(w, i):
        step_down(w, i)  # The raise was in what it has replayed.
        return
    r.ahead, r.phase = r.state, Phase.CREATE


# ---- a new ledger


@rule
def create(w: World, i: int) -> None:
    """A ledger comes into being; its creator may never hear of it."""
    r = w.replicas[i]
    need(r.phase == Phase.CREATE, "no ledger is wanted")
    w.ledgers.append(Ledger(r.epoch))


@rule
def created(w: World, i: int, number: int) -> None:
    """Its creator knows it, and writes it into the chain, with the end of the one before."""
    r = w.replica(i)
    need(r.phase == Phase.CREATE and r.held is not None, "no ledger is wanted")
    assert r.held is not None
    need(w.ledgers[number].epoch == r.epoch and not w.ledgers[number].entries, "it is not the new one")
    r.phase, r.ledger, r.acked = Phase.CHAIN, number, 0
    known = tuple((x, w.ledgers[x].end if w.ledgers[x].meta == CLOSED else None) for x, _ in r.held.ledgers)
    write_chain(w, r, Chain(r.held.version + 1, r.epoch, r.name, (*known, (number, None)), r.held.deleting))
    if "entry_first" in w.bugs:
        begin_ledger(w, i)
