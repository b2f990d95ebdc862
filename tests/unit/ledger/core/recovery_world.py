# Longer than 400 lines: what may happen to one ledger is one world.
"""A small world for recovery: one writer, two recoverers, a few bookies, messages in any order, replies that get lost.

The clients are the real ones (`LedgerCloser` with its `Recovery`), the writer is the smallest that acknowledges by the
rules and changes its ensemble. Bookies and metadata are models: every request, reply and compare-and-set is a step of
its own, and a seed chooses the next. What must hold is checked at every step, by name.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
import pytest

from ledger.client.recovery import LedgerCloser
from ledger.client.settings import ClientSettings
from ledger.core import recovery
from ledger.core.metadata import NO_ENTRY, DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig, write_set
from ledger.errors import BadVersionError, LedgerError, MetadataUnavailableError
from ledger.testing.loop import SimLoop
from ledger.wire.codes import Status
from ledger.wire.digests import Digest
from ledger.wire.entry import seal, unseal
from ledger.wire.packets import AddRequest, AddResponse, ReadRequest, ReadResponse
from tests.unit.ledger.entry_header import entry_header

__all__ = ["BrokenError", "Rules", "World", "explore"]

LEDGER = 7
_DIGEST = Digest(DigestType.DUMMY)
_STEPS_MAX = 400


class BrokenError(Exception):
    """An invariant does not hold; its name comes first."""


class Rules(msgspec.Struct):
    """What the bookies and the store do wrong, for planted bugs; by default nothing."""

    does_read_fence: bool = True
    are_errors_absence: bool = False
    does_store_compare: bool = True
    slow: tuple[str, ...] = ()
    """Put off steps whose names hold one of these, whatever the seed says: for a race that chance meets too rarely."""
    lost: tuple[str, ...] = ()
    """Lose steps whose names hold one of these, as long as there are faults left."""


class World:
    """Everything that one seed decides."""

    QUORUMS: ClassVar = (QuorumConfig(3, 3, 2), QuorumConfig(3, 3, 2), QuorumConfig(2, 2, 2), QuorumConfig(3, 2, 2))

    def __init__(self, seed: int, rules: Rules) -> None:
        self.settings = ClientSettings()
        self.rng = random.Random(seed)
        self.rules = rules
        quorum = self.rng.choice(self.QUORUMS)
        names = [f"b{i}:1" for i in range(quorum.ensemble_size)]
        self.spares = [f"s{i}:1" for i in range(self.rng.choice((0, 1, 2)))]
        self.metadata = LedgerMetadata(
            quorum, LedgerState.OPEN, (Segment(0, tuple(names)),), DigestType.DUMMY, b"", created_ms=1
        )
        self.version = 0
        self.held: dict[str, dict[int, bytes]] = {name: {} for name in names + self.spares}
        self.fenced: set[str] = set()
        self.acked = NO_ENTRY
        self.faults = self.rng.choice((0, 2, 4, 8))
        # Steps whose names hold one of these are mostly put off: races need somebody who is slow all the time.
        kinds = (
            "-1 fencing to b",
            "ReadRequest",
            "AddRequest",
            "reply of b",
            "to b",
            "reply of",
            "write",
            "write CLOSED",
        )
        self.slow = [
            kind + str(self.rng.randrange(quorum.ensemble_size)) if kind.endswith(" b") else kind
            for kind in self.rng.sample(kinds, self.rng.choice((0, 1, 2, 3)))
        ]
        self.slow = list(rules.slow) or self.slow
        # (what it is, how to carry it out, how to lose it or None)
        self.steps: list[tuple[str, Callable[[], None], Callable[[], None] | None]] = []
        self.ends: list[int] = []
        self.trace: list[str] = []

    # --- metadata

    async def read(self, ledger_id: int, *, watch: Any = None, sync: bool = False) -> tuple[LedgerMetadata, int]:
        del ledger_id, watch, sync
        return await self._call("read", lambda: (self.metadata, self.version))

    async def write(self, ledger_id: int, metadata: LedgerMetadata, version: int) -> int:
        del ledger_id
        return await self._call(f"write {metadata.state.name}", lambda: self._write(metadata, version))

    def suspect(self, _bookie_id: str) -> None: ...

    async def replacement(self, _position: int, _ensemble: Any, excluded: Any, _write_quorum: int) -> str | None:
        return await self._call("replacement", lambda: next((b for b in sorted(self.held) if b not in excluded), None))

    def _write(self, metadata: LedgerMetadata, version: int) -> int:
        if version != self.version and self.rules.does_store_compare:
            raise BadVersionError("another version")
        if self.metadata.is_closed and metadata != self.metadata:
            raise BrokenError("closed-is-final")
        old, new = self.metadata.segments, metadata.segments
        firsts = [segment.first_entry_id for segment in new]
        if firsts != sorted(set(firsts)) or old[:-1] != new[: len(old) - 1]:
            raise BrokenError(f"segments-ascend: {old} to {new}")
        self.metadata, self.version = metadata, self.version + 1
        if metadata.is_closed and metadata.last_entry_id < self.acked:
            raise BrokenError(f"acked-is-inside: closed at {metadata.last_entry_id}, acked {self.acked}")
        return self.version

    async def _call(self, name: str, apply: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def carry_out() -> None:
            try:
                result = apply()
            except LedgerError as error:
                if not future.done():
                    future.set_exception(error)
                return
            if not future.done():
                future.set_result(result)

        def lose() -> None:
            """No reply comes. The request may have been applied, may be so later, or never."""
            if not future.done():
                future.set_exception(MetadataUnavailableError("no reply"))
            if self.rng.random() < 0.7:
                self.steps.append((f"late {name}", carry_out, lambda: None))

        self.steps.append((name, carry_out, lose))
        return await future

    # --- bookies

    def take_txns(self, count: int) -> int:
        return count

    def suspects(self) -> frozenset[str]:
        return frozenset()

    def ask(self, bookie_id: str, request: Any, operation: Any) -> None:
        asker, token = operation

        def lose() -> None:
            asker.on_unanswered(bookie_id, [token], "lost")
            if self.rng.random() < 0.5:
                self.steps.append((f"late request to {bookie_id}", lambda: self._serve(bookie_id, request), None))

        def carry_out() -> None:
            response = self._serve(bookie_id, request)
            name = f"reply of {bookie_id} to {type(request).__name__} {request.entry_id}: {response.status.name}"

            def answer() -> None:
                if isinstance(response, AddResponse) and response.status == Status.EOK:
                    asker.on_stored(bookie_id, [token])
                else:
                    asker.on_responses(bookie_id, [(token, response)])

            self.steps.append((name, answer, lambda: asker.on_unanswered(bookie_id, [token], "lost")))

        flag = " fencing" if getattr(request, "is_fencing", False) else ""
        self.steps.append((f"{type(request).__name__} {request.entry_id}{flag} to {bookie_id}", carry_out, lose))

    def _serve(self, bookie_id: str, request: Any) -> Any:
        held = self.held[bookie_id]
        if isinstance(request, AddRequest):
            status = Status.EOK
            if bookie_id in self.fenced and not request.is_recovery:
                status = Status.EFENCED
            elif request.entry_id not in held or request.is_recovery:
                held[request.entry_id] = bytes(request.body)
            return AddResponse(0, status, LEDGER, request.entry_id)
        assert isinstance(request, ReadRequest)
        if request.is_fencing and (request.entry_id == NO_ENTRY or self.rules.does_read_fence):
            self.fenced.add(bookie_id)
        entry_id = max(held, default=NO_ENTRY) if request.entry_id == NO_ENTRY else request.entry_id
        status = Status.EOK if entry_id in held else Status.ENOENTRY
        if self.faults > 0 and self.rng.random() < 0.1:  # a file that cannot be read just now
            self.faults -= 1
            status = Status.ENOENTRY if self.rules.are_errors_absence else Status.EIO
        return ReadResponse(0, status, LEDGER, request.entry_id, held[entry_id] if status == Status.EOK else None)

    # --- judgement

    def ack(self, entry_id: int) -> None:
        self.acked = entry_id
        if self.metadata.is_closed and entry_id > self.metadata.last_entry_id:
            raise BrokenError(f"acked-is-inside: {entry_id} acked after the close at {self.metadata.last_entry_id}")

    def judge(self) -> None:
        metadata = self.metadata
        if not metadata.is_closed:
            raise BrokenError("converges: not closed in the calm")
        end = metadata.last_entry_id
        if set(self.ends) - {end}:
            raise BrokenError(f"one-end: {self.ends}, closed at {end}")
        for entry_id in range(end + 1):
            ensemble = metadata.ensemble_at(entry_id)
            bodies = [self.held[ensemble[p]].get(entry_id) for p in write_set(entry_id, metadata.quorum)]
            found = [unseal(body, _DIGEST, ledger_id=LEDGER, entry_id=entry_id) for body in bodies if body]
            if len(found) < metadata.quorum.ack_quorum:
                raise BrokenError(f"enough-copies: {len(found)} of entry {entry_id}, {metadata.segments}")
            if any(entry.payload != b"%d" % entry_id for entry in found):
                raise BrokenError(f"same-content: entry {entry_id}")
        if metadata.length != sum(len(b"%d" % entry_id) for entry_id in range(end + 1)):
            raise BrokenError(f"length: {metadata.length} for entries up to {end}")
        for name, held in self.held.items():
            for entry_id, body in held.items():
                if (lac := entry_header(body).last_add_confirmed) > end:
                    raise BrokenError(f"lac-is-inside: {lac} in entry {entry_id} of {name}, end {end}")

    # --- the run

    async def run(self) -> None:
        closers = [LedgerCloser(self, self, random.Random(i), self) for i in range(3)]  # type: ignore[arg-type]
        writer = _Writer(self, closers[0], self.rng.choice((1, 2, 3)))
        tasks: list[asyncio.Task[Any]] = []
        self.steps.append(("writer begins", lambda: tasks.append(writer.start()), None))
        for closer in closers[1:]:
            self.steps.append(("recoverer begins", lambda c=closer: tasks.append(self._recover(c)), None))  # type: ignore[misc]
        if self.faults and self.rng.random() < 0.4:
            self.steps.append(("recoverer is killed", lambda: _cancel_last(tasks), None))
        for _ in range(_STEPS_MAX):
            await asyncio.sleep(0.001)
            if not self.steps:
                break
            self._step()
        self.faults = 0
        final = self._recover(closers[2])
        for _ in range(2000):
            await asyncio.sleep(0.001 if self.steps else 5.0)
            if self.steps:
                self._step()
            elif final.done() and all(task.done() for task in tasks):
                break
        if not final.done():
            raise BrokenError("converges: no recovery comes to an end in the calm")
        final.result()
        self.judge()

    def _step(self) -> None:
        index = self.rng.randrange(len(self.steps))
        for _ in range(8):
            if not any(slow in self.steps[index][0] for slow in self.slow):
                break
            index = self.rng.randrange(len(self.steps))
        name, carry_out, lose = self.steps.pop(index)
        is_unlucky = self.rng.random() < 0.12 or any(lost in name for lost in self.rules.lost)
        if lose is not None and self.faults > 0 and is_unlucky:
            self.faults -= 1
            self.trace.append(f"LOST {name}")
            lose()
        else:
            self.trace.append(name)
            carry_out()

    def _recover(self, closer: LedgerCloser) -> asyncio.Task[None]:
        async def recover() -> None:
            while True:
                try:
                    self.ends.append((await closer.recover(LEDGER, b"")).last_entry_id)
                except LedgerError:
                    await asyncio.sleep(1)
                else:
                    return

        return asyncio.get_running_loop().create_task(recover())


class _Writer:
    """Appends a few entries, replaces a bookie that does not answer, closes when it is done or fenced."""

    def __init__(self, world: World, closer: LedgerCloser, count: int) -> None:
        self.world, self.closer, self.count = world, closer, count
        self.metadata, self.version = world.metadata, world.version
        self.stored: dict[int, set[str]] = {}
        self.bodies: dict[int, bytes] = {}
        self.failed: set[str] = set()
        self.is_frozen = self.is_changing = False
        self.lengths = [0]

    def start(self) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        world = self.world
        for entry_id in range(self.count):
            if self.is_frozen:
                break
            payload = b"%d" % entry_id
            self.lengths.append(self.lengths[-1] + len(payload))
            self.bodies[entry_id] = seal(LEDGER, entry_id, world.acked, self.lengths[-1], payload, _DIGEST)
            self.stored[entry_id] = set()
            for position in write_set(entry_id, self.metadata.quorum):
                self._send(self.metadata.segments[-1].bookies[position], entry_id)
            for _ in range(world.rng.randrange(12)):
                await asyncio.sleep(0.001)
        for _ in range(world.rng.choice((20, 60, 200))):
            if self.is_frozen or world.acked == self.count - 1:
                break
            await asyncio.sleep(0.001)
        self.is_frozen = True
        end = world.acked
        while True:
            try:
                closed = await self.closer.close(LEDGER, self.metadata, end, self.lengths[end + 1], self.version)
            except LedgerError:
                await asyncio.sleep(1)
            else:
                world.ends.append(closed.last_entry_id)
                return

    def _send(self, bookie_id: str, entry_id: int) -> None:
        request = AddRequest(0, LEDGER, entry_id, bytes(20), self.bodies[entry_id])
        self.world.ask(bookie_id, request, (self, entry_id))

    def on_stored(self, bookie_id: str, tokens: list[int]) -> None:
        if self.is_frozen or bookie_id not in self.metadata.segments[-1].bookies:
            return
        for entry_id in tokens:
            self.stored[entry_id].add(bookie_id)
        while (
            not self.is_changing and len(self.stored.get(self.world.acked + 1, ())) >= self.metadata.quorum.ack_quorum
        ):
            self.world.ack(self.world.acked + 1)

    def on_responses(self, bookie_id: str, responses: Any) -> None:
        del bookie_id, responses
        self.is_frozen = True

    def on_unanswered(self, bookie_id: str, tokens: list[int], reason: str) -> None:
        del tokens, reason
        if self.is_frozen or self.is_changing or bookie_id not in self.metadata.segments[-1].bookies:
            return
        self.failed.add(bookie_id)
        last = self.metadata.segments[-1]
        spares = [name for name in self.world.spares if name not in last.bookies and name not in self.failed]
        if spares:
            self.is_changing = True
            bookies = tuple(spares[0] if name == bookie_id else name for name in last.bookies)
            asyncio.get_running_loop().create_task(self._change(bookie_id, spares[0], bookies))

    async def _change(self, failed: str, spare: str, bookies: tuple[str, ...]) -> None:
        first = self.world.acked + 1
        kept = [segment for segment in self.metadata.segments if segment.first_entry_id < first]
        changed = msgspec.structs.replace(self.metadata, segments=(*kept, Segment(first, bookies)))
        while True:
            try:
                self.version = await self.world.write(LEDGER, changed, self.version)
                break
            except LedgerError:
                try:
                    found, version = await self.world.read(LEDGER)
                except LedgerError:
                    continue
                if found.state != LedgerState.OPEN:
                    self.is_frozen = True
                    return
                self.version = version
                if found == changed:
                    break
        self.metadata = changed
        self.is_changing = False
        for entry_id in range(first, len(self.bodies)):
            self.stored[entry_id].discard(failed)
            if bookies.index(spare) in write_set(entry_id, self.metadata.quorum):
                self._send(spare, entry_id)
        self.on_stored(bookies[0], [])


def explore(seeds: Iterable[int], rules: Rules | None = None) -> tuple[int, str, list[str]] | None:
    """Run the seeds; return the first that breaks something, what, and its steps.

    Recoveries read two entries ahead here, not sixty-four: with the few entries of this world the rest is noise.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "READ_AHEAD_ENTRIES", 2)
        for seed in seeds:
            world = World(seed, rules or Rules())
            try:
                SimLoop(seed).run(world.run(), limit_s=100_000)  # type: ignore[abstract]
            except BrokenError as error:
                return seed, str(error), world.trace
    return None


def _cancel_last(tasks: list[asyncio.Task[Any]]) -> None:
    _ = tasks and tasks[-1].cancel()
