"""Reads the committed entries of a log, in order, across its ledgers, closed and open.

What counts as committed:

* in a CLOSED ledger, every entry up to its end, which comes from its own metadata, read after `sync`: never from the
  chain, which may show a successor before this reader knows the end. Only a ledger that the log shares with its origin
  may end before that, where its chain says;
* in any other ledger, an entry that a later envelope's confirmed revision covers, or the leader's explicit LAC, or that
  its leader itself has told as confirmed (`take_told`).
  The LAC in entry headers and `maxLAC` only say how far it is worth reading: recoveries write those too, and another
  recovery may end the ledger before them.

Watches are hints: chain and open metadata are read again every `poll_s`.

Whose word an entry is: with the log's key each sealed entry is checked, without it only that a ledger with a key holds
sealed ones. What fails in a CLOSED ledger is an error, for good; in an open one it is not taken, and looked at again:
it may not be what the ledger ends with. An entry that the chain sets aside (`rsm log quarantine`) is passed over.
"""

# Longer than 400 lines: one reader: where to read, what is committed and whose word it is decide together.

from __future__ import annotations

import asyncio
import logging
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from ledger.client.client import LedgerClient
from ledger.client.read_handle import ReadHandle
from ledger.core.metadata import NO_ENTRY
from ledger.errors import MetadataError, NoSuchLedgerError
from rsm_spark.core.chain import LogChain, QuarantinedEntry, last_entry_of
from rsm_spark.core.confirmed_tail import ToldEntries, check_told
from rsm_spark.core.envelope import Envelope, decode_envelope, entry_hash
from rsm_spark.core.position import NO_REVISION, LogPosition
from rsm_spark.core.seal import ForeignEntryError, KeyRing, UnknownKeyError, check_seal, ledger_password
from rsm_spark.core.state import StateTip
from rsm_spark.errors import CorruptLogError, ForkedLogError, MissingLogError
from rsm_spark.log.chain_store import ChainStore

_LOGGER = logging.getLogger(__name__)

_KEY_PATIENCE_S = 60.0
"""Time to wait for the key of an entry that is not in the file yet: files are distributed one after the other."""


def shown_place(place: LogPosition) -> str:
    """Return a place for an error."""
    return f"ledger {place.ledger_id} entry {place.entry_id}"


def quarantine_hint(log_name: str, place: LogPosition) -> str:
    """Say what helps against an entry that the log cannot hold."""
    return (
        "If no leader of the log can have written it: "
        f"rsm log quarantine {log_name} --ledger {place.ledger_id} --entry {place.entry_id}"
    )


class LogEntry(NamedTuple):
    """A committed entry, where it lies, and its header."""

    position: LogPosition
    payload: bytes
    envelope: Envelope
    prefix_hash: bytes | None = None
    """Hash of the log after it, where it was computed already."""


class TakenEntries(NamedTuple):
    """Entries that a reader has taken from a leader, and why none after them; "" = it has taken all that were new."""

    entries: list[LogEntry]
    fault: str = ""


