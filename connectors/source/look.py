"""Readable part of a log: the chain, ledger by ledger, to the end that is certainly confirmed.

1. A ledger that is CLOSED is read to the end that its metadata says.
2. A ledger that is not is read up to the highest revision that an envelope of the leader or an explicit LAC names as
   confirmed. The LAC in entry headers only says where to look: a recovery writes those too.
3. Nothing beyond the first ledger that is not CLOSED is looked at, whatever the chain says.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Protocol

import msgspec

from connectors.errors import SparkOffsetError
from connectors.source.batch_reach import LedgerHead
from connectors.source.bounds import Bound
from connectors.source.decode import StoredEntry
from connectors.source.locate import locate_bound
from connectors.source.offsets import LogOffset
from connectors.source.plan import EntryHead, LogSpan, LogView
from connectors.source.seals import LedgerSeals
from ledger.core.metadata import LedgerMetadata
from ledger.errors import NoSuchLedgerError
from rsm_spark.core.chain import Ancestry, ChainLedger, LogChain
from rsm_spark.core.envelope import Envelope, body_of, decode_envelope
from rsm_spark.core.finished_batches import open_batches
from rsm_spark.core.machine import MachineDescription, decode_description
from rsm_spark.core.records import KernelRecord, decode_records
from rsm_spark.core.seal import KeyRing
from rsm_spark.errors import CorruptLogError

_ENVELOPES_KEPT_MAX = 10_000
_LEFT_OVER_MAX = 1  # A leader has one entry in flight.
_PLAIN_LEFT_OVER_MAX = 16  # The writer of a plain log has so many.
_LOOKS_MAX = 3
_NEVER = 1 << 63  # Beyond every revision.


class Confirmed(NamedTuple):
    """End of a ledger as the bookies report it; -1 = nothing yet.

    Attributes:
        last_add_confirmed: Highest LAC seen anywhere: a hint for logs, the truth for plain ledgers.
        explicit_lac: Highest LAC that a writer wrote explicitly.

    """

    last_add_confirmed: int
    explicit_lac: int


class LogAccess(Protocol):
    """Access that a look needs; `access.DriverAccess` is the real one."""

    def chain(self, log: str) -> LogChain:
        """Read the chain of a log.

        Raises:
            NoSuchLogError: There is none.

        """
        ...

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Read a ledger's metadata.

        Raises:
            NoSuchLedgerError: It does not exist.

        """
        ...

    def confirmed(self, ledger_id: int) -> Confirmed:
        """Ask the bookies for the end of a ledger that is not CLOSED."""
        ...

    def read(self, ledger_id: int, first_entry_id: int, last_entry_id: int) -> list[StoredEntry]:
        """Read entries, at most up to the highest LAC."""
        ...

    def log_keys(self) -> KeyRing | None:
        """Return the keys that check seals; None = none is given."""
        ...


