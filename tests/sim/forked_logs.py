"""Logs that are forked, renamed, trimmed, swept and deleted at once, each by a process that may die at any request.

There are no replicas: what a leader does when it trims and when it sweeps is called as the leader calls it. The judge
looks at what is committed: no ledger may go that a chain names, and in the end none may stay that no chain names.
"""

# Longer than 400 lines: one world, and all that is done to it at once.

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest

from ledger.errors import LedgerError, MetadataUnavailableError
from ledger.testing.metadata_tree import Tree
from ledger.testing.simulation import Simulation
from rsm_spark.backup import detaching
from rsm_spark.backup.detaching import DetachSpec, LogDetachment
from rsm_spark.backup.fork_snapshots import ForkRequest
from rsm_spark.backup.forking import LogFork
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain, chain_path, decode_chain, encode_chain
from rsm_spark.core.envelope import Envelope, encode_envelope, entry_hash, root_hash
from rsm_spark.core.orphans import custom_metadata
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import CorruptLogError, LogError, MissingLogError, NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.log.deletion import delete_log
from rsm_spark.log.detachment import DetachMark, detaching_path
from rsm_spark.log.renaming import rename_log
from rsm_spark.log.sharing import SharedLedgers
from rsm_spark.runtime.log_maintenance import LogMaintenance
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld

ORIGIN = "orders"
FORKS = ("one", "two", "three")
_LEDGERS = 6
_ENTRIES = 3
_MIXES = (
    ("fork", "fork", "trim", "trim", "sweep", "delete", "rename", "rename"),
    ("fork", "fork", "detach", "detach", "detach", "read", "read", "sweep", "trim", "rename", "delete"),
)
_ASKING = ("get", "exists", "children", "create", "set", "delete", "change", "sync")


class DyingStore:
    """A session with the metadata store of a process that dies at one of its requests, before it is sent or after.

    Args:
        store: The session.
        left: At which request, counted from 1; 0 = at none.
        is_sent: It dies after that is sent.
        closes: Its session ends then, and takes its ephemeral nodes with it.

    """

    def __init__(self, store: Any, left: int, *, is_sent: bool, closes: bool = True) -> None:
        self._store = store
        self._left = left
        self._is_sent = is_sent
        self.is_dead = False
        self._closes = closes

    @classmethod
    def drawn(cls, store: Any, rng: random.Random, share: float, *, closes: bool) -> Self:
        """Return a session whose process dies at some request, with a probability of `share`."""
        left = rng.randrange(40) if rng.random() < share else -1
        is_sent = rng.random() < 0.5 and left > 0
        return cls(store, max(left, 1) if left >= 0 else 0, is_sent=is_sent, closes=closes)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in _ASKING:
            return found

        async def ask(*arguments: Any, **options: Any) -> Any:
            if self.is_dead:
                raise MetadataUnavailableError("this process is dead")
            self._left -= 1
            self.is_dead = self._left == 0
            if not self.is_dead:
                return await found(*arguments, **options)
            if self._is_sent:
                with contextlib.suppress(LedgerError):
                    await found(*arguments, **options)
            if self._closes:
                await self._store.close()
            raise MetadataUnavailableError("this process is dead")

        return ask


