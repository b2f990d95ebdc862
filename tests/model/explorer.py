"""Explores the model: breadth first, which finds shortest traces, and by random walks that end in calm.

A move is a few steps that are done as one, where nothing that others may do between them matters: a recovery's last
word and the replay after it, a write that arrives and its writer's knowledge of it. Trouble costs: `World.left`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.model.leases import may_end_promise, may_look
from tests.model.protocol import deleted_by, may_lead, next_entry, step
from tests.model.world import CLOSED, INC, OPEN, READ, RECOVERING, Phase, Replica, World

__all__ = ["Found", "Move", "begin", "do", "moves", "search", "shrink", "walk"]

CALM_MOVES_MAX = 1_500


class Move(NamedTuple):
    """Steps done as one, and which trouble they use up."""

    cost: str
    steps: tuple[tuple[Any, ...], ...]

    def __str__(self) -> str:
        return "+".join(f"{name}({','.join(map(str, arguments))})" for name, *arguments in self.steps)


class Found(NamedTuple):
    """What a search came to: `broken` is None if all that was seen holds."""

    broken: str | None
    trace: list[Move]
    count: int  # type: ignore[assignment]  # A tuple counts too.
    is_complete: bool

    def __str__(self) -> str:
        return f"{self.broken or 'holds'} ({self.count} states or moves): " + " ; ".join(map(str, self.trace))


def begin(world: World) -> World:
    """Have replica 0 lead, with its first ledger in the chain and its first entry on its way."""
    world.bugs, bugs = frozenset(), world.bugs
    for action in (
        ("elect", 0),
        ("read", 0, 1),
        ("arrive", 0),
        ("written", 0),
        ("replayed", 0),
        ("create", 0),
        ("created", 0, 0),
        ("arrive", 0),
        ("written", 0),
        ("compose", 0),
    ):
        step(world, action)
    world.bugs = bugs
    return world


def do(world: World, move: Move) -> None:
    """Do a move, and pay for it."""
    if move.cost:
        world.left = {**world.left, move.cost: world.left[move.cost] - 1}
    for action in move.steps:
        if world.broken:
            return
        step(world, action)


def moves(w: World, calm: int | None = None) -> list[Move]:
    """Return all that may happen next. In the calm there is no more trouble, and replica `calm` is elected."""
    out = [Move("", tuple(steps)) for steps in _world_moves(w)]
    is_led = False
    for i, r in enumerate(w.replicas):
        is_led |= r.phase != Phase.FOLLOW
        out += [Move(cost, tuple(steps)) for cost, steps in _replica_moves(w, i, r)]
    out += [Move(cost, ((name, session, i),)) for cost, name, session, i in _client_moves(w, calm)]
    if calm is None:
        out = [move for move in out if not move.cost or w.left.get(move.cost)]
        waited_for = [r.write for r in w.replicas]
        for k, write in enumerate(w.writes):
            if write.version == w.chain.version + 1 and write not in waited_for:
                out.append(Move("", (("arrive", k),)))
        if w.left.get("auto") and len(w.recoveries) < 2:
            for number, led in enumerate(w.ledgers):
                if led.meta != CLOSED and not led.is_gone and led.entries:
                    out.append(Move("auto", (("recover", number),)))
    else:
        out = [move for move in out if not move.cost]
        if not is_led:
            out.append(Move("", (("elect", calm), ("read", calm, w.chain.version))))
    return out


def _world_moves(w: World) -> Iterator[list[tuple[Any, ...]]]:
    for number, led in enumerate(w.ledgers):
        if led.stored < len(led.entries) and not led.is_fenced and led.meta != CLOSED and not led.is_gone:
            yield [("store", number)]
        if led.is_promised and may_end_promise(w, number):
            yield [("promise_over", number)]
    for k, (number, end) in enumerate(w.recoveries):
        led = w.ledgers[number]
        if end >= 0 or led.meta == CLOSED or led.is_gone:
            yield [("finish", k)]
        elif led.is_promised and "fence_not_waited_for" not in w.bugs:
            if not led.is_fenced:
                yield [("fence_taken", k)]
        else:
            for chosen in range(max(led.stored, led.kept), len(led.entries) + 1):
                yield [("fence", k, chosen)]


def _replica_moves(w: World, i: int, r: Replica) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    if r.write is not None:
        yield from _write_moves(w, i, r)
    if deleted_by(w, i):
        yield "" if "orphan_early" in w.bugs else "orphan", [("collect", i)]
    match r.phase:
        case Phase.FOLLOW:
            if may_lead(w, i):
                yield "elect", [("elect", i), ("read", i, w.chain.version)]
            here = [number for number, _ in w.chain.ledgers]
            if next_entry(w, i) is not None:
                yield "", [("apply", i)]
            elif here and here[0] != 0 and r.place[0] not in here:
                yield "", [("fetch", i)]
        case Phase.RECOVER:
            yield from _recover_moves(w, i, r)
        case Phase.CREATE:
            yield "", [("create", i), ("created", i, len(w.ledgers))]
        case Phase.LEAD:
            yield from _lead_moves(w, i, r)
        case Phase.SENT:
            led = w.ledgers[r.ledger]
            if led.lac == r.acked and led.stored > led.lac and not led.is_frozen:
                yield "", [("acknowledge", r.ledger), ("confirmed", i)]
            if led.lac == r.acked:
                yield "" if led.is_fenced or led.meta == CLOSED else "fail", [("add_failed", i)]
        case Phase.CLOSE:
            yield from _close_moves(w, i, r)
    if r.phase != Phase.FOLLOW:
        yield "down", [("resign", i)]
    if r.lease >= 0:
        yield "", [("lease_over", i)]
    yield "crash", [("crash", i)]
    yield "disk", [("lose_disk", i)]
    yield "version", [("install", i, 3 - r.code)]
    if r.phase in (Phase.FOLLOW, Phase.LEAD) and r.snapshot[0].number < r.state.number:
        yield "snap", [("snap", i)]


def _write_moves(w: World, i: int, r: Replica) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """A write arrives and is answered; its answer is lost; it is lost, or late; it is refused."""
    assert r.write is not None
    now = w.chain.version
    if now + 1 == r.write.version:
        k = w.writes.index(r.write)
        yield "", [("arrive", k), ("written", i)]
        yield "lost", [("arrive", k), ("write_failed", i), ("read", i, now + 1)]
        yield "lost", [("write_failed", i), ("read", i, now)]
    else:
        yield "", [("write_failed", i), ("read", i, now)]


def _recover_moves(w: World, i: int, r: Replica) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    assert r.held is not None
    if r.is_recovered:
        yield "", [("replayed", i)]
        return
    here = [number for number, _ in r.held.ledgers]
    opened = [number for number in here if w.ledgers[number].meta != CLOSED]
    if any(w.ledgers[number].is_gone for number in here):
        yield "", [("gone", i), ("read", i, w.chain.version)]
    elif not opened:
        yield "", [("recovered", i), ("replayed", i)]
    elif opened[0] not in [x for x, _ in w.recoveries]:
        yield "", [("recover", opened[0])]


def _lead_moves(w: World, i: int, r: Replica) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    led = w.ledgers[r.ledger]
    if not r.leading or r.inbox or r.raising or led.is_fenced or led.meta == CLOSED:
        yield "", [("compose", i)]
    if r.leading and r.inbox and r.proven != r.inbox and all(request.kind == READ for request in r.inbox):
        asked = led
        if "check_of_a_former_ledger" in w.bugs:
            asked = next(led for led in w.ledgers if led.epoch == r.epoch)
        if not asked.is_fenced or "check_ignored" in w.bugs:
            yield "", [("check", i)]
        if may_look(w, i):
            yield "", [("lease_look", i)]
    if r.leading and r.lease != r.ledger and (not led.is_fenced or "granted_when_fenced" in w.bugs):
        yield "lease", [("grant", i)]
    if r.proven:
        yield "", [("answer_reads", i)]
    if not r.leading or r.held is None or r.write is not None:
        return
    yield "roll", [("roll", i)]
    if r.code > r.state.version:
        yield "force", [("raise_version", i, True)]
        if "raised_unasked" in w.bugs or all(other.code >= r.code for other in w.replicas):
            yield "raise", [("raise_version", i, False)]
    if r.held.deleting:
        yield "", [("delete", i)]
        return
    first = r.held.ledgers[0][0]
    copies = sum(other.snapshot[1][0] > first for other in w.replicas)
    is_safe = copies >= (1 if "one_copy" in w.bugs else min(2, len(w.replicas)))
    if first != r.ledger and w.ledgers[first].meta == CLOSED and is_safe:
        yield "trim", [("trim", i)]


def _close_moves(w: World, i: int, r: Replica) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    led = w.ledgers[r.ledger]
    if led.is_gone:
        yield "", [("gone", i), ("read", i, w.chain.version)]
    elif led.meta == CLOSED:
        yield "", [("learned", i)]
    elif led.meta == OPEN or "close_over" in w.bugs:
        yield "", [("close", r.ledger), ("learned", i)]
    elif led.meta == RECOVERING and r.ledger not in [x for x, _ in w.recoveries]:
        yield "", [("recover", r.ledger)]


def _client_moves(w: World, calm: int | None) -> Iterator[tuple[str, str, int, int]]:
    for session, client in enumerate(w.clients):
        for i, r in enumerate(w.replicas):
            if not r.leading:
                continue
            if not client.is_waiting and client.sequence + 1 < len(w.script[session]):
                yield "", "invoke", session, i
            elif client.is_waiting and (calm is None or (not r.inbox and r.phase == Phase.LEAD)):
                yield "resend" if calm is None else "", "request", session, i


# ---- searching


def search(make: Callable[[], World], states_max: int = 200_000) -> Found:
    """Look breadth first for the shortest way to break something."""
    first = make()
    seen = {first.key()}
    came_from: list[tuple[int, Move]] = []
    frontier: list[tuple[World, int]] = [(first, -1)]
    while frontier:
        following: list[tuple[World, int]] = []
        for world, node in frontier:
            for move in moves(world):
                new = world.clone()
                do(new, move)
                if new.broken:
                    return Found(new.broken, [*_way(came_from, node), move], len(seen), is_complete=False)
                key = new.key()
                if key not in seen:
                    seen.add(key)
                    came_from.append((node, move))
                    following.append((new, len(came_from) - 1))
            if len(seen) > states_max:
                return Found(None, [], len(seen), is_complete=False)
        frontier = following
    return Found(None, [], len(seen), is_complete=True)


def _way(came_from: list[tuple[int, Move]], node: int) -> list[Move]:
    out: list[Move] = []
    while node >= 0:
        node, move = came_from[node]
        out.append(move)
    return out[::-1]


def walk(make: Callable[[], World], rng: random.Random, length: int) -> Found:
    """Walk at random, then calm: the last client's next command must be answered."""
    world, done = make(), []
    for _ in range(length):
        choices = moves(world)
        if not choices:
            break
        done.append(rng.choice(choices))
        do(world, done[-1])
        if world.broken:
            return Found(world.broken, done, len(done), is_complete=False)
    for i, replica in enumerate(world.replicas):
        if world.left.get("version") is not None and replica.code == 1:
            step(world, ("install", i, 2))  # The roll comes to its end.
    probe, calm = len(world.script) - 1, rng.randrange(len(world.replicas))
    world.script = (*world.script[:-1], (*world.script[-1], INC))
    for _ in range(CALM_MOVES_MAX):
        client = world.clients[probe]
        is_over = client.sequence + 1 >= len(world.script[probe]) and not client.is_waiting
        if is_over and (probe, client.sequence) in world.done:
            return Found(None, done, len(done), is_complete=True)
        if is_over:  # The probe was refused: once more.
            world.script = (*world.script[:-1], (*world.script[-1], INC))
        choices = moves(world, calm)
        if not choices:
            break
        done.append(rng.choice(choices))
        do(world, done[-1])
        if world.broken:
            return Found(world.broken, done, len(done), is_complete=False)
    return Found("convergence: no progress in the calm", done, len(done), is_complete=False)


def shrink(make: Callable[[], World], found: Found) -> list[Move]:
    """Leave out what a broken invariant does not need."""

    def is_needed_by(some: list[Move]) -> bool:
        world = make()
        for move in some:
            if move in moves(world):
                do(world, move)
            if world.broken:
                return world.broken == found.broken
        return False

    kept, size = found.trace, max(1, len(found.trace) // 2)
    while size:
        at = 0
        while at < len(kept):
            less = kept[:at] + kept[at + size :]
            if is_needed_by(less):
                kept = less
            else:
                at += size
        size //= 2
    return kept
