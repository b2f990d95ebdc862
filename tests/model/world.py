"""The world of the model: ledgers, the log chain, replicas, clients, and what must be true of all of them.

A ledger is what its writer, its readers and its recoverers can tell of it, no bookies; every number is a count of
entries (last add confirmed + 1, last entry + 1). An entry counts as one revision. Parts are copied before they are
changed (`World.replica`, `World.ledger`, `World.client`), so that worlds share what they have in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

__all__ = [
    "CLOSED",
    "EMPTY",
    "INC",
    "ODD",
    "OPEN",
    "READ",
    "RECOVERING",
    "Chain",
    "Client",
    "Entry",
    "Ledger",
    "Phase",
    "Record",
    "Replica",
    "Request",
    "State",
    "World",
    "entry_of",
    "is_no",
    "shown",
    "write_chain",
    "yes",
]

OPEN, RECOVERING, CLOSED = range(3)
INC, READ, ODD = range(3)
"""What clients ask for. ODD adds one if the value is odd, else its answer is no."""


class Phase:
    """Where a replica stands: the names of the code, which the replayed traces compare."""

    FOLLOW, CLAIM, RECOVER, CREATE, CHAIN = "follow", "claim", "recover", "create", "chain"
    LEAD, SENT, CLOSE, AMEND = "lead", "sent", "close", "amend"


class Record(NamedTuple):
    """What one command left in the log; `reply` is odd if it says yes, and holds the value shown."""

    session: int
    sequence: int
    added: int
    reply: int


class Entry(NamedTuple):
    """An entry; `after` is the prefix hash after it.

    Of the machine's versions: it `raises` the log to one, 0 = to none; it can be folded by a log of version `needs`;
    its leader runs version `code`.
    """

    epoch: int
    number: int
    prefix: int
    records: tuple[Record, ...]
    after: int
    raises: int = 0
    needs: int = 1
    code: int = 1


class State(NamedTuple):
    """A counter, per session its last sequence and the reply to it, and the version of the machine in force."""

    number: int
    prefix: int
    epoch: int
    value: int
    sessions: tuple[tuple[int, int], ...]
    version: int = 1

    def apply(self, entry: Entry) -> State | None:
        """Fold one entry; None if it does not follow."""
        if (entry.number, entry.prefix) != (self.number, self.prefix) or entry.epoch < self.epoch:
            return None
        sessions, value = list(self.sessions), self.value
        for record in entry.records:
            if record.session < len(sessions):
                sessions[record.session] = (record.sequence, record.reply)
            value += record.added
        version = entry.raises or self.version
        return State(self.number + 1, entry.after, entry.epoch, value, tuple(sessions), version)


EMPTY = State(0, 0, 0, 0, ())


class Chain(NamedTuple):
    """The znode: ledgers are (number, end or None while it is not known there)."""

    version: int
    epoch: int
    leader: int
    ledgers: tuple[tuple[int, int | None], ...]
    deleting: tuple[int, ...]


class Request(NamedTuple):
    """What a client sent."""

    session: int
    sequence: int
    kind: int


def yes(value: int) -> int:
    return value * 2 + 1


def is_no(reply: int) -> bool:
    return reply % 2 == 0


def shown(reply: int) -> int:
    return reply // 2


def entry_of(
    state: State, epoch: int, records: tuple[Record, ...], *, raises: int = 0, needs: int = 1, code: int = 1
) -> Entry:
    """Return the entry that follows a state. Only numbers are hashed: the same in every process."""
    after = hash((state.prefix, epoch, state.number, records, raises, needs, code))
    return Entry(epoch, state.number, state.prefix, records, after, raises, needs, code)


class Part:
    """A part of a world."""

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def key(self) -> tuple[Any, ...]:
        return tuple(self.__dict__.values())


class Ledger(Part):
    """`stored`: an ack quorum holds so many: every recovery finds them. `kept`: some recovery wrote so many back.
    `lac`: the writer was told of so many. `header`: recoverers' own adds show so many."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.entries: tuple[Entry, ...] = ()
        self.stored = self.lac = self.kept = self.header = 0
        self.meta = OPEN
        self.end = -1
        self.is_fenced = self.is_gone = self.is_frozen = False
        self.is_promised = False  # Nobody hears of a fence.