class LogReader:
    """A place in a log, moving forward.

    Args:
        client: Ledger client.
        chains: Chain of the log.
        password: Of its ledgers that have no key.
        keys: Of the log; None = seals are not checked.
        position: Last entry that the caller has; None = begin with the first of the log.
        revision: Last revision that the caller has.
        poll_s: Longest time that a watch is trusted.
        entries_max: Entries per read.

    Attributes:
        position: Last entry returned, or where reading began.
        revision: Last revision returned.
        chain: As read last; None before the first read.

    """

    def __init__(
        self,
        client: LedgerClient,
        chains: ChainStore,
        *,
        password: bytes | None = b"",
        keys: KeyRing | None = None,
        position: LogPosition | None = None,
        revision: int = NO_REVISION,
        poll_s: float = 1.0,
        entries_max: int = 256,
    ) -> None:
        self.position = position
        self.revision = revision
        self.chain: LogChain | None = None
        self._chain_version = -1
        self._places: dict[int, int] = {}  # Ledger id -> index in the chain.
        self._moved: dict[int, int] = {}  # Ledger that left the chain -> its copy there.
        self._client = client
        self._chains = chains
        self._password = password
        self._keys = keys
        self._aside: dict[LogPosition, QuarantinedEntry] = {}
        self._refused: tuple[LogPosition, float] | None = None  # Not taken so far, and since when.
        self._poll_s = poll_s
        self._entries_max = entries_max
        self._handle: ReadHandle | None = None
        self._next_entry_id = 0
        # Read, not yet known to be committed. Invariant: consecutive but for what is set aside, up to
        # `_next_entry_id` - 1.
        self._unexposed: list[LogEntry] = []
        self._explicit_lac = NO_ENTRY
        self._last_add_confirmed = NO_ENTRY
        self._ledger_at_end = False
        self._stale = True  # The chain must be read again.
        self._checked_at = float("-inf")  # When chain and metadata were last read.
        self._changed: asyncio.Future[None] | None = None

    @property
    def ledgers_ahead(self) -> int:
        """Number of ledgers of the chain after the one being read: 0 = it is the last."""
        if self.chain is None:
            return 0
        here = self._places.get(self._handle.ledger_id, -1) if self._handle is not None else -1
        return len(self.chain.ledgers) - 1 - here

    @property
    def known_revision(self) -> int:
        """Highest revision read, whether it is known to be committed or not."""
        return self._unexposed[-1].envelope.last_revision if self._unexposed else self.revision

    @property
    def is_at_end(self) -> bool:
        """True if all that the chain named is closed and has been returned."""
        if self.chain is None or self.ledgers_ahead > 0:
            return False
        return not self.chain.ledgers or (self._ledger_at_end and not self._unexposed)

    async def read(self) -> list[LogEntry]:
        """Return the next committed entries; empty if there are none at present.

        Raises:
            MissingLogError: The place has been trimmed: only a snapshot helps.
            CorruptLogError: A ledger of the chain does not exist, or holds no log; `ForeignEntryError` for an entry
                that no leader of the log wrote.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked; the same call may succeed later.

        """
        if self._stale or self._clock() - self._checked_at >= self._poll_s:
            await self._refresh()
        while True:
            leave = self._handle is None or (self._ledger_at_end and self.ledgers_ahead > 0)
            if leave and not await self._open_next():
                return []
            try:
                await self._read_some()
            except NoSuchLedgerError:
                await self._explain_missing()
            if self._handle is None:
                continue  # A copy has taken the place of that ledger.
            exposed = self._expose()
            # A ledger that closed empty is passed over at once: nobody should wait for a watch between two of them.
            if exposed or not (self._ledger_at_end and self.ledgers_ahead > 0):
                return exposed

    async def take_told(self, told: ToldEntries, tip: StateTip) -> TakenEntries:
        """Take entries that the leader of the ledger being read says are confirmed, as if they had been read.

        Its word is enough: it has counted the ack quorum, so that no recovery ends the ledger before them. What is not
        the next entry of that ledger and of the history that ends with `tip` is not taken, nor is what follows it.

        Args:
            told: As the leader has told it.
            tip: After the last entry that the caller has taken.

        Raises:
            MissingLogError, CorruptLogError, LedgerError, MetadataError: As `read` raises, for chain and metadata.

        """
        if self._stale or self._clock() - self._checked_at >= self._poll_s:
            await self._refresh()
        taken: list[LogEntry] = []
        for place, payload in told.entries:
            if self._is_behind(place):
                continue
            fault = self._place_fault(place)
            if not fault:
                try:
                    entry = self._judge_told(place, payload, told.leader_epoch, tip)
                except (CorruptLogError, ForkedLogError) as error:
                    fault = f"{shown_place(place)}: {error}"
            if fault:
                return TakenEntries(taken, fault)
            taken.append(entry)
            envelope = entry.envelope
            assert entry.prefix_hash is not None
            tip = StateTip(
                envelope.last_revision,
                entry.prefix_hash,
                envelope.leader_epoch,
                envelope.logged_ms,
                tip.is_sealed or bool(envelope.key_id),
            )
            self._pass(place, envelope.last_revision)
        return TakenEntries(taken)

    def _is_behind(self, place: LogPosition) -> bool:
        """Return whether the caller has an entry already."""
        position = self.position
        return position is not None and place.ledger_id == position.ledger_id and place.entry_id <= position.entry_id

    def _place_fault(self, place: LogPosition) -> str:
        """Return why an entry at a place cannot be the next one; "" = it can."""
        handle, position = self._handle, self.position
        if handle is None or handle.is_closed or place.ledger_id != handle.ledger_id or self.ledgers_ahead > 0:
            if place.ledger_id not in self._places:
                self._stale = True  # The chain was read before the leader made that ledger.
            return f"{shown_place(place)} lies in another ledger than the one being read"
        next_id = 0 if position is None or position.ledger_id != place.ledger_id else position.entry_id + 1
        if place.entry_id != next_id or place in self._aside:
            return f"{shown_place(place)} was told where entry {next_id} must follow"
        return ""

    def _judge_told(self, place: LogPosition, payload: bytes, told_epoch: int, tip: StateTip) -> LogEntry:
        """Return an entry that the leader told, with the hash of the log after it.

        Raises:
            CorruptLogError: It cannot be the next one.

        """
        assert self.chain is not None
        entry = self._judge(place, payload)
        ledger = self.chain.ledgers[self._places[place.ledger_id]]
        log_id = self.chain.ancestry.at(entry.envelope.first_revision)
        check_told(entry.envelope, tip, log_id, ledger.leader_epoch, told_epoch)
        if self._unexposed and self._unexposed[0].payload != payload:
            raise ForeignEntryError("the bookies hold another entry there")
        return entry if entry.prefix_hash is not None else entry._replace(prefix_hash=entry_hash(payload))

    def _pass(self, place: LogPosition, revision: int) -> None:
        """Go on behind an entry that was told; what was read already of those behind it stays."""
        self.position, self.revision = place, revision
        if self._unexposed:
            del self._unexposed[0]
        self._next_entry_id = max(self._next_entry_id, place.entry_id + 1)
        self._explicit_lac = max(self._explicit_lac, place.entry_id)

    async def wait(self, timeout_s: float, *, told: asyncio.Future[ToldEntries | None] | None = None) -> None:
        """Wait until there may be more to read, or until the time has passed.

        Args:
            timeout_s: At most so long.
            told: What is asked of the leader: its answer ends the wait, and bookies are not asked meanwhile.

        """
        loop = asyncio.get_running_loop()
        if self._stale:
            return
        changed = self._changed = loop.create_future()
        timer = loop.call_later(min(timeout_s, self._poll_s), _resolve, changed)
        tail: asyncio.Task[None] | None = None
        if told is not None:
            told.add_done_callback(answered := partial(_resolve_by, changed))
        elif self._handle is not None and not self._handle.is_closed:
            tail = loop.create_task(self._long_poll(self._handle, timeout_s, changed))
        try:
            await changed
        finally:
            if told is not None:
                told.remove_done_callback(answered)
            timer.cancel()
            self._changed = None
            if tail is not None:
                tail.cancel()

    async def close(self) -> None:
        """Let go of the ledger."""
        if self._handle is not None:
            await self._handle.close()
            self._handle = None

    # ---- where to read

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    def _on_watch(self) -> None:
        self._stale = True
        if self._changed is not None:
            _resolve(self._changed)

    async def _refresh(self) -> None:
        """Read the chain, and the metadata of the ledger being read, again."""
        self._stale = False
        try:
            await self._read_chain()
            if self._handle is not None and not self._handle.is_closed:
                await self._handle.refresh()
        except NoSuchLedgerError:
            self._stale = True
            await self._explain_missing()
        except MetadataError:
            if self._handle is None:
                self._stale = True
                raise
            # The ledger at hand can still be tailed; how old that is, logged time tells.
        except BaseException:
            self._stale = True
            raise
        self._checked_at = self._clock()

    async def _read_chain(self) -> None:
        """Read the chain; a ledger that has left it is being deleted, however much of it can still be read.

        Raises:
            MissingLogError: That is so of the one being read.

        """
        known = None if self.chain is None else (self.chain, self._chain_version)
        chain, self._chain_version = await self._chains.read_if_changed(known, watch=self._on_watch)
        if chain is not self.chain:
            self.chain = chain
            self._places = {ledger.ledger_id: index for index, ledger in enumerate(chain.ledgers)}
            self._moved = chain.moved
            self._aside = {LogPosition(entry.ledger_id, entry.entry_id): entry for entry in chain.quarantined}
        if self._handle is not None and self._handle.ledger_id not in self._places:
            if self._handle.ledger_id not in self._moved:
                raise self._missing()
            self._unexposed.clear()  # Read again, behind `position`, out of the copy.
            await self.close()

    async def _open_next(self) -> bool:
        """Go to the ledger to read from now on; False if the chain has none yet."""
        target = self._next_ledger()
        if target is None:
            return False
        ledger_id, next_entry_id = target
        try:
            assert self.chain is not None
            password = ledger_password(self.chain, ledger_id, self._keys, self._password)
            handle = await self._client.open_no_recovery(ledger_id, password=password)
        except NoSuchLedgerError:
            await self._explain_missing(ledger_id)
            raise
        await self.close()
        self._handle = handle
        self._next_entry_id = next_entry_id
        self._explicit_lac = self._last_add_confirmed = NO_ENTRY
        self._ledger_at_end = False
        return True

    def _next_ledger(self) -> tuple[int, int] | None:
        """Return the ledger that follows and the entry to begin with."""
        assert self.chain is not None
        ledgers = self.chain.ledgers
        if self._handle is not None:
            after = self._places[self._handle.ledger_id] + 1
            return (ledgers[after].ledger_id, 0) if after < len(ledgers) else None
        if self.position is not None:
            ledger_id = self._moved.get(self.position.ledger_id, self.position.ledger_id)
            if ledger_id not in self._places:
                raise self._missing()
            return ledger_id, self.position.entry_id + 1
        if not ledgers:
            return None
        if not self.chain.is_whole:
            raise self._missing()
        return ledgers[0].ledger_id, 0

    def _missing(self) -> MissingLogError:
        assert self.chain is not None
        first = self.revision + 1
        ledgers = self.chain.ledgers
        last = ledgers[0].first_revision - 1 if ledgers else None
        return MissingLogError(
            f"log {self._chains.log_name}: revisions {first} to {last} have left the log, which now begins with "
            f"revision {'?' if last is None else last + 1}: start from a snapshot of revision {last} or later",
            first_revision=first,
            last_revision=last,
        )

    async def _explain_missing(self, ledger_id: int | None = None) -> None:
        """Raise what a ledger that does not exist means: trimmed under this reader, or lost; not if a copy is there."""
        if ledger_id is None:
            assert self._handle is not None
            ledger_id = self._handle.ledger_id
        await self._read_chain()
        if ledger_id in self._moved:
            return
        if ledger_id in self._places:
            raise CorruptLogError(
                f"log {self._chains.log_name}: its chain names ledger {ledger_id}, which does not exist: records are "
                "lost. Find out what deleted it"
            )
        raise self._missing()

    # ---- what to return

    async def _read_some(self) -> None:
        handle = self._handle
        assert handle is not None
        if handle.is_closed:
            bound = self._end_of(handle)
        else:
            lac = await handle.read_lac()
            self._last_add_confirmed = max(self._last_add_confirmed, lac.last_add_confirmed)
            self._explicit_lac = max(self._explicit_lac, lac.explicit_lac)
            bound = max(self._last_add_confirmed, self._explicit_lac)
        last = min(bound, self._next_entry_id + self._entries_max - 1)
        if last >= self._next_entry_id:
            for entry in await handle.read(self._next_entry_id, last):
                place = LogPosition(handle.ledger_id, entry.entry_id)
                if not self._take(place, bytes(entry.payload), is_final=handle.is_closed):
                    return
                self._next_entry_id = entry.entry_id + 1
        if handle.is_closed:
            self._check_end(self._end_of(handle))

    def _end_of(self, handle: ReadHandle) -> int:
        """Return the last entry of a CLOSED ledger that is of this log."""
        assert self.chain is not None
        return last_entry_of(self.chain.ledgers[self._places[handle.ledger_id]], handle.metadata.last_entry_id)

    def _take(self, place: LogPosition, payload: bytes, *, is_final: bool) -> bool:
        """Take an entry, or pass over it; False if it has to be looked at again later.

        Raises:
            CorruptLogError: See `read`.

        """
        aside = self._aside.get(place)
        if aside is not None:
            if sha256(payload).hexdigest() != aside.sha256:
                raise CorruptLogError(
                    f"log {self._chains.log_name}: {shown_place(place)} is set aside, but another entry lies there "
                    "now: find out who writes to the bookies"
                )
            return True
        try:
            self._unexposed.append(self._judge(place, payload))
        except CorruptLogError as error:
            self._refuse(place, error, is_final=is_final)
            return False
        return True

    def _judge(self, place: LogPosition, payload: bytes) -> LogEntry:
        """Return an entry that may be the log's.

        Raises:
            CorruptLogError: It is none.

        """
        chain, keys = self.chain, self._keys
        assert chain is not None
        envelope = decode_envelope(payload)
        ledger = chain.ledgers[self._places[place.ledger_id]]
        if not envelope.key_id:
            if ledger.key_id:
                raise ForeignEntryError("it has no seal, as every entry of this ledger has")
            return LogEntry(place, payload, envelope)
        if keys is None:
            return LogEntry(place, payload, envelope)
        if envelope.leader_epoch != ledger.leader_epoch:
            raise ForeignEntryError(
                f"it was sealed in epoch {envelope.leader_epoch}, its ledger is of epoch {ledger.leader_epoch}"
            )
        log_id = chain.ancestry.at(envelope.first_revision)
        try:
            prefix_hash = check_seal(payload, envelope, keys, log_id)
        except UnknownKeyError:
            if not keys.refresh():
                raise
            prefix_hash = check_seal(payload, envelope, keys, log_id)
        return LogEntry(place, payload, envelope, prefix_hash)

    def _refuse(self, place: LogPosition, error: CorruptLogError, *, is_final: bool) -> None:
        """Say that an entry is not taken; raise if that is for good.

        Raises:
            CorruptLogError: It is the ledger's for ever; or the key of it has not come for a minute.

        """
        now = self._clock()
        if self._refused is None or self._refused[0] != place:
            self._refused = place, now
            is_new = True
        else:
            is_new = False
        name = self._chains.log_name
        said = f"log {name}: {shown_place(place)}: {error}"
        is_waited_for = isinstance(error, UnknownKeyError) and now - self._refused[1] < _KEY_PATIENCE_S
        if is_final and not is_waited_for:
            raise type(error)(f"{said}. {quarantine_hint(name, place)}") from error
        if is_new:
            _LOGGER.warning("not taken: %s", said)

    def _check_end(self, last_entry_id: int) -> None:
        """Forget what was read beyond the end: a recovery may have shown it, and ended the ledger before it."""
        while self._unexposed and self._unexposed[-1].position.entry_id > last_entry_id:
            self._unexposed.pop()
        self._ledger_at_end = self._next_entry_id > last_entry_id

    def _expose(self) -> list[LogEntry]:
        """Take out what is committed."""
        pending = self._unexposed
        handle = self._handle
        if not pending or handle is None:
            return []
        count = len(pending)
        if not handle.is_closed:
            named = pending[-1].envelope.confirmed_revision
            # An entry never vouches for itself: an empty one repeats the revision of the one before.
            count = sum(entry.envelope.last_revision <= named for entry in pending[:-1])
            count = max(count, sum(entry.position.entry_id <= self._explicit_lac for entry in pending))
        exposed, self._unexposed = pending[:count], pending[count:]
        if exposed:
            self.position = exposed[-1].position
            self.revision = exposed[-1].envelope.last_revision
        return exposed

    async def _long_poll(self, handle: ReadHandle, timeout_s: float, changed: asyncio.Future[None]) -> None:
        """Resolve `changed` when the ledger's LAC has moved."""
        known = max(self._last_add_confirmed, self._explicit_lac)
        try:
            await handle.wait_lac(known, timeout_s)
        except Exception:  # noqa: BLE001  # a hint only: the timer wakes the reader, whose read then reports it
            return
        _resolve(changed)


def _resolve_by(future: asyncio.Future[None], _done: asyncio.Future[ToldEntries | None]) -> None:
    _resolve(future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
