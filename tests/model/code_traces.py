"""Replays on the model what replicas do in a simulation: each event of theirs must be a step that the model allows.

Recorded are the events of every leadership, every entry applied, every version of the chain, and what becomes of the
ledgers; each is done on the model at once, and both must then be in the same phase, at the same place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from rsm_spark.core.batching import Batch
from rsm_spark.core.chain import LogChain, decode_chain
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import (
    AddFailed,
    BatchComposed,
    ChainRead,
    ChainWriteFailed,
    ChainWritten,
    DropBatch,
    ElectionWon,
    EntryConfirmed,
    FormatRaiseDue,
    LedgerCreated,
    LedgerEndLearned,
    LedgerGone,
    LedgerRecovered,
    LedgersDeleted,
    Replayed,
    Resigned,
    RollDue,
    TrimDue,
)
from rsm_spark.core.position import LogPosition
from rsm_spark.core.records import decode_records
from rsm_spark.testing.ghosts import Ghosts
from tests.model.protocol import NotAllowedError, step
from tests.model.world import Chain, Entry, Phase, Record, State, World

__all__ = ["Replayer"]

_PLAIN: dict[type[Any], str] = {
    ElectionWon: "elect",
    ChainWritten: "written",
    ChainWriteFailed: "write_failed",
    LedgerRecovered: "recovered",
    LedgerGone: "gone",
    Replayed: "replayed",
    RollDue: "roll",
    EntryConfirmed: "confirmed",
    AddFailed: "add_failed",
    LedgerEndLearned: "learned",
    Resigned: "resign",
}


class Replayer:
    """Runs the model beside a simulated cluster.

    Args:
        ghosts: To be told of a step that the model does not allow.
        names: Of the replicas' hosts.

    Attributes:
        counts: Steps done on the model, by name.

    """

    def __init__(self, ghosts: Ghosts, names: list[str]) -> None:
        self.counts: Counter[str] = Counter()
        self.world = World(names=tuple(range(len(names))))
        self._ghosts = ghosts
        self._index = {name: i for i, name in enumerate(names)}
        self._incarnations: dict[str, int] = {}
        self._numbers: dict[int, int] = {}  # Of ledgers, by id.
        self._recoveries: list[int] = []  # Numbers, in the order of the model's.
        self._found = 0
        self._known: dict[int, tuple[int, tuple[int, int]]] = {}  # By prefix hash: epoch and place of the entry.

    def _do(self, *action: Any) -> None:
        self.counts[action[0]] += 1
        try:
            step(self.world, action)
        except NotAllowedError as error:
            self._ghosts.fail("model", f"{action} is not allowed: {error}")
        if self.world.broken is not None:
            self._ghosts.fail("model", f"{action}: {self.world.broken}")

    def _agree(self, what: str, model: Any, code: Any) -> None:
        if model != code:
            self._ghosts.fail("model", f"{what}: {code!r} in the code, {model!r} in the model")

    # ---- leaderships

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Replay all leaderships of the process inside the block."""
        handle = LeaderProtocol.handle

        def replayed(protocol: LeaderProtocol, event: Any) -> Any:
            effects = handle(protocol, event)
            self._on_event(protocol, event, effects)
            return effects

        with patch.object(LeaderProtocol, "handle", replayed):
            yield

    def _on_event(self, protocol: LeaderProtocol, event: Any, effects: list[Any]) -> None:
        i = self._index[protocol.me.replica_id]
        before = self.world.replicas[i].phase
        if isinstance(event, ElectionWon):
            name = self._incarnations.setdefault(protocol.me.incarnation, len(self._incarnations))
            self.world.replica(i).name = name
        for action in self._actions(i, protocol, event):
            self._do(*action)
        r = self.world.replicas[i]
        self._agree(f"phase after {type(event).__name__}", r.phase, str(protocol.phase))
        if r.phase != Phase.FOLLOW:
            self._agree("epoch", r.epoch, protocol.epoch)
        if r.phase in (Phase.LEAD, Phase.SENT):
            self._agree("entries confirmed", r.acked, protocol.acked + 1)
            self._agree("confirmed state", r.state.prefix, _short(protocol.tip.prefix_hash))
        if protocol.position is not None:
            place = (self._numbers[protocol.position.ledger_id], protocol.position.entry_id + 1)
            self._known.setdefault(_short(protocol.tip.prefix_hash), (protocol.tip.leader_epoch, place))
        for effect in effects:
            if isinstance(effect, DropBatch):
                self._agree("never applied", before in (Phase.CREATE, Phase.CHAIN), effect.applied_never)

    def _actions(self, i: int, protocol: LeaderProtocol, event: Any) -> list[tuple[Any, ...]]:
        match event:
            case ChainRead(version=version):
                return [("read", i, version + 1)]
            case LedgerCreated(ledger_id=ledger_id):
                return [("created", i, self._numbers[ledger_id])]
            case BatchComposed(batch=batch):
                return [("compose", i, self._entry(i, batch))]
            case TrimDue(ledger_ids=ledger_ids):
                return [("amend", i, tuple(self._numbers[ledger_id] for ledger_id in ledger_ids))]
            case LedgersDeleted(ledger_ids=ledger_ids):
                held = self.world.replicas[i].held
                gone = tuple(self._numbers[ledger_id] for ledger_id in ledger_ids)
                known = () if held is None else tuple(number for number in gone if number in held.deleting)
                return [("amend", i, (), known)] if known else []
            case FormatRaiseDue():
                return [("amend", i)] if str(protocol.phase) == Phase.AMEND else []
        return [(_PLAIN[type(event)], i)]

    def _entry(self, i: int, batch: Batch) -> Entry:
        envelope = batch.envelope
        records = tuple(
            Record(_short(record.command.session), record.command.sequence, 0, hash(record.command.reply))
            for record in decode_records(batch.payload[HEADER_BYTES:])
            if record.command is not None
        )
        number = self.world.replicas[i].state.number
        return Entry(envelope.leader_epoch, number, _short(envelope.prefix_hash), records, _short(batch.prefix_hash))

    # ---- replicas

    def on_replica(self, name: str, who: str, what: Any) -> None:
        """Take what `ReplicaCluster.listeners` hear."""
        i = self._index[who]
        if name == "adopt":
            self._boot(i, _short(what))
        elif name == "apply":
            self._do("apply", i)
            position: LogPosition = what
            place = (self._numbers[position.ledger_id], position.entry_id + 1)
            self._agree("place of the entry applied", self.world.replicas[i].place, place)
            state = self.world.replicas[i].state
            self._known.setdefault(state.prefix, (state.epoch, place))
        elif name == "exit":
            self._do("crash", i)

    def _boot(self, i: int, prefix: int) -> None:
        truth = self.world.truth
        if prefix in self._known:
            epoch, place = self._known[prefix]
            number = truth.index(prefix) + 1 if prefix in truth else -1
            self._do("boot", i, State(number, prefix, epoch, 0, ()), place)
        else:
            self._do("boot", i, State(0, prefix, 0, 0, ()), (-1, 0))

    # ---- the chain

    def on_chain(self, value: bytes, version: int) -> None:
        """Take a version of the chain that was committed."""
        if version == 0:
            return
        chain = self._chain(decode_chain(value, log_name="log"), version + 1)
        if chain not in self.world.writes:
            self._ghosts.fail("model", f"nobody has sent {chain}; on their way: {self.world.writes}")
        self._do("arrive", self.world.writes.index(chain))

    def _chain(self, chain: LogChain, version: int) -> Chain:
        ledgers = tuple(
            (self._numbers[ledger.ledger_id], None if ledger.closed is None else ledger.closed.last_entry_id + 1)
            for ledger in chain.ledgers
        )
        assert chain.leader is not None
        leader = self._incarnations[chain.leader.incarnation]
        deleting = tuple(self._numbers[ledger_id] for ledger_id in chain.deleting)
        return Chain(version, chain.leader_epoch, leader, ledgers, deleting)

    # ---- ledgers

    def on_ledger(self, name: str, ledger_id: int, number: int) -> None:
        """Take what `LedgerWorld.listeners` hear."""
        if name == "create":
            self._create(ledger_id, number)
            return
        here = self._numbers[ledger_id]
        actions: dict[str, Callable[[], None]] = {
            "store": lambda: self._store(here, number),
            "acknowledge": lambda: self._do("acknowledge", here),
            "recover": lambda: self._recover(here, number),
            "found": lambda: setattr(self, "_found", number),
            "fence": lambda: self._do("fence", self._recoveries.index(self._found), number),
            "finish": lambda: self._finish(number),
            "close": lambda: self._close(here, number),
            "delete": lambda: self._do("remove", here),
        }
        actions[name]()

    def _create(self, ledger_id: int, epoch: int) -> None:
        creators = [i for i, r in enumerate(self.world.replicas) if r.phase == Phase.CREATE and r.epoch == epoch]
        if not creators:
            self._ghosts.fail("model", f"ledger {ledger_id} of epoch {epoch} is created, nobody wants it")
        self._numbers[ledger_id] = len(self.world.ledgers)
        self._do("create", creators[0])

    def _store(self, here: int, count: int) -> None:
        while self.world.ledgers[here].stored < count:
            self._do("store", here)

    def _recover(self, here: int, number: int) -> None:
        self._do("recover", here)
        self._recoveries.append(number)

    def _finish(self, number: int) -> None:
        self._do("finish", self._recoveries.index(number))
        self._recoveries.remove(number)

    def _close(self, here: int, last_entry_id: int) -> None:
        self._do("close", here)
        self._agree("end of a ledger", self.world.ledgers[here].end, last_entry_id + 1)


def _short(hash_: bytes) -> int:
    return int.from_bytes(hash_[:8], "big")