class Replica(Part):
    """A replica; `ahead` is `state` with the batch in flight applied, `held` the chain as its last write left it.

    It runs version `code` of the machine, since epoch `since`; `raising`: its next ledger begins with that version.
    """

    def __init__(self, name: int, state: State) -> None:
        self.name = name
        self.phase = Phase.FOLLOW
        self.epoch = 0
        self.held: Chain | None = None
        self.write: Chain | None = None
        self.asked = -1  # Version of the chain when it began to read it.
        self.ledger = -1
        self.acked = 0
        self.is_recovered = self.leading = False
        self.batch: Entry | None = None
        self.waiting: tuple[tuple[Request, int, int], ...] = ()  # Request, reply, value shown.
        self.inbox: tuple[Request, ...] = ()
        self.proven: tuple[Request, ...] = ()  # Reads that came before bookies said that there is no fence.
        self.state = self.ahead = state
        self.place = (-1, 0)
        self.snapshot = (state, self.place)
        self.lease = -1  # Ledger of which bookies have promised that, as far as it knows; -1 = of none.
        self.code, self.since = 1, 0
        self.raising = False


class Client(Part):
    """A session: one command after the other."""

    def __init__(self) -> None:
        self.sequence = -1
        self.kind = INC
        self.floor = 0
        self.is_waiting = False
        self.tries = 0


