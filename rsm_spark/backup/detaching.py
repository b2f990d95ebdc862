"""Makes a log independent of those that it shares ledgers with, while it is served: its own copies take their places.

    1. each shared ledger is copied, entry by entry, as far as the log has it, into a closed ledger of the log's own
    2. the log's leader puts the copies into the chain, in one write; where no replica runs, it is written here
    3. what was shared is let go of, as what is trimmed: whoever uses it last deletes it

Cut off anywhere, the next call goes on with what is there: `rsm_spark.log.detachment` holds which copies are whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec

from ledger.client.client import LedgerClient
from ledger.client.read_handle import ReadHandle
from ledger.client.write_handle import WriteHandle
from ledger.errors import BadVersionError, MetadataError, MetadataUnavailableError, NoSuchLedgerError
from ledger.operators import Operator
from rsm_spark.backup.copied_ledgers import STEP_BYTES, create_ledger
from rsm_spark.backup.manifest import BackupError
from rsm_spark.core.admission import password_mark
from rsm_spark.core.chain import CHAIN_BYTES_MAX, ChainLedger, ClosedEnd, LogChain, check_chain_size, encode_chain
from rsm_spark.core.detaching import LedgerCopy, shared_ledgers, with_copies
from rsm_spark.core.envelope import decode_envelope, entry_hash
from rsm_spark.core.orphans import copy_metadata
from rsm_spark.core.seal import KeyRing, ledger_password
from rsm_spark.errors import CorruptLogError, LogError, NoLeaderError
from rsm_spark.log.admin_requests import AdminRequests, DetachRequest
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.detachment import DetachMark, checked_copies
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.sharing import SharedLedgers

_TRIES = 30
_PAUSE_S = 1.0
_ENTRIES_MAX = 256
_COPIES_MAX = 1_000
"""Of one order: its node must hold them."""


class DetachSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Log that is to share nothing any more.

    Attributes:
        log: Its name.
        rsm_root: Root of the logs.
        keys: Of the log, if it has any.
        password: Of the ledgers that have no key.
        quorum: Ensemble, write quorum, ack quorum of the copies.
        timeout_s: How long to wait for the leader.
        by: Who wants it.

    """

    log: str
    rsm_root: str
    keys: KeyRing | None = None
    password: bytes = b""
    quorum: tuple[int, int, int] = (2, 2, 2)
    timeout_s: float = 30.0
    by: Operator = Operator("")


class DetachedLog(msgspec.Struct, frozen=True):
    """Outcome of a detachment.

    Attributes:
        log, log_id: The log.
        ledgers: How many of its ledgers were shared, and are its own now.
        entries, bytes: What was copied by this call; an earlier one may have copied more.

    """

    log: str
    log_id: str
    ledgers: int
    entries: int
    bytes: int


