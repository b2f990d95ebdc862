"""A file store with contents in ledgers, in virtual time: doors and leaders are killed, cut off and slow.

* `right-bytes`      what is read of a file is what was written to it, whatever a bookie holds
* `whole-file`       a file that is there can be read, unless its ledger was tampered with
* `file-lost`        in the end each file is where its last answered change put it, and nowhere else
* `ledger-in-use`    a ledger goes while a state can be had that names it
* `open-writer`      a ledger goes while its upload has not ended
* `space-freed`      in the calm there are no ledgers of contents but those that files have

Machine, replicas, doors' writing and reading, and the cleaner are the real ones; the ledger is a twin.
"""

# Longer than 400 lines: users, judges and what is drawn for them are one world.

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from ledger.errors import LedgerError, NoSuchLedgerError
from ledger.testing.hosts import SimHost
from ledger.testing.loop import SimulationError
from rsm_spark.core import contents as content
from rsm_spark.core.chain import chain_path, decode_chain
from rsm_spark.core.commands import AnswerStatus, Command, OpenSession, Query, Request
from rsm_spark.core.contents import CONTENTS_TABLE
from rsm_spark.core.envelope import Envelope
from rsm_spark.core.freshness import INDEXED
from rsm_spark.core.orphans import content_number
from rsm_spark.core.records import Record
from rsm_spark.errors import DamagedContentError, InvalidCommandError, NoLeaderError, OutcomeUnknownError, RsmError
from rsm_spark.files import cleaning, content_ledgers, uploads, writing
from rsm_spark.files.commands import (
    CreateFile,
    DeleteEntry,
    FileCommand,
    FileDone,
    FilePart,
    FilePlace,
    FileQuery,
    FileRefused,
    FileResult,
    MakeDirectory,
    ReadFile,
    RenameEntry,
    RenameRule,
    UploadBegun,
    decode_reply,
    decode_result,
    encode,
)
from rsm_spark.files.errors import FileError, NoSuchFileError
from rsm_spark.files.machine import FileMachine
from rsm_spark.files.records import LEDGER_FREED, LEDGER_NAMED, UPLOAD_ENDED, UPLOADED
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.cluster import LOG, UnreachableError
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.ledger_world import LedgerTwin, TwinEntry
from rsm_spark.testing.simulating import _quiet, _Run
from tests.sim.outcome import SeedOutcome

_CHUNK = 8
_UPLOAD_MS = 6_000
_USERS = 6
_PATIENCE_S = 30.0
_LINK_S = 15.0
_ROOT = "/rsm"
_SHORTENED = (
    (content, "CHUNK_BYTES", _CHUNK), (content_ledgers, "CHUNK_BYTES", _CHUNK), (uploads, "UPLOAD_MS", _UPLOAD_MS),
    (writing, "_NOTED_CHUNKS", 2), (cleaning, "_PAUSE_S", 0.05),
    (cleaning, "_SWEEP_S", 20.0),
)  # fmt: skip

Files = dict[str, bytes | None]


class FileOutcome(SeedOutcome):
    """What one seed came to."""

    @property
    def is_worth_counting(self) -> bool:
        """Whether ledgers were written, named, freed and deleted while processes were killed."""
        wanted = ("written", "renamed", "read", "named", "deleted ledgers")
        return all(self.counts[name] for name in wanted)


def draw_background(rng: random.Random) -> bytes:
    """Draw a command that has nothing to do with the files that are judged: the log goes on."""
    path = f"/background/{rng.randrange(20)}"
    drawn: list[FileCommand] = [
        CreateFile(path, rng.randbytes(3), "somebody", 0o644, True), MakeDirectory(f"{path}-d", "somebody", 0o755),
        DeleteEntry(path, True), RenameEntry(path, f"/background/{rng.randrange(20)}", RenameRule.OVERWRITE),
    ]  # fmt: skip
    return encode(rng.choice(drawn))