class LogLook:
    """Looks at one log again and again; what cannot change is kept.

    Args:
        log: Name.
        access: Where to read.

    """

    def __init__(self, log: str, access: LogAccess) -> None:
        self.log = log
        self._access = access
        self._log_id: str | None = None
        self._ancestry = Ancestry(b"")
        # Spans of CLOSED ledgers: final.
        self._closed: dict[int, LogSpan] = {}
        # Readable ends of ledgers that were not CLOSED: they only grow. (last entry, its last revision, length)
        self._open: dict[int, tuple[int, int, int]] = {}
        self._envelopes: OrderedDict[tuple[int, int], tuple[Envelope, int]] = OrderedDict()
        self._descriptions: dict[int, MachineDescription | None] = {}
        self._heads: dict[int, LedgerHead | None] = {}
        self._moved: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._key_ids: dict[int, str] = {}
        self._first_revisions: dict[int, int] = {}
        # Of each ledger, what is set aside: SHA-256 by entry id.
        self._aside: dict[int, dict[int, str]] = {}

    @property
    def log_id(self) -> bytes:
        """Id of the log, known after the first look."""
        assert self._log_id is not None, "look first"
        return bytes.fromhex(self._log_id)

    def look(self) -> LogView:
        """Return what may be read now.

        Raises:
            NoSuchLogError: There is no such log.
            CorruptLogError: The log was replaced by another one, or a ledger of its chain does not exist.

        """
        for attempt in range(1, _LOOKS_MAX + 1):
            chain = self._access.chain(self.log)
            if self._log_id not in {None, chain.log_id}:
                raise CorruptLogError(
                    f"log {self.log}: its id was {self._log_id} and is now {chain.log_id}: it was made anew; start a "
                    "new query with a new checkpoint location"
                )
            self._log_id, self._ancestry = chain.log_id, chain.ancestry
            self._aside = {}
            for aside in chain.quarantined:
                self._aside.setdefault(aside.ledger_id, {})[aside.entry_id] = aside.sha256
            try:
                spans = self._spans(chain)
            except NoSuchLedgerError as error:
                # Trimmed between two reads: the next look shows a chain without it.
                if attempt == _LOOKS_MAX:
                    raise CorruptLogError(f"log {self.log}: a ledger of its chain does not exist: {error}") from error
                continue
            first = chain.ledgers[0].first_revision if chain.ledgers else 1
            self._moved = chain.moved
            return LogView(self.log, tuple(spans), first, self._moved)
        raise AssertionError("unreachable")

    def _spans(self, chain: LogChain) -> list[LogSpan]:
        spans: list[LogSpan] = []
        for ledger in chain.ledgers:
            self._epochs[ledger.ledger_id] = ledger.leader_epoch
            self._key_ids[ledger.ledger_id] = ledger.key_id
            self._first_revisions[ledger.ledger_id] = ledger.first_revision
            span = self._closed.get(ledger.ledger_id)
            if span is None:
                span = self._look_at(ledger)
            spans.append(span)
            if ledger.ledger_id not in self._closed:
                break
        return spans

    def _look_at(self, ledger: ChainLedger) -> LogSpan:
        ledger_id, first = ledger.ledger_id, ledger.first_revision
        if ledger.closed is not None:
            end = ledger.closed
            span = LogSpan(ledger_id, first, end.last_entry_id, end.last_revision, end.length, end.last_entry_ms)
            self._closed[ledger_id] = span
            return span
        metadata = self._access.metadata(ledger_id)
        if metadata.is_closed:
            last = metadata.last_entry_id
            last_revision = self._envelope(ledger_id, last)[0].last_revision if last >= 0 else first - 1
            span = LogSpan(ledger_id, first, last, last_revision, metadata.length)
            self._closed[ledger_id] = span
            return span
        last, last_revision, length = self._exposed(ledger)
        return LogSpan(ledger_id, first, last, last_revision, length)

    def _exposed(self, ledger: ChainLedger) -> tuple[int, int, int]:
        """Return the readable end of a ledger that is not CLOSED."""
        ledger_id = ledger.ledger_id
        known = self._open.get(ledger_id, (-1, ledger.first_revision - 1, 0))
        said = self._access.confirmed(ledger_id)
        low = max(known[0], said.explicit_lac)
        last = max(said.last_add_confirmed, low)
        if last > low:
            confirmed = 0
            while last > low:
                envelope = self._envelope(ledger_id, last)[0]
                confirmed = max(confirmed, envelope.confirmed_revision)
                # An entry without records has no revision of its own to be named by: it waits for the LAC.
                if envelope.record_count and envelope.last_revision <= confirmed:
                    break
                last -= 1
        if last > known[0]:
            envelope, length = self._envelope(ledger_id, last)
            known = self._open[ledger_id] = (last, envelope.last_revision, length)
        return known

    def seals(self, ledger_id: int) -> LedgerSeals:
        """Return what a task has to know of a ledger's entries; keys only if the options name a key file."""
        aside = self._aside.get(ledger_id, {})
        log_id = self.written_as(ledger_id)
        return LedgerSeals.of(self._key_ids.get(ledger_id, ""), aside, self._access.log_keys(), log_id)

    def written_as(self, ledger_id: int) -> bytes:
        """Return the log id that the entries of a ledger bear: that of the log, or of one that it goes on from."""
        return self._ancestry.at(self._first_revisions.get(ledger_id, _NEVER))

    @property
    def ancestry(self) -> Ancestry:
        """Ids that the log's entries bear, known after the first look."""
        return self._ancestry

    def last_revision_at(self, ledger_id: int, entry_id: int) -> int:
        """Return the revision of an entry's last record (`plan.RevisionAt`)."""
        return self._envelope(ledger_id, entry_id)[0].last_revision

    def head_at(self, ledger_id: int, entry_id: int) -> EntryHead:
        """Return an entry's head (`plan.HeadAt`).

        BookKeeper's protocol has no read of a part of an entry: the whole entry crosses the wire, its records are not
        decoded, and only the head is kept. So who asks asks for O(log n) of them.

        """
        envelope, length = self._envelope(ledger_id, entry_id)
        return EntryHead(envelope.last_revision, length, envelope.logged_ms)

    def _envelope(self, ledger_id: int, entry_id: int) -> tuple[Envelope, int]:
        """Return an entry's envelope, and the ledger's length up to it; the last ones asked for are kept."""
        place = (ledger_id, entry_id)
        found = self._envelopes.get(place)
        if found is not None:
            self._envelopes.move_to_end(place)
            return found
        entry = self._read_one(ledger_id, entry_id)
        if entry_id in self._aside.get(ledger_id, {}):
            found = self._envelopes[place] = (self._before(ledger_id, entry_id), entry.length)
        else:
            found = self._envelopes[place] = (self._checked(ledger_id, entry), entry.length)
        if len(self._envelopes) > _ENVELOPES_KEPT_MAX:
            self._envelopes.popitem(last=False)
        return found

    def _before(self, ledger_id: int, entry_id: int) -> Envelope:
        """Return what stands for an entry that is set aside: one without records, where the one before it ends."""
        if entry_id > 0:
            before = self._envelope(ledger_id, entry_id - 1)[0]
            return msgspec.structs.replace(before, first_revision=before.last_revision + 1, record_count=0)
        first = self._first_revisions[ledger_id]
        return Envelope(self.written_as(ledger_id), self._epochs[ledger_id], first, first - 1, 0, 0, bytes(32))

    def _read_one(self, ledger_id: int, entry_id: int) -> StoredEntry:
        return self._access.read(ledger_id, entry_id, entry_id)[0]

    def _checked(self, ledger_id: int, entry: StoredEntry) -> Envelope:
        place = f"log {self.log}: ledger {ledger_id} entry {entry.entry_id}"
        try:
            envelope = decode_envelope(entry.payload)
        except CorruptLogError as error:
            raise CorruptLogError(f"{place}: {error}") from error
        log_id = self.written_as(ledger_id)
        if envelope.log_id != log_id:
            raise CorruptLogError(f"{place} belongs to log {envelope.log_id.hex()}, not to {log_id.hex()}")
        return envelope

    def payload_at(self, ledger_id: int, entry_id: int) -> bytes:
        """Return an entry's payload; of one that is set aside, that of the entry before it, or else behind it."""
        ledger_id = self._moved.get(ledger_id, ledger_id)
        aside = self._aside.get(ledger_id, {})
        found = next((one for one in range(entry_id, -1, -1) if one not in aside), None)
        while found is None:
            entry_id += 1
            found = entry_id if entry_id not in aside else None
        return self._read_one(ledger_id, found).payload

    def position_of(self, view: LogView, bound: Bound) -> LogOffset:
        """Return the position that a bound means.

        Raises:
            StartGoneError, SparkOffsetError: See `locate.locate_bound`; or nothing was logged at or after a time yet.

        """
        found = locate_bound(view, bound, self.head_at)
        if found is None:
            raise SparkOffsetError(f"log {view.log}: nothing was logged at or after {bound.timestamp_ms} yet")
        return found

    def description_at(self, view: LogView, ledger_id: int) -> MachineDescription | None:
        """Return how the machine is described at the begin of a ledger; None if that has been trimmed.

        Each ledger has a description among its first entries, so that no other one is opened; only a ledger that its
        leader had no time to begin so is described by those before it.

        """
        for span in reversed(view.spans[: view.index_of(ledger_id) + 1]):
            found = self._described_in(span) if span.last_entry_id >= 0 else None
            if found is not None:
                return found
        return None

    def epochs(self, view: LogView) -> dict[int, tuple[int, int]]:
        """Return the lowest and the highest leader epoch that an entry can have, by ledger.

        A leader may append an entry of its own again, but none of a later leader's: an entry's epoch is at most its
        ledger's, and at least that of the ledger before.

        """
        found: dict[int, tuple[int, int]] = {}
        before = 0
        for span in view.spans:
            epoch = self._epochs[span.ledger_id]
            found[span.ledger_id] = (before, epoch)
            before = epoch
        return found

    def head_of(self, span: LogSpan) -> LedgerHead | None:
        """Return which batches of writers are open where a plain log's ledger begins (`batch_reach.HeadOf`).

        A note of them stands in its first entry, or in the first one behind what a failed ledger left over.

        """
        ledger_id = span.ledger_id
        if ledger_id in self._heads:
            return self._heads[ledger_id]
        last = min(span.last_entry_id, _PLAIN_LEFT_OVER_MAX)
        for entry_id in range(last + 1):
            if entry_id in self._aside.get(ledger_id, {}):
                continue
            records = decode_records(body_of(self.payload_at(ledger_id, entry_id)))
            kinds = [record.type for record in records]
            if KernelRecord.MACHINE_DESCRIBED not in kinds:
                continue
            found = open_batches(kinds, lambda at, records=records: records[at].fields)  # type: ignore[misc]
            # A log that tells of no producers has no batches either.
            self._heads[ledger_id] = LedgerHead(found or {}, entry_id == 0)
            return self._heads[ledger_id]
        if last == _PLAIN_LEFT_OVER_MAX or ledger_id in self._closed:
            self._heads[ledger_id] = None
        return None

    def _described_in(self, span: LogSpan) -> MachineDescription | None:
        """Look for a description in the first entries: one that a failed ledger left over may stand before it."""
        ledger_id, last = span.ledger_id, min(span.last_entry_id, _LEFT_OVER_MAX)
        if ledger_id in self._descriptions:
            return self._descriptions[ledger_id]
        for entry_id in range(last + 1):
            if entry_id in self._aside.get(ledger_id, {}):
                continue
            for record in decode_records(body_of(self.payload_at(ledger_id, entry_id))):
                if record.type == KernelRecord.MACHINE_DESCRIBED:
                    self._descriptions[ledger_id] = decode_description(record.fields[0])
                    return self._descriptions[ledger_id]
        if last == _LEFT_OVER_MAX:
            self._descriptions[ledger_id] = None
        return None