class World:
    """Everything, and the ghosts that know the truth.

    Args:
        bugs: Words; see `tests.model.protocol`.
        script: What each client asks for, in order.
        names: What the chain calls the replicas.
        codes: Versions of the machine that they run; () = the first.
        budget: How often each kind of trouble may still come; see `tests.model.explorer`.

    """

    def __init__(
        self,
        bugs: Iterable[str] = (),
        script: tuple[tuple[int, ...], ...] = (),
        names: tuple[int, ...] = (0, 1),
        codes: tuple[int, ...] = (),
        **budget: int,
    ) -> None:
        state = EMPTY._replace(sessions=((-1, 0),) * len(script))
        self.bugs = frozenset(bugs)
        self.script = script
        self.ledgers: list[Ledger] = []
        self.replicas = [Replica(name, state) for name in names]
        for replica, code in zip(self.replicas, codes, strict=False):
            replica.code = code
        self.clients = [Client() for _ in script]
        self.chain = Chain(1, 0, -1, (), ())
        self.history: tuple[Chain, ...] = (self.chain,)
        self.writes: tuple[Chain, ...] = ()  # On their way; each replaces the version before its own.
        self.recoveries: tuple[tuple[int, int], ...] = ()  # (ledger, end chosen or -1)
        self.truth: tuple[int, ...] = ()  # Prefix hash after each entry that anybody took as committed.
        self.truth_epoch = 0
        self.done: frozenset[tuple[int, int]] = frozenset()
        self.refused: frozenset[tuple[int, int]] = frozenset()  # Commands whose client was told no, for good.
        self.told: tuple[tuple[tuple[int, int], int], ...] = ()
        self.seen = 0
        self.chained: tuple[tuple[int, int], ...] = ()  # (epoch, replica) that put a ledger into the chain.
        self.version = 1  # Of the log, by the truth.
        self.is_forced = False
        self.left = budget
        self.broken: str | None = None

    def clone(self) -> World:
        new = object.__new__(World)
        new.__dict__.update(self.__dict__)
        new.ledgers, new.replicas, new.clients = list(self.ledgers), list(self.replicas), list(self.clients)
        return new

    def key(self) -> int:
        """Return what tells this world from others."""
        parts = tuple(part.key() for group in (self.ledgers, self.replicas, self.clients) for part in group)
        ghosts: tuple[object, ...] = (
            self.truth,
            self.truth_epoch,
            self.done,
            self.refused,
            self.told,
            self.seen,
            self.chained,
        )
        more = (*ghosts, self.version, self.is_forced)
        return hash((parts, self.history, self.writes, self.recoveries, more, tuple(self.left.items())))

    def replica(self, i: int) -> Replica:
        self.replicas[i] = changed = self.replicas[i].copy()
        return changed

    def ledger(self, number: int) -> Ledger:
        self.ledgers[number] = changed = self.ledgers[number].copy()
        return changed

    def client(self, session: int) -> Client:
        self.clients[session] = changed = self.clients[session].copy()
        return changed

    def fail(self, invariant: str, what: str) -> None:
        self.broken = self.broken or f"{invariant}: {what}"

    # ---- what must be true

    def commit(self, i: int, entry: Entry) -> None:
        """Replica `i` takes an entry as committed: it was confirmed to it, or it read it."""
        if entry.number < len(self.truth):
            if self.truth[entry.number] != entry.after:
                self.fail("no-gap", f"replica {i} commits another entry {entry.number} than was committed before")
            return
        if entry.number > len(self.truth):
            self.fail("no-gap", f"replica {i} leaves a gap before entry {entry.number}")
            return
        if entry.epoch < self.truth_epoch:
            self.fail("single-writer", f"epoch {entry.epoch} commits after epoch {self.truth_epoch}")
        self.truth += (entry.after,)
        self.truth_epoch = entry.epoch
        self._commit_version(i, entry)
        for session, sequence, added, _ in entry.records:
            if (session, sequence) in self.done:
                self.fail("once-per-session", f"command {session}.{sequence} is in the log twice")
            if added and (session, sequence) in self.refused:
                self.fail("denied", f"command {session}.{sequence} is applied, its client was told that it is not")
            self.done |= {(session, sequence)}

    def _commit_version(self, i: int, entry: Entry) -> None:
        """The log becomes one of a later version, once; what stands in it can be folded by all who follow it."""
        if entry.code < self.version:
            self.fail("no-old-leader", f"version {entry.code} leads, the log is of version {self.version}")
        if entry.raises:
            if entry.raises <= self.version:
                self.fail("raised-once", f"the log is raised to version {entry.raises} again")
            # Whoever has run its version since before the claim was live all the time that this leader has led.
            behind = [r.name for r in self.replicas if r.code < entry.raises and r.since < entry.epoch]
            if behind and not self.is_forced:
                self.fail("raised-by-all", f"version {entry.raises} is in force, replicas {behind} run an older one")
            self.version = entry.raises
        if entry.needs > self.version:
            self.fail("foldable", f"replica {i} folds version {entry.needs} on a log of version {self.version}")

    def tell(self, request: Request, reply: int, value: int) -> None:
        """A reply leaves; `value` is the counter that it shows."""
        session, sequence, kind = request
        command = (session, sequence)
        if kind != READ:
            first = dict(self.told).get(command)
            if first is not None and first != reply:
                self.fail("once-per-session", f"command {session}.{sequence} has two replies")
            if first is None:
                self.told += ((command, reply),)
            if not is_no(reply) and command not in self.done:
                self.fail("acked-is-durable", f"command {session}.{sequence} is acknowledged, not committed")
        client = self.client(session)
        if not client.is_waiting or client.sequence != sequence:
            return
        if value < client.floor + (kind != READ and not is_no(reply)):
            self.fail("stale", f"command {session}.{sequence} shows {value} after {client.floor}")
        if kind != READ and is_no(reply):
            self.refused |= {command}
        self.seen = max(self.seen, value)
        client.is_waiting = False

    def deny(self, requests: Iterable[Request]) -> None:
        """NotLeaderError: certainly not applied; final for a client whose only attempt it was."""
        for session, sequence, kind in requests:
            client = self.client(session)
            if client.is_waiting and client.sequence == sequence and client.tries == 1:
                client.is_waiting = False
                if kind != READ:
                    self.refused |= {(session, sequence)}
                    if (session, sequence) in self.done:
                        self.fail("denied", f"command {session}.{sequence} is denied and applied")


def write_chain(w: World, r: Replica, chain: Chain) -> None:
    """Send a write of the chain; the same write again is the same."""
    r.write = chain
    if chain not in w.writes:
        w.writes += (chain,)