class SimLink:
    """One caller's way to the leader: a session, one command after the other.

    Args:
        world: Whose it is.
        rng: Chance.

    """

    def __init__(self, world: FileWorld, rng: random.Random) -> None:
        self._cluster = world.run.cluster
        self._rng = rng
        self._session = b""
        self._sequence = 0

    async def execute(self, command: FileCommand) -> FileDone | UploadBegun:
        """Have a command carried out; see `FileDesk.execute`."""
        async with asyncio.timeout(_LINK_S) as limit:
            try:
                return await self._execute(encode(command))
            except TimeoutError:
                if not limit.expired():
                    raise
        self._session = b""
        raise OutcomeUnknownError("no answer")

    async def _execute(self, payload: bytes) -> FileDone | UploadBegun:
        if not self._session:
            session = self._rng.randbytes(16)
            await self._settled(OpenSession(session))
            self._session, self._sequence = session, 0
        self._sequence += 1
        status, answered = await self._settled(Command(self._session, self._sequence, self._sequence - 1, payload))
        if status is AnswerStatus.SESSION_EXPIRED:
            self._session = b""
            raise OutcomeUnknownError("the session has ended")
        if status is not AnswerStatus.OK:
            raise InvalidCommandError(status.name)
        reply = decode_reply(answered)
        if isinstance(reply, FileRefused):
            raise reply.error()
        return reply

    async def _settled(self, request: Request) -> tuple[AnswerStatus, bytes]:
        while True:
            with contextlib.suppress(UnreachableError):
                target = self._cluster.leader or self._rng.choice(self._cluster.hosts).name
                (answer,) = await self._cluster.call(target, [request], self._rng.choice((0.3, 1.0, 5.0)))
                if answer.status in (AnswerStatus.OK, AnswerStatus.REFUSED, AnswerStatus.SESSION_EXPIRED):
                    return answer.status, answer.payload
            await asyncio.sleep(self._rng.uniform(0.01, 0.3))

    async def ask(self, host: str, query: FileQuery) -> FileResult:
        """Return what a replica answers; see `FileDesk.query`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _LINK_S
        while loop.time() < until_s:
            with contextlib.suppress(UnreachableError):
                (answer,) = await self._cluster.call(host, [Query(encode(query))], 2.0, INDEXED)
                if answer.status is AnswerStatus.OK:
                    result = decode_result(answer.payload)
                    if isinstance(result, FileRefused):
                        raise result.error()
                    return result
            await asyncio.sleep(self._rng.uniform(0.01, 0.3))
        raise NoLeaderError("no answer")


class FileWorld:
    """One seed's world.

    Args:
        seed: Decides everything.
        trouble_s: Simulated seconds of faults.

    """

    def __init__(self, seed: int, trouble_s: float) -> None:
        self.run = run = _Run(seed, FileMachine, draw_background, lambda _machine: None, trouble_s, None)
        self.rng = rng = random.Random(f"files {seed}")
        self.counts: Counter[str] = Counter()
        run.cluster.settings = msgspec.structs.replace(
            run.cluster.settings, roll_s=2.0, retention_ms=rng.choice((1_000, 4_000)), trim_s=0.5, verify_s=0.7,
            snapshot_s=2.0, checkpoint_records=20,
        )  # fmt: skip
        self.ledgers = run.nemesis._world
        assert self.ledgers is not None
        self.ledgers.listeners.append(self._on_ledger)
        run.cluster.listeners.append(self._on_made)
        run.cluster.ghosts.on_commit.append(self._on_commit)
        # What the log has said, by ledger: whether a file has had it, and since when none has; and which uploads go on.
        self.named: dict[int, int] = {}
        self.freed: dict[int, int] = {}
        self.uploads: set[int] = set()
        self.tampered: set[int] = set()
        self._numbers: dict[int, int] = {}
        self.ever: dict[str, set[bytes]] = {}
        self.users = [FileUser(self, number, random.Random(rng.random())) for number in range(_USERS)]

    def fail(self, name: str, what: str) -> None:
        """Break a promise."""
        self.run.cluster.ghosts.fail(name, what)

    async def main(self) -> None:
        """Work, trouble, calm, judgement."""
        loop = asyncio.get_running_loop()
        working = [loop.create_task(user.work()) for user in self.users]
        tampering = loop.create_task(self._tamper())
        await self.run.main()
        tampering.cancel()
        for user in self.users:
            user.is_calm = True
        await self.run._until(lambda: all(task.done() for task in working), "users are answered in the calm")
        for task in working:
            task.result()
        going_on = loop.create_task(self._go_on())
        self.run.cluster.ghosts.fail = self._named_failure("space-freed")  # type: ignore[method-assign]
        await self.run._until(self._is_freed, "ledgers that no file has are gone")
        going_on.cancel()
        await self._judge_files()

    def _named_failure(self, name: str) -> Any:
        fail = self.run.cluster.ghosts.fail

        def _fail(kind: str, what: str) -> Any:
            return fail(name if kind == "convergence" else kind, what)

        return _fail

    # ---- what is done to it

    def _on_made(self, name: str, who: str, what: Any) -> None:
        if name != "made":
            return
        assert isinstance(what, Replica)
        host, context = self.run.simulation.hosts[who], what._context
        link = SimLink(self, random.Random(self.rng.random()))
        cleaner = cleaning.FileCleaner(
            context.client, context.chains, _ROOT, execute=link.execute, ask=lambda query: link.ask(who, query),
            leads=lambda: what.role is ReplicaRole.LEADER, pause_s=self.rng.choice((0.5, 2.0)),
        )  # fmt: skip
        what.on_role(lambda _role: cleaner.look())
        host.spawn(cleaner.run())

    async def _tamper(self) -> None:
        """Now and then change a chunk on all bookies, checksums and all."""
        assert self.ledgers is not None
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 4.0))
            able = [one for one in self.ledgers.ledgers.values() if _is_content(one) and one.is_closed]
            if able and self.rng.random() < 0.5:
                twin = self.rng.choice(able)
                at = self.rng.randrange(twin.metadata.last_entry_id + 1)
                entry = twin.entries[at]
                other = bytes([entry.payload[0] ^ 1]) + entry.payload[1:]
                twin.entries[at] = TwinEntry(at, entry.last_add_confirmed, entry.length, other)
                self.tampered.add(twin.ledger_id)
                self.counts["tampered"] += 1

    async def _go_on(self) -> None:
        """Write on, so that the log is rolled and trimmed."""
        link = SimLink(self, self.rng)
        while True:
            with contextlib.suppress(RsmError):
                await link.execute(CreateFile("/background/on", b"x", "somebody", 0o644, True))
            await asyncio.sleep(0.3)

    # ---- judges

    def _on_commit(self, envelope: Envelope, records: list[Record]) -> None:
        for revision, record in enumerate(records, envelope.first_revision):
            if record.type == UPLOADED:
                self.uploads.add(record.fields[0])
            elif record.type == UPLOAD_ENDED:
                self.uploads.discard(record.fields[0])
            elif record.type == LEDGER_NAMED:
                self.named[record.fields[1]] = revision
                self.counts["named"] += 1
            elif record.type == LEDGER_FREED:
                self.freed[record.fields[0]] = revision

    def _on_ledger(self, name: str, ledger: int, _number: int) -> None:
        assert self.ledgers is not None
        if name == "create":
            number = content_number(self.ledgers.get(ledger).metadata.custom)
            if number is not None:
                self._numbers[ledger] = number
        elif name == "delete" and ledger in self._numbers:
            self._judge_deletion(ledger, self._numbers[ledger])

    def _judge_deletion(self, ledger: int, number: int) -> None:
        self.counts["deleted ledgers"] += 1
        chain = decode_chain(self.run.simulation.metadata.leader.get(chain_path(LOG, _ROOT)).value, log_name=LOG)
        first, freed = chain.ledgers[0].first_revision, self.freed.get(ledger)
        if ledger in self.named and (freed is None or first <= freed):
            self.fail("ledger-in-use", f"ledger {ledger} is named until {freed}, the log begins with {first}")
        if ledger not in self.named and number in self.uploads:
            self.fail("open-writer", f"ledger {ledger} goes while upload {number} has not ended")

    def _is_freed(self) -> bool:
        assert self.ledgers is not None
        held = {one.ledger_id for one in self.ledgers.ledgers.values() if _is_content(one)}
        machines = [one._context.machine for one in self.run.cluster.replicas.values()]
        return bool(machines) and all(
            held == {row[0] for _, row in machine.items(CONTENTS_TABLE)} and not machine.uploads.held
            for machine in machines
            if isinstance(machine, FileMachine)
        )

    async def _judge_files(self) -> None:
        for user in self.users:
            for alternatives in user.expected():
                found = {path: await user.look(path) for path in alternatives[0]}
                if not any(_agrees(found, wanted) for wanted in alternatives):
                    self.fail("file-lost", f"there is {found}, and not one of {alternatives}")

    def check_read(self, path: str, read: bytes, offset: int, end: int) -> None:
        """Judge what was read of a file."""
        self.counts["read"] += 1
        if not any(read == one[offset:end] for one in self.ever.get(path, ())):
            self.fail("right-bytes", f"{path} from {offset} to {end} is {read!r}, and was never")


class _Tampered:
    """Stands for bytes that cannot be read because somebody has changed them."""


TAMPERED = _Tampered()


def _agrees(found: dict[str, bytes | _Tampered | None], wanted: Files) -> bool:
    return all((one is TAMPERED and wanted[path] is not None) or one == wanted[path] for path, one in found.items())


def _is_content(twin: LedgerTwin) -> bool:
    return content_number(twin.metadata.custom) is not None


class FileUser:
    """Writes, renames, deletes and reads its own files, one thing after the other, at whichever door.

    Args:
        world: Where.
        number: Its own.
        rng: Chance.

    """

    def __init__(self, world: FileWorld, number: int, rng: random.Random) -> None:
        self.is_calm = False
        self._world = world
        self._number = number
        self._rng = rng
        self._made = 0
        # What is certain; and of what is not, all that may be.
        self._files: dict[str, bytes] = {}
        self._gone: set[str] = set()
        self._uncertain: list[list[Files]] = []

    def expected(self) -> Iterator[list[Files]]:
        """Iterate over groups of paths: of each, all that may be there."""
        yield from ([{path: content}] for path, content in self._files.items())
        yield from ([{path: None}] for path in self._gone)
        yield from self._uncertain

    async def work(self) -> None:
        """Work until calm."""
        while not self.is_calm:
            await asyncio.sleep(self._rng.expovariate(5.0))
            try:
                await self._rng.choice((self._write, self._write, self._rename, self._delete, self._read))()
            except UnreachableError:
                await asyncio.sleep(0.2)

    async def _write(self) -> None:
        path = self._rng.choice([*self._files, ""]) if self._rng.random() < 0.4 else ""
        path = path or self._fresh()
        self._made += 1
        data = f"{self._number}.{self._made}:".encode() + self._rng.randbytes(self._rng.randrange(60))
        self._world.ever.setdefault(path, set()).add(data)
        before: Files = {path: self._files.get(path)}
        await self._change(before, {path: data}, lambda host: self._written(host, path, data), "written")

    async def _written(self, host: SimHost, path: str, data: bytes) -> None:
        world, contents = self._world, self._contents(host)
        link = SimLink(world, random.Random(self._rng.random()))

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, max(1, len(data)), _CHUNK):
                # A client is slow now and then; one that is silent for too long finds its upload given up.
                await asyncio.sleep(self._rng.choice((0.0, 0.0, 0.0, 0.3, 0.3, 9.0)) * self._rng.random())
                yield data[at : at + _CHUNK]

        await writing.write_file(link.execute, path, pieces(), "user", 0o644, overwrite=True, begin=contents.create)

    async def _rename(self) -> None:
        if not self._files:
            return
        source = self._rng.choice(list(self._files))
        others = [path for path in self._files if path != source]
        to = self._rng.choice(others) if others and self._rng.random() < 0.5 else self._fresh()
        data = self._files[source]
        self._world.ever.setdefault(to, set()).add(data)
        before: Files = {source: data, to: self._files.get(to)}
        command = RenameEntry(source, to, RenameRule.OVERWRITE)
        await self._change(before, {source: None, to: data}, lambda host: self._executed(host, command), "renamed")

    async def _delete(self) -> None:
        if not self._files:
            return
        path = self._rng.choice(list(self._files))
        command = DeleteEntry(path, is_recursive=True)
        before: Files = {path: self._files[path]}
        await self._change(before, {path: None}, lambda host: self._executed(host, command), "removed")

    async def _executed(self, _host: SimHost, command: FileCommand) -> None:
        await SimLink(self._world, random.Random(self._rng.random())).execute(command)

    async def _read(self) -> None:
        paths = sorted(self._world.ever)
        if paths:
            await self.look(self._rng.choice(paths), is_once=True)

    async def look(self, path: str, *, is_once: bool = False) -> bytes | _Tampered | None:
        """Return what is read at a path, all of it; with `is_once` a part, perhaps, or nothing if a door dies."""
        while True:
            with contextlib.suppress(UnreachableError, NoLeaderError):
                return await self._at_door(lambda host: self._looked(host, path, is_part=is_once))
            if is_once:
                return None
            await asyncio.sleep(0.3)

    async def _looked(self, host: SimHost, path: str, *, is_part: bool) -> bytes | _Tampered | None:
        link = SimLink(self._world, random.Random(self._rng.random()))
        try:
            found = await link.ask(host.name, ReadFile(path))
            assert isinstance(found, FilePart | FilePlace)
            begin = self._rng.randrange(found.size) if is_part and found.size else 0
            end = self._rng.randint(begin + 1, found.size) if is_part and found.size else found.size
            if isinstance(found, FilePart):
                self._world.check_read(path, found.content[begin:end], begin, end)
                return found.content
            return await self._of_ledger(host, path, found, begin, end)
        except NoSuchFileError:
            return None

    async def _of_ledger(
        self, host: SimHost, path: str, found: FilePlace, begin: int, end: int
    ) -> bytes | _Tampered | None:
        ledger = found.content.ledger
        while True:
            try:
                data = b"".join([one async for one in self._contents(host).pieces(found, begin, end)])
            except DamagedContentError as error:
                if ledger not in self._world.tampered:
                    self._world.fail("whole-file", f"{path} is there and cannot be read: {error}")
                self._world.counts["refused"] += 1
                return TAMPERED
            except NoSuchLedgerError:
                return None  # Replaced long ago: who read took too long. Whether it might go is judged when it goes.
            except LedgerError:
                await asyncio.sleep(0.3)
                continue
            self._world.check_read(path, data, begin, end)
            return data

    # ---- how it is done

    def _fresh(self) -> str:
        self._made += 1
        return f"/{self._number}/d{self._made % 3}/{self._made}" if self._made % 2 else f"/{self._number}/{self._made}"

    def _contents(self, host: SimHost) -> content_ledgers.ContentLedgers:
        client = self._world.run.cluster.clients.get(host.name)
        if client is None:
            raise UnreachableError(host.name)
        chains = ChainStore(client.store, LOG, _ROOT)
        return content_ledgers.ContentLedgers(client, chains, LOG, self._world.run.cluster.settings)

    async def _at_door(self, work: Any) -> Any:
        """Have something done by a process of a door, which may die with it."""
        world, loop = self._world, asyncio.get_running_loop()
        host = self._rng.choice(world.run.cluster.hosts)
        if not host.is_up or host.name not in world.run.cluster.replicas:
            raise UnreachableError(host.name)
        done: asyncio.Future[Any] = loop.create_future()

        async def _serve() -> None:
            try:
                result = await work(host)
            except Exception as error:  # noqa: BLE001 - told to who asked
                world.run.simulation.after(0.001, _settle, done, error)
            else:
                world.run.simulation.after(0.001, _settle, done, result)

        host.spawn(_serve())
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await done
        except TimeoutError:
            raise UnreachableError(host.name) from None

    async def _change(self, before: Files, after: Files, work: Any, counted: str) -> None:
        """Have something changed, and note what is there then: one of both, if nobody knows."""
        try:
            await self._at_door(work)
        except FileError as error:
            if self._is_open_to_doubt(error):
                self._doubt(before, after)
            return
        except (RsmError, LedgerError, UnreachableError):
            self._doubt(before, after)
            return
        self._world.counts[counted] += 1
        for path, data in after.items():
            if data is None:
                self._files.pop(path, None)
                self._gone.add(path)
            else:
                self._files[path] = data
                self._gone.discard(path)

    @staticmethod
    def _is_open_to_doubt(error: FileError) -> bool:
        """Return whether a refusal may come of a change that was done before: an upload is ended once."""
        return isinstance(error, NoSuchFileError)

    def _doubt(self, before: Files, after: Files) -> None:
        """Touch these paths no more."""
        for path in before:
            self._files.pop(path, None)
            self._gone.discard(path)
        self._uncertain.append([before, after])


def _settle(done: asyncio.Future[Any], result: Any) -> None:
    if done.done():
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)


def run_file_seed(seed: int, trouble_s: float = 15.0) -> FileOutcome:
    """Run one seed."""
    before = [getattr(module, name) for module, name, _ in _SHORTENED]
    for module, name, value in _SHORTENED:
        setattr(module, name, value)
    world = FileWorld(seed, trouble_s)
    outcome = FileOutcome(seed, command="tests.sim.file_scenario", counts=world.counts)
    try:
        with _quiet():
            world.run.simulation.run(world.main(), limit_s=trouble_s + 900)
    except (BrokenInvariantError, SimulationError) as error:
        outcome.broken = str(error) or repr(error)
    finally:
        for (module, name, _), value in zip(_SHORTENED, before, strict=True):
            setattr(module, name, value)
    outcome.simulated_s = world.run.simulation.loop.time()
    world.counts.update(world.run.nemesis.counts)
    return outcome


if __name__ == "__main__":
    import sys

    found = run_file_seed(int(sys.argv[1]))
    print(found.report() if found.broken else dict(found.counts))