class ForkedLogs:
    """A log, its forks, and what is done to them.

    Args:
        seed: Decides everything.
        detaches: Forks are detached and read too, and less is done of the rest.

    Attributes:
        broken: What the judge found; "" = nothing.
        forks: How many were made.
        renamed: How many logs were given another name.
        detached: How many ceased to share ledgers.

    """

    def __init__(self, seed: int, *, detaches: bool = False) -> None:
        self.broken = ""
        self._mix = int(detaches)
        self.forks = self.renamed = self.detached = 0
        self._simulation = Simulation(seed)
        self._rng = self._simulation.random("logs")
        self._world = LedgerWorld(self._simulation.random("ledgers"))
        self._world.listeners.append(self._on_ledger)

    def run(self, what: Callable[[ForkedLogs], Coroutine[Any, Any, Any]] | None = None) -> Any:
        """Do it all, or one thing, and return what that returns."""
        return self._simulation.run(self._program() if what is None else what(self), limit_s=600.0)

    async def _program(self) -> None:
        await self._begin()
        await asyncio.gather(*(self._some(number) for number in range(14)))
        for name in (ORIGIN, *FORKS):
            await self._settle(name)
        if not self.broken:
            await self._judge()

    # ---- what is done

    async def _some(self, number: int) -> None:
        """Do something, by a process that may die of it."""
        rng = self._simulation.random(f"process {number}")
        await asyncio.sleep(rng.uniform(0.0, 1.5))
        client = await self._client(DyingStore.drawn(await self._connect(), rng, 0.4, closes=bool(self._mix)))
        log = rng.choice((ORIGIN, ORIGIN, *FORKS))
        with contextlib.suppress(LogError, LedgerError):
            match rng.choice(_MIXES[self._mix]):
                case "fork":
                    await self._fork(client, log, rng)
                case "trim":
                    await self._trim(client, log, rng.randint(1, 3))
                case "sweep":
                    await self._sweep(client, log)
                case "delete":
                    await delete_log(client, log)
                case "detach":
                    await self._detach(client, log, rng)
                case "read":
                    await self._follow(client, log, rng)
                case "rename":
                    new = rng.choice([one for one in (ORIGIN, *FORKS) if one != log])
                    self.renamed += not (await rename_log(client.store, log, new, by="", at_ms=0)).was_done

    async def _fork(self, client: Any, log: str, rng: random.Random) -> None:
        name = rng.choice([one for one in (ORIGIN, *FORKS) if one != log])
        revision = rng.choice((None, rng.randint(4, _LEDGERS * _ENTRIES)))
        target = ForkRequest(log=log, name=name, rsm_root="/rsm", revision=revision)
        await LogFork(client, target, draw=lambda count: rng.randbytes(count).hex()).make()
        self.forks += 1

    async def _detach(self, client: Any, log: str, rng: random.Random) -> None:
        target = DetachSpec(log=log, rsm_root="/rsm")
        made = await LogDetachment(client, target, rng.randbytes(8).hex()).detach()
        self.detached += made.ledgers > 0

    async def _follow(self, client: Any, log: str, rng: random.Random) -> None:
        """Read a log slowly, while others change what it lies in."""
        chain, _ = await ChainStore(client.store, log).read()
        if chain.unfinished or not chain.ledgers:
            return
        first = chain.ledgers[0]
        position, revision = LogPosition(first.ledger_id, -1), first.first_revision - 1
        for _ in range(40):
            reader = LogReader(client, ChainStore(client.store, log), position=position, revision=revision,
                               entries_max=rng.randint(1, 2), poll_s=0.01)  # fmt: skip
            try:
                for _ in range(rng.randint(1, 4)):
                    entries = await reader.read()
                    if reader.chain is None or reader.chain.log_id != chain.log_id:
                        return
                    for entry in entries:
                        if entry.envelope.first_revision != revision + 1:
                            self._break(f"log {log}: {entry.envelope.first_revision} was read behind {revision}")
                        position, revision = entry.position, entry.envelope.last_revision
                    await asyncio.sleep(rng.uniform(0.0, 0.2))
            except MissingLogError as error:
                present, _ = await ChainStore(client.store, log).read()
                if present.log_id == chain.log_id and present.ledgers[0].first_revision <= revision:
                    self._break(f"log {log}: revision {revision + 1} is there, a reader is told: {error}")
                return
            except CorruptLogError as error:
                present, _ = await ChainStore(client.store, log).read()
                if present.log_id == chain.log_id:
                    self._break(str(error))
                return
            finally:
                await reader.close()

    async def die_detaching(self, left: int, *, is_sent: bool) -> bool:
        """Detach, by a process that dies at a request; another one goes on. Return whether it lived to the end."""
        await self._begin()
        name, other = FORKS[0], await self._client(await self._connect())
        await self._fork_as(other, name)
        store = DyingStore(await self._connect(), left, is_sent=is_sent)
        with contextlib.suppress(LogError, LedgerError):
            await self._detach(await self._client(store), name, self._rng)
        chain, _ = await ChainStore(other.store, name).read()
        await self._read(other.store, name, chain)
        await self._detach(other, name, self._rng)
        if await SharedLedgers(other, chain.log_id).used():
            self._break("what was shared is not let go of")
        await self._judge()
        return not store.is_dead

    async def detach_twice(self) -> None:
        """Detach, by a process that loses its session; another one does it meanwhile; then the first goes on."""
        await self._begin()
        client, other = [await self._client(await self._connect()) for _ in range(2)]
        name, rng = FORKS[0], self._rng
        await self._fork_as(other, name)
        before, pauses = rng.randrange(4), rng.random() < 0.5
        end = DetachMark.end

        async def again() -> None:
            chain, _ = await ChainStore(other.store, name).read()
            await other.store.delete(f"{detaching_path(chain.log_id, '/rsm')}-alive")
            store = DyingStore.drawn(await self._connect(), rng, 0.7, closes=True)
            with contextlib.suppress(LogError, LedgerError):
                await self._detach(await self._client(store), name, rng)

        class Paused(DetachMark):
            async def end(self, shared_id: int, length: int) -> None:
                nonlocal before
                before -= 1
                if before == 0 and pauses:
                    await again()
                await end(self, shared_id, length)
                if before == 0 and not pauses:
                    await again()

        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(LogError, LedgerError):
            patch.setattr(detaching, "DetachMark", Paused)
            await self._detach(client, name, rng)
        await client.store.close()
        await self._settle(name)
        await self._judge()

    async def _fork_as(self, client: Any, name: str) -> None:
        await LogFork(client, ForkRequest(log=ORIGIN, name=name, rsm_root="/rsm")).make()

    async def lose_the_name(self) -> None:
        """Fork, while somebody deletes the new name and gives it to another log."""
        await self._begin()
        client, other = [await self._client(await self._connect()) for _ in range(2)]
        one, two, _ = FORKS
        await LogFork(other, ForkRequest(log=ORIGIN, name=two, rsm_root="/rsm")).make()

        class Slow(LogFork):
            async def _share(self, chain: LogChain) -> None:
                await super()._share(chain)
                await delete_log(other, one)
                await rename_log(other.store, two, one, by="", at_ms=0)

        try:
            await Slow(client, ForkRequest(log=ORIGIN, name=one, rsm_root="/rsm")).make()
            self._break("a fork is made under a name that another log has")
        except LogError:
            if one not in self._chains():
                self._break("the log that has the name now is gone")
        await self._judge()

    async def _trim(self, client: Any, log: str, count: int) -> None:
        chains = ChainStore(client.store, log)
        chain, version = await chains.read()
        going = tuple(ledger.ledger_id for ledger in chain.ledgers[:-1][:count])
        chain = msgspec.structs.replace(chain, ledgers=chain.ledgers[len(going) :], deleting=(*chain.deleting, *going))
        if chain.unfinished:
            return
        version = await chains.write(encode_chain(chain), version)
        leader = SimpleNamespace(
            _shared=SharedLedgers(client, chain.log_id), _context=SimpleNamespace(log_extra={}, client=client),
            deleted_ledgers=0, _deleted=[], _want=lambda: None,
        )  # fmt: skip
        leader._context.settings = SimpleNamespace(retry_s=1e9)  # It tries once: who fails is dead.
        leader._context.rng = self._rng
        deleting = asyncio.create_task(LogMaintenance._delete_all(leader, chain.deleting))  # type: ignore[arg-type]
        await asyncio.wait([deleting], timeout=30)
        if deleting.done():
            deleting.result()
            await chains.write(encode_chain(msgspec.structs.replace(chain, deleting=())), version)
        deleting.cancel()

    async def _sweep(self, client: Any, log: str) -> None:
        chain, _ = await ChainStore(client.store, log).read()
        leader = SimpleNamespace(
            _shared=SharedLedgers(client, chain.log_id), _protocol=SimpleNamespace(chain=chain, epoch=9),
            _context=SimpleNamespace(log_extra={}, client=client),
        )  # fmt: skip
        for ledger_id in await client.list():
            if not chain.unfinished:
                await LogMaintenance._sweep(leader, ledger_id)  # type: ignore[arg-type]

    async def _settle(self, name: str) -> None:
        """Finish what processes that died have left."""
        client = await self._client(await self._connect())
        try:
            chain, _ = await ChainStore(client.store, name).read()
        except NoSuchLogError:
            with contextlib.suppress(NoSuchLogError):
                await delete_log(client, name)  # A deletion that was cut off.
            return
        if chain.unfinished:
            await delete_log(client, name)
            return
        await self._trim(client, name, 0)
        if self._mark_of(chain.log_id):
            await self._detach(client, name, self._rng)

    # ---- the world

    async def _connect(self) -> Any:
        return await self._simulation.metadata.connect(session_timeout_ms=60_000)

    async def _client(self, store: Any) -> Any:
        return TwinClient(self._world, store)

    async def _begin(self) -> None:
        """Write the origin: closed ledgers, some of which end with an entry without records, and an open one."""
        client = await self._client(await self._connect())
        log_id, before, revision = "ab" * 16, root_hash(bytes.fromhex("ab" * 16)), 0
        ledgers = []
        for number in range(_LEDGERS):
            custom = custom_metadata(ORIGIN, log_id, 1, number - 1)
            handle = await client.create(custom=custom)
            first, size = revision + 1, 0
            for entry in range(_ENTRIES + number % 2):
                count = int(entry < _ENTRIES)
                envelope = Envelope(bytes.fromhex(log_id), 1, revision + 1, revision, 1_000 + revision, count, before)
                payload = encode_envelope(envelope, b"")
                await handle.append(payload)
                before, revision, size = entry_hash(payload), revision + count, size + len(payload)
            end = None
            if number < _LEDGERS - 1:
                end = ClosedEnd(await handle.close(), revision, 1_000 + revision, size, before.hex())
            else:
                await handle.write_lac()
            ledgers.append(ChainLedger(handle.ledger_id, 0, 1, first, end))
        chain = LogChain(log_id, ledgers[0].ledger_id, 1, ledgers=tuple(ledgers), format_level=2)
        await ChainStore(client.store, ORIGIN).create(chain)

    # ---- the judge

    @property
    def _tree(self) -> Tree:
        return self._simulation.metadata.leader

    def _chains(self) -> dict[str, LogChain]:
        found = {}
        for name in (ORIGIN, *FORKS):
            path = chain_path(name)
            if path in self._tree.nodes:
                found[name] = decode_chain(self._tree.nodes[path].value, log_name=name)
        return found

    def _mark_of(self, log_id: str) -> bool:
        return detaching_path(log_id, "/rsm") in self._tree.nodes

    def _noted(self) -> set[int]:
        """Return the ledgers of deletions that were cut off before a log of the same name came."""
        notes = [node.value for path, node in self._tree.nodes.items() if path.startswith("/rsm/deleting/")]
        return {ledger_id for note in notes for ledger_id in msgspec.json.decode(note)["ledger_ids"]}

    def _written(self) -> set[int]:
        """Return the ledgers that hold something: one may have been created by a process that died of it."""
        return {ledger_id for ledger_id, twin in self._world.ledgers.items() if twin.entries}

    def _on_ledger(self, what: str, ledger_id: int, _number: int) -> None:
        if what != "delete":
            return
        for name, chain in self._chains().items():
            if any(ledger.ledger_id == ledger_id for ledger in chain.ledgers):
                self._break(f"ledger {ledger_id} was deleted, and log {name} names it")

    def _break(self, what: str) -> None:
        self.broken = self.broken or what

    async def _judge(self) -> None:
        chains = self._chains()
        if len({chain.log_id for chain in chains.values()}) < len(chains):
            self._break(f"one log has two of the names {', '.join(chains)}")
        named = {ledger.ledger_id for chain in chains.values() for ledger in chain.ledgers}
        left = self._written() - named - self._noted()
        if left:
            self._break(f"ledgers {sorted(left)} are left, and no log names them")
        store = await self._connect()
        for name, chain in chains.items():
            if named - set(self._world.ledgers):
                self._break(f"ledgers {sorted(named - set(self._world.ledgers))} are gone")
                return
            await self._read(store, name, chain)
        for name in (ORIGIN, *FORKS):
            with contextlib.suppress(NoSuchLogError):
                await delete_log(await self._client(store), name)
        if self._written():
            self._break(f"all logs are deleted, ledgers {sorted(self._written())} are left")
        notes = [
            path
            for path in self._tree.nodes
            if path.startswith(("/rsm/sharing/", "/rsm/deleting/", "/rsm/forking/", "/rsm/detaching/"))
        ]
        if notes:
            self._break(f"all logs are deleted, {', '.join(notes)} is left")

    async def _read(self, store: Any, name: str, chain: LogChain) -> None:
        """Read a log to its end: each entry continues the one before."""
        first = chain.ledgers[0]
        reader = LogReader(
            await self._client(store), ChainStore(store, name), position=LogPosition(first.ledger_id, -1),
            revision=first.first_revision - 1,
        )  # fmt: skip
        before, ancestry = b"", chain.ancestry
        while entries := await reader.read():
            for entry in entries:
                envelope = entry.envelope
                if before and envelope.prefix_hash != before:
                    self._break(f"log {name}: revision {envelope.first_revision} does not continue the one before")
                if envelope.log_id != ancestry.at(envelope.first_revision):
                    self._break(f"log {name}: revision {envelope.first_revision} is of log {envelope.log_id.hex()}")
                before = entry_hash(entry.payload)
        wanted = chain.origins[-1].revision if chain.origins else _LEDGERS * _ENTRIES
        if reader.revision != wanted:
            self._break(f"log {name}: it ends with revision {reader.revision} instead of {wanted}")
