"""Makes a new log of one that is there, up to a revision or a time: closed ledgers are shared, not copied.

    1. the new log's name is taken by a chain that says that it is unfinished: nobody takes part in it
    2. what it shares is noted (`rsm_spark.log.sharing`), and the origin's chain read again: all of it must be there
    3. the ledger in which it ends is shared up to there, or copied, if it is open
    4. the whole chain takes the place of the unfinished one

Cut off before the last step, the log is unfinished: `rsm log delete` undoes it. Each write of the chain is one
transaction with `<root>/forking/<log id>`, which goes with the name: another log may have that by then.

Nothing stands still for a fork. The origin's leader is asked for one thing: to close its ledger, if much would have to
be copied else.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import (
    BadVersionError,
    LedgerError,
    MetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from ledger.operators import Operator
from ledger.ports import NodeChange
from rsm_spark.backup.copied_ledgers import CopiedLedgers
from rsm_spark.backup.fork_contents import ForkContents
from rsm_spark.backup.fork_end import PATIENCE_S, POLL_S, ForkEnd
from rsm_spark.backup.fork_snapshots import ForkRequest, ForkSnapshots
from rsm_spark.backup.manifest import BackupError, origins_at
from rsm_spark.backup.put_snapshot import remove_from_lake
from rsm_spark.backup.restoring import TRIMMED_LEDGER, RestoreOutcome, check_new_lake
from rsm_spark.core.admission import check_level, password_mark
from rsm_spark.core.chain import ChainLedger, LogChain, LogOrigin, chain_path, encode_chain, log_id_of
from rsm_spark.core.chain_write import ChainWrite, WriteVerdict
from rsm_spark.core.envelope import entry_hash
from rsm_spark.errors import ForkedLogError, LogError, LogExistsError, NoLeaderError, NoSuchLogError
from rsm_spark.log.admin_requests import AdminRequests, RollRequest
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogEntry
from rsm_spark.log.deletion import ensure_node, forking_path
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.sharing import SharedLedgers

SHARING_LEVEL = 2
"""Format level from which on versions know that ledgers are shared: one that does not would delete them."""

_TRIES = 10
_COPIED_MAX = 4 << 20
"""More than that of an open ledger is not copied, if its leader can close it."""
_ROLL_S = 5.0


class ForkOutcome(RestoreOutcome, frozen=True):
    """Outcome of a fork; `entries` and `bytes` are what was copied.

    Attributes:
        origin_id: Log id of the origin.
        shared: Ledgers that are shared.

    """

    origin_id: str
    shared: int


class LogFork:
    """One fork.

    Args:
        client: Connected ledger client.
        target: What is to become of it.
        progress: Told now and then: revision, bytes copied.
        draw: Draws so many bytes at random, as hex digits.

    """

    def __init__(
        self,
        client: LedgerClient,
        target: ForkRequest,
        progress: Callable[[int, int], None] | None = None,
        *,
        draw: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._client = client
        self._target = target
        self._progress = progress
        self._log_id = draw(16)
        self._origins = ChainStore(client.store, target.log, target.rsm_root)
        self._chains = ChainStore(client.store, target.name, target.rsm_root)
        self._path = chain_path(target.name, target.rsm_root)
        self._guard = forking_path(self._log_id, target.rsm_root)
        self._sharing = SharedLedgers(client, self._log_id, target.rsm_root)
        self._contents = ForkContents(client, target, self._log_id, self._sharing)
        self._draft = LogChain(self._log_id)
        self._version = 0
        self._shared: tuple[ChainLedger, ...] = ()
        self._copies = self._copies_of(())

    async def make(self) -> ForkOutcome:
        """Make the log.

        Raises:
            BackupError: The origin does not hold what is wanted; a key or the password is lacking.
            LogError: There is a log of this name; the origin was trimmed meanwhile.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked.

        """
        target = self._target
        await self._check_name()
        chain, _ = await self._origins.read()
        self._check_origin(chain)
        end = ForkEnd(self._client, self._origins, target, chain)
        await end.find()
        if end.open_bytes > _COPIED_MAX and not target.is_independent and await self._is_rolled():
            chain, _ = await self._origins.read()
            end = ForkEnd(self._client, self._origins, target, chain)
            await end.find()
        if not target.is_independent:
            self._shared = tuple(
                msgspec.structs.replace(ledger, log_id=log_id_of(ledger, chain))
                for ledger in chain.ledgers[: end.place]
            )
            if end.closed is not None:
                last = chain.ledgers[end.place]
                shared = msgspec.structs.replace(last, log_id=log_id_of(last, chain), closed=end.closed)
                self._shared = (*self._shared, shared)
                self._check_reached(end, end.closed.last_revision)
        await self._check_needs(chain, end.place)
        snapshots = ForkSnapshots(target, self._log_id)
        self._copies = self._copies_of(await snapshots.look(chain))
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._draft = LogChain(
            self._log_id, format_level=chain.format_level, unfinished=f"{target.by or 'somebody'}, since {since},"
        )
        await self._begin()
        try:
            await self._share(chain)
            if target.is_independent or end.closed is None:
                await self._copy(chain, end)
            made = self._finished(chain)
            await self._contents.take(chain, chain.ledgers[end.place], made.origins[-1].revision)
            snapshot = await snapshots.take(chain, self._shared, self._copies)
            await self._write(made)
        except BaseException as error:
            await asyncio.shield(self._undo(error))
            raise
        last_end = made.ledgers[-1].closed
        assert last_end is not None, "nothing that is shared or copied is open"
        return ForkOutcome(
            target.name,
            self._log_id,
            last_end.last_revision,
            last_end.prefix_hash,
            last_end.last_entry_ms,
            self._copies.entries,
            self._copies.bytes,
            len(made.ledgers),
            0 if snapshot is None else snapshot.revision,
            tuple(sorted({one.key_id for one in made.ledgers} - {""})),
            self._contents.count,
            chain.log_id,
            len(self._shared),
        )

    async def _is_rolled(self) -> bool:
        """Have the origin's leader close its ledger, so that it can be shared; without a leader it is copied."""
        target, store = self._target, self._client.store
        led = await Discovery(store, target.log, target.rsm_root).leader()
        if led is None or led[1] is None:
            return False
        orders = AdminRequests(store, target.log, target.rsm_root)
        try:
            answer = await orders.place(RollRequest(), timeout_s=_ROLL_S, by=Operator(target.by, reason="to be forked"))
        except NoLeaderError:
            return False
        return not answer.refusal

    def _copies_of(self, wanted: set[str] | tuple[()]) -> CopiedLedgers:
        target = self._target
        return CopiedLedgers(
            self._client,
            target.name,
            self._log_id,
            keys=target.keys,
            password=target.password,
            quorum=target.quorum,
            wanted=wanted,
            on_created=self._note_created,
        )

    # ---- what is refused

    async def _check_name(self) -> None:
        target = self._target
        with contextlib.suppress(NoSuchLogError):
            chain, _ = await self._chains.read()
            if chain.unfinished:
                raise LogError(
                    f"log {target.name}: {chain.unfinished} is making it: wait for that, or undo it if the command was "
                    f"killed: rsm log delete {target.name}"
                )
            raise LogExistsError(
                f"log {target.name}: there is one already, with id {chain.log_id}: choose another name"
            )
        if target.lake is not None:
            check_new_lake(target.name, await asyncio.to_thread(target.lake.manifests))

    def _check_origin(self, chain: LogChain) -> None:
        target = self._target
        if chain.unfinished:
            raise BackupError(f"log {target.log}: {chain.unfinished} is making it: wait until that is done")
        check_level(chain, target.log)
        if chain.format_level < SHARING_LEVEL and not target.is_independent:
            raise BackupError(
                f"log {target.log}: it has format level {chain.format_level}: a replica of an older version, which "
                "knows nothing of shared ledgers, could trim what the fork needs. Once all its replicas run this "
                f"version: rsm log raise-format {target.log}; or copy everything: --independent"
            )

    async def _check_needs(self, chain: LogChain, place: int) -> None:
        target = self._target
        first = 0 if target.is_independent else place
        wanted = {one.key_id for one in chain.ledgers[first : place + 1]} - {""}
        lacking = sorted(key_id for key_id in wanted if target.keys is None or target.keys.get(key_id) is None)
        if lacking:
            raise BackupError(
                f"log {target.log}: its entries are sealed with key {', '.join(lacking)}: give the key file that holds "
                "it (--log-key FILE)"
            )
        if any(not ledger.key_id for ledger in self._shared) and chain.password_mark:
            mark = password_mark(target.password, chain.log_id)
            if mark != chain.password_mark:
                raise BackupError(
                    f"log {target.log}: its ledgers have another password than was given here: the fork shares them, "
                    "and its replicas need that password too (--password-file)"
                )
        if not chain.is_whole and target.snapshots is None and target.lake is None:
            raise BackupError(
                f"log {target.log}: it begins with revision {chain.ledgers[0].first_revision} now, so that replicas "
                "need a snapshot to begin with: name the folder of the first one (--data-dir), or a lake (--lake)"
            )

    # ---- what it is made of

    async def _share(self, chain: LogChain) -> None:
        """Note what is shared; after that it must still be in the origin's chain."""
        owners: dict[str, list[int]] = {}
        for ledger in self._shared:
            owners.setdefault(ledger.log_id, []).append(ledger.ledger_id)
        await self._sharing.use(self._target.name, owners)
        again, _ = await self._origins.read()
        there = {ledger.ledger_id for ledger in again.ledgers}
        if again.log_id != chain.log_id or any(ledger.ledger_id not in there for ledger in self._shared):
            raise LogError(f"log {self._target.log}: it was trimmed just now: make the fork once more")

    async def _copy(self, chain: LogChain, end: ForkEnd) -> None:
        """Copy the ledger in which the fork ends, as far as it is wanted; all before it where nothing is shared."""
        target = self._target
        first = 0 if target.is_independent else end.place
        sources = {ledger.ledger_id: ledger for ledger in chain.ledgers}
        before = self._shared[-1].closed.prefix_hash if self._shared and self._shared[-1].closed is not None else ""
        reader = end.reader(chain.ledgers[first])
        loop = asyncio.get_running_loop()
        is_late, waited_s = False, 0.0
        reading = loop.create_task(reader.read())
        try:
            while not is_late:
                entries = await reading
                wanted: list[tuple[LogEntry, ChainLedger]] = []
                for entry in entries:
                    is_late = is_late or end.is_late(entry)
                    if not is_late:
                        before = _follow(entry, before, target.log)
                        wanted.append((entry, sources[entry.position.ledger_id]))
                if not entries:
                    if end.is_reached(reader) or waited_s >= PATIENCE_S:
                        break
                    await reader.wait(POLL_S)
                    waited_s += POLL_S
                reading = loop.create_task(reader.read())  # While these are written.
                await self._copies.write(wanted)
                if self._progress is not None and self._copies.last is not None:
                    self._progress(self._copies.last.envelope.last_revision, self._copies.bytes)
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, LedgerError, LogError):
                await reading
            await reader.close()
        await self._copies.end()
        last = self._copies.last
        self._check_reached(end, 0 if last is None else last.envelope.last_revision)

    def _check_reached(self, end: ForkEnd, revision: int) -> None:
        target = self._target
        if target.revision is not None and revision < target.revision and not end.is_cut:
            raise BackupError(f"log {target.log}: it ends with revision {revision}, asked for was {target.revision}")

    def _finished(self, chain: LogChain) -> LogChain:
        target = self._target
        ledgers = (*self._shared, *self._copies.ledgers)
        last = ledgers[-1].closed
        assert last is not None, "nothing that is shared or copied is open"
        names = {ledger.ledger_id for ledger in self._shared}
        made_ms = time.time_ns() // 1_000_000
        source = "that log itself"
        end = LogOrigin(target.log, chain.log_id, last.last_revision, last.prefix_hash, made_ms, target.by, source)
        return LogChain(
            self._log_id,
            first_ledger_id=ledgers[0].ledger_id if chain.is_whole else TRIMMED_LEDGER,
            leader_epoch=max(one.leader_epoch for one in ledgers),
            ledgers=ledgers,
            format_level=chain.format_level,
            password_mark=password_mark(target.password, self._log_id),
            origins=origins_at(chain.origins, end),
            key_id=ledgers[-1].key_id,
            quarantined=tuple(entry for entry in chain.quarantined if entry.ledger_id in names),
        )

    # ---- the new chain

    async def _note_created(self, ledger_id: int) -> None:
        """Have the unfinished chain name a ledger that goes with it."""
        self._draft = msgspec.structs.replace(self._draft, deleting=(*self._draft.deleting, ledger_id))
        await self._write(self._draft)

    async def _begin(self) -> None:
        store, value = self._client.store, encode_chain(self._draft)
        await ensure_node(store, forking_path("", self._target.rsm_root).rstrip("/"))
        try:
            await store.change([NodeChange(self._path, value, None), NodeChange(self._guard, b"", None)])
        except NodeExistsError as error:
            raise LogExistsError(f"log {self._target.name}: there is one already: choose another name") from error

    async def _write(self, chain: LogChain) -> None:
        """Replace the own chain; a reply that is lost is judged by reading it again."""
        write = ChainWrite(encode_chain(chain), self._version)
        guard = NodeChange(self._guard, b"" if chain.unfinished else None)
        for _ in range(_TRIES):
            try:
                await self._client.store.change([NodeChange(self._path, write.value, write.held_version), guard])
                self._version = write.held_version + 1
            except MetadataUnavailableError:
                value, version = await self._chains.read_bytes()
                match write.judge(value, version):
                    case WriteVerdict.ARRIVED:
                        self._version = version
                        return
                    case WriteVerdict.SEND_AGAIN:
                        continue
                    case WriteVerdict.DEPOSED:
                        break
            except (BadVersionError, NoNodeError):
                break
            else:
                return
        raise LogError(f"log {self._target.name}: somebody deleted or changed it while it was made: nothing was made")

    async def _undo(self, why: BaseException) -> None:
        """Take all of it back; the name goes last, so that an undoing that is cut off is seen."""
        target = self._target
        try:
            store, guard = self._client.store, NodeChange(self._guard, b"")
            with contextlib.suppress(NoNodeError):  # Somebody has deleted the name: the rest goes all the same.
                # A commit whose reply was lost has arrived, or never will.
                await store.change([NodeChange(self._path, encode_chain(self._draft), self._version), guard])
                self._version += 1
            await remove_from_lake(target.lake, self._log_id)
            await self._sharing.delete([*(ledger.ledger_id for ledger in self._shared), *self._contents.shared])
            await self._contents.forget()
            await self._copies.forget()
            with contextlib.suppress(NoNodeError):
                await store.change([NodeChange(self._path, None, self._version), NodeChange(self._guard)])
        except MetadataError as error:
            raise LogError(
                f"log {target.name}: not made: {str(why) or type(why).__name__}. It could not be taken back: {error}. "
                f"Undo it with rsm log delete {target.name}"
            ) from why


def _follow(entry: LogEntry, before: str, log: str) -> str:
    """Return the hash after an entry that continues what was before it."""
    if before and entry.envelope.prefix_hash.hex() != before:
        raise ForkedLogError(
            f"log {log}: the entry of revision {entry.envelope.first_revision} does not continue the one before it: "
            "rsm log verify says what is wrong"
        )
    return (entry.prefix_hash or entry_hash(entry.payload)).hex()