class LogDetachment:
    """One detachment.

    Args:
        client: Connected ledger client.
        target: What is to be detached.
        owner: Drawn anew for each call, 16 hex digits.
        progress: Told now and then: revision, bytes copied.

    """

    def __init__(
        self,
        client: LedgerClient,
        target: DetachSpec,
        owner: str,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._client = client
        self._target = target
        self._progress = progress
        self._owner = owner
        self._chains = ChainStore(client.store, target.log, target.rsm_root)
        self._log_id = ""
        self._entries = self._bytes = 0

    async def detach(self) -> DetachedLog:
        """Detach the log; one that shares nothing stays as it is.

        Raises:
            BackupError: A key or the password is lacking.
            LogError: There is no such log; another call is at work; the leader refuses, or none answers.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked. The next call goes on.

        """
        chain, _ = await self._chains.read()
        self._check(chain)
        self._log_id = chain.log_id
        mark = DetachMark(self._client.store, self._target.log, chain.log_id, self._target.rsm_root, self._owner)
        await mark.take()
        is_done = False
        try:
            await self._clear(mark)
            await self._copy_all(mark)
            ledgers = await self._swap(mark)
            await self._let_go()
            await self._clear(mark)
            is_done = True
        finally:
            # Of a session that is lost the mark goes by itself.
            with contextlib.suppress(MetadataError):
                await mark.leave(is_done=is_done)
        return DetachedLog(self._target.log, chain.log_id, ledgers, self._entries, self._bytes)

    def _check(self, chain: LogChain) -> None:
        target, shared = self._target, shared_ledgers(chain)
        if chain.unfinished:
            raise BackupError(f"log {target.log}: {chain.unfinished} is making it: wait until that is done")
        wanted = {ledger.key_id for ledger in shared} - {""}
        lacking = sorted(key_id for key_id in wanted if target.keys is None or target.keys.get(key_id) is None)
        if lacking:
            raise BackupError(
                f"log {target.log}: its entries are sealed with key {', '.join(lacking)}: give the key file that holds "
                "it (--log-key FILE)"
            )
        if any(not ledger.key_id for ledger in shared) and chain.password_mark:
            mark = password_mark(target.password, chain.log_id)
            if mark != chain.password_mark:
                raise BackupError(
                    f"log {target.log}: its ledgers have another password than was given here: its replicas could not "
                    "open the copies (--password-file)"
                )

    async def _read(self) -> tuple[LogChain, int]:
        chain, version = await self._chains.read()
        if chain.log_id != self._log_id:
            raise LogError(
                f"log {self._target.log}: its id was {self._log_id} and is {chain.log_id}: it is another log"
            )
        return chain, version

    async def _clear(self, mark: DetachMark) -> None:
        """Delete what will never be in the chain; note no more what is."""
        chain, _ = await self._read()
        useless = mark.useless(chain)
        for ledger_id in useless:
            with contextlib.suppress(NoSuchLedgerError):
                await self._client.delete(ledger_id)
        await mark.forget([*useless, *(ledger.ledger_id for ledger in chain.ledgers)])

    # ---- copies

    async def _copy_all(self, mark: DetachMark) -> None:
        chain, _ = await self._read()
        before = ""
        for ledger in chain.ledgers:
            if ledger.log_id and ledger.ledger_id not in mark.whole:
                try:
                    await self._copy(mark, chain, ledger, before)
                except NoSuchLedgerError:
                    again, _ = await self._read()
                    if again.has(ledger.ledger_id):
                        raise
                    # It was trimmed meanwhile.
            before = "" if ledger.closed is None else ledger.closed.prefix_hash

    async def _copy(self, mark: DetachMark, chain: LogChain, ledger: ChainLedger, before: str) -> None:
        """Copy a ledger up to where it ends for this log, entry by entry, also what is set aside."""
        target, end = self._target, ledger.closed
        assert end is not None, "what is shared is closed"
        password = ledger_password(chain, ledger.ledger_id, target.keys, target.password)
        source = await self._client.open_no_recovery(ledger.ledger_id, password=password)
        handle: WriteHandle | None = None
        try:
            own = target.password
            if ledger.key_id:
                assert target.keys is not None, "checked before"
                own = target.keys.password(ledger.key_id, chain.log_id)
            custom = copy_metadata(target.log, chain.log_id, ledger.key_id)
            handle = await create_ledger(self._client, target.quorum, own, custom)
            try:
                await mark.begin(ledger.ledger_id, handle.ledger_id, time.time_ns() // 1_000_000)
            except LogError:  # Nobody would know of it: the log was deleted, or another one copies.
                await self._client.delete(handle.ledger_id)
                raise
            aside = {one.entry_id for one in chain.quarantined if one.ledger_id == ledger.ledger_id}
            await self._write(source, handle, end, aside, before)
            last = await handle.close()
            length, handle = handle.metadata.length, None
            if last != end.last_entry_id:
                raise CorruptLogError(f"ledger {ledger.ledger_id}: its copy ends with entry {last}: copy it once more")
            await mark.end(ledger.ledger_id, length)
        finally:
            await source.close()
            if handle is not None:
                handle.abandon()

    async def _write(
        self, source: ReadHandle, handle: WriteHandle, end: ClosedEnd, aside: set[int], before: str
    ) -> None:
        count = end.last_entry_id + 1
        step = max(1, min(_ENTRIES_MAX, STEP_BYTES * count // max(end.length, 1)))
        written: asyncio.Future[int] | None = None
        for first in range(0, count, step):
            for entry in await source.read(first, min(first + step, count) - 1):
                payload = bytes(entry.payload)
                if entry.entry_id not in aside:
                    envelope = decode_envelope(payload)
                    if before and envelope.prefix_hash.hex() != before:
                        raise CorruptLogError(
                            f"log {self._target.log}: ledger {source.ledger_id} entry {entry.entry_id} does not "
                            "continue the one before it: rsm log verify says what is wrong"
                        )
                    before = entry_hash(payload).hex()
                written = handle.append(payload)
                written.add_done_callback(_look_at)
                self._entries += 1
                self._bytes += len(payload)
                if handle.in_flight_bytes > STEP_BYTES:
                    await handle.drain()
            await handle.drain()
            if self._progress is not None:
                self._progress(end.last_revision, self._bytes)
        if written is not None:
            await written
        if count and before != end.prefix_hash:
            raise CorruptLogError(
                f"log {self._target.log}: ledger {source.ledger_id} ends with another entry than its chain says: rsm "
                "log verify says what is wrong"
            )

    # ---- the chain

    async def _swap(self, mark: DetachMark) -> int:
        """Have the copies take their places; return how many did."""
        target, wrong = self._target, ""
        discovery = Discovery(self._client.store, target.log, target.rsm_root)
        whole = mark.whole
        for _ in range(_TRIES):
            chain, version = await self._read()
            copies = [whole[one.ledger_id] for one in shared_ledgers(chain) if one.ledger_id in whole][:_COPIES_MAX]
            if not copies:
                own = {copy.ledger_id for copy in whole.values()}
                return sum(ledger.ledger_id in own for ledger in chain.ledgers)
            led = await discovery.leader()
            if led is not None and led[1] is not None:
                wrong = await self._ask(copies)
                is_stuck = bool(wrong)
            elif not await discovery.members():
                await self._write_chain(chain, version, copies)
                is_stuck = False
            else:
                is_stuck = True
            if is_stuck:
                await asyncio.sleep(_PAUSE_S)
        raise LogError(
            f"log {target.log}: its ledgers are copied, but the copies did not come into its chain: "
            f"{wrong or 'it has replicas and no leader'}. Look at rsm status, then run the command again: it goes on"
        )

    async def _ask(self, copies: list[LedgerCopy]) -> str:
        """Have the leader write the chain; return why it did not, or ""."""
        target = self._target
        orders = AdminRequests(self._client.store, target.log, target.rsm_root)
        try:
            answer = await orders.place(DetachRequest(tuple(copies)), timeout_s=target.timeout_s, by=target.by)
        except NoLeaderError as error:
            raise NoLeaderError(
                f"{error}. A leader of an older version does not know this order. What is copied stays: run the "
                "command once more, and it goes on"
            ) from error
        return answer.refusal

    async def _write_chain(self, chain: LogChain, version: int, copies: list[LedgerCopy]) -> None:
        """Write the chain of a log that nobody leads: whoever claims it at the same time wins, or comes after it."""
        changed = with_copies(chain, await checked_copies(self._client, chain, copies))
        value = encode_chain(changed)
        check_chain_size(value, len(changed.ledgers), CHAIN_BYTES_MAX, log_name=self._target.log)
        with contextlib.suppress(BadVersionError, MetadataUnavailableError):  # The next look tells.
            await self._chains.write(value, version)

    async def _let_go(self) -> None:
        """Delete what the chain names as being deleted; where replicas run, their leader does that."""
        target, store = self._target, self._client.store
        chain, version = await self._read()
        if not chain.deleting or await Discovery(store, target.log, target.rsm_root).members():
            return
        await SharedLedgers(self._client, chain.log_id, target.rsm_root).delete(chain.deleting)
        with contextlib.suppress(BadVersionError):  # A leader has come: it finds that all of them are gone.
            await self._chains.write(encode_chain(msgspec.structs.replace(chain, deleting=())), version)


def _look_at(written: asyncio.Future[int]) -> None:
    if not written.cancelled():
        written.exception()  # The last one of the ledger is waited for.
