"""Trimming: the ledgers of a log that may go, and the reasons why the others stay.

1. Only a prefix of the chain goes, never the ledger that is written.
2. Age counts from the last entry, by logged time: a ledger that was open for days and closed a minute ago is young.
3. What a ledger holds must be in snapshots that somebody else than their writer has read back and logged, in two
   failure domains: the disk that holds the only one may be lost right after the trim.
4. A snapshot covers a ledger that lies *before* it: its revision is above the ledger's last one, so that the entry
   from which it is continued is still there. One at the very end of a ledger would not do: empty entries may follow it
   in the same ledger, with the same revision and another prefix hash.
5. Consumers hold what they have not read, within limits of their own and of the leader: one that never comes back does
   not keep the log for ever. Readers that are not registered have no say.
6. A plain log needs no snapshots: its records are all there is. It goes by age, by size, as far as its consumers have
   read, or as far as somebody says; consumers hold it all the same.
7. Consumers are told before anything goes (`rsm_spark.log.trim_notice`); nothing behind what was told goes.

Pure: what is verified, who holds what and what time it is come in as arguments. Nothing is remembered between two
plans, so that a new leader judges as the old one did.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from ledger.core.metadata import NO_ENTRY
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain

ALARM_RETENTIONS = 1.5
"""A ledger that is older than this many retentions and still there is an alarm."""

HOLD_MS = 7 * 24 * 3_600_000
"""Longest hold of a consumer, unless the leader is told otherwise."""

HOLD_BYTES = 64 * 1024**3
"""Largest hold of a consumer, unless the leader is told otherwise."""

FOREVER_MS = 2**62
"""Retention of a log that goes by nothing but what somebody says."""

_DOMAINS_WANTED = 2
_HOUR_MS = 3_600_000


class SnapshotProof(Protocol):
    """Statement of the log about a verified snapshot."""

    @property
    def domain(self) -> str:
        """Failure domain: its disk may fail together with all others that name the same one."""
        ...

    @property
    def revision(self) -> int:
        """Last revision that it contains."""
        ...


class StayReason(StrEnum):
    """Reasons why a ledger stays.

    CURRENT: it is the last of the chain, or not known to be closed.
    YOUNG: its last entry is within the retention.
    NOT_OFFLOADED: it has to be kept elsewhere first, and is not yet.
    NOT_COVERED: verified snapshots beyond it lie in too few failure domains.
    UNREAD: a consumer has not read it yet, and is within its limits.
    NOT_TOLD: it may go since a moment; consumers have not been told yet.
    """

    CURRENT = "current"
    YOUNG = "young"
    NOT_OFFLOADED = "not offloaded"
    NOT_COVERED = "not covered"
    UNREAD = "unread"
    NOT_TOLD = "not told"


class ConsumerHold(msgspec.Struct, frozen=True):
    """Registered position of a reader of the log.

    Attributes:
        name: Of the consumer; unique in the log.
        what: What it is, in words.
        revision: Last revision that it has read; 0 = none.
        hold_ms: Ledgers whose last entry is older, by logged time, are not held.
        hold_bytes: Closed ledgers are held from the newest back to so many payload bytes, and no further.

    """

    name: str
    what: str
    revision: int
    hold_ms: int
    hold_bytes: int


_NO_ALARM = (StayReason.CURRENT, StayReason.YOUNG, StayReason.UNREAD, StayReason.NOT_TOLD)


class Blocked(msgspec.Struct, frozen=True):
    """Ledgers in a row that stay for one reason.

    Attributes:
        first_ledger_id: Oldest of them.
        last_ledger_id: Newest of them.
        ledger_count: How many.
        reason: See `StayReason`.
        text: The same in words, with what would help.

    """

    first_ledger_id: int
    last_ledger_id: int
    ledger_count: int
    reason: StayReason
    text: str


class TrimPlan(msgspec.Struct, frozen=True):
    """Ledgers that may go now.

    Attributes:
        ledger_ids: A prefix of the chain, oldest first.
        blocked: All other ledgers, in order.
        last_revision: Last revision that goes; 0 if nothing does.
        length: Payload bytes that go.
        alarm: Why nothing is trimmed although it is long due; "" = no alarm.
        lapsed: Names of consumers that have not read all of what goes, and have reached their limits; ascending.

    """

    ledger_ids: tuple[int, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    last_revision: int = 0
    length: int = 0
    alarm: str = ""
    lapsed: tuple[str, ...] = ()


class TrimRules(msgspec.Struct, frozen=True):
    """Conditions that must hold before a ledger goes.

    Attributes:
        retention_ms: Logged time for which every entry is kept at least.
        is_single_copy_allowed: One failure domain is enough.
        wanted_place: One of the covering snapshots must lie here; "" = anywhere. Who configures a lake wants it to be
            enough when all else is gone.
        offloaded_revision: Revision up to which closed ledgers are kept elsewhere; None = nobody asks for it.
        unverified_revision: Of the leader's own newest snapshot, if an operator accepts it although nobody has
            verified it; None = nobody does. What no snapshot holds never goes.
        holds: Of the consumers.
        hold_ms_max: No consumer holds longer.
        hold_bytes_max: No consumer holds more.
        told_revision: Revision up to which consumers were told that the log goes; None = as far as it may.
        needs_snapshots: False = a plain log: what goes need not be in any snapshot.
        retention_bytes: What lies behind so many bytes of newer closed ledgers may go, however young; None = it stays.
        truncated_revision: Up to here it may go, however young.
        until_read: What every consumer has read may go, however young, if there is one.

    """

    retention_ms: int
    is_single_copy_allowed: bool = False
    wanted_place: str = ""
    offloaded_revision: int | None = None
    unverified_revision: int | None = None
    holds: tuple[ConsumerHold, ...] = ()
    hold_ms_max: int = HOLD_MS
    hold_bytes_max: int = HOLD_BYTES
    told_revision: int | None = None
    needs_snapshots: bool = True
    retention_bytes: int | None = None
    truncated_revision: int = 0
    until_read: bool = False


def plan_trim(
    chain: LogChain,
    verified: Mapping[str, SnapshotProof],
    rules: TrimRules,
    *,
    now_ms: int,
    absent: Collection[str] = (),
) -> TrimPlan:
    """Say which ledgers may go.

    Args:
        chain: As held by the leader.
        verified: By place, what the log says of snapshots.
        rules: What must hold.
        now_ms: Logged time.
        absent: Places that do not say at present that they hold what is verified there (their replica is down, or
            has lost it): they do not count.

    """
    proofs = {place: proof for place, proof in sorted(verified.items()) if place not in absent}
    going: list[ChainLedger] = []
    staying: list[tuple[ChainLedger, StayReason, str]] = []
    last = chain.ledgers[-1] if chain.ledgers else None
    behind = sum(ledger.closed.length for ledger in chain.ledgers if ledger.closed is not None)
    for ledger in chain.ledgers:
        found = _why_it_stays(ledger, proofs, rules, now_ms, behind, is_last=ledger is last)
        if found is None and not staying:
            found = _who_holds(ledger, rules, now_ms, behind)
        behind -= ledger.closed.length if ledger.closed is not None else 0
        if found is None and not staying:
            going.append(ledger)
            continue
        # What makes a ledger stay holds for all after it: time and revisions rise along the chain. Should a damaged
        # chain say otherwise, they stay all the same, for the reason of the one before.
        staying.append((ledger, *(found or (staying[-1][1], staying[-1][2]))))
    ends = [ledger.closed for ledger in going if ledger.closed is not None]
    if going and all(end.last_entry_id == NO_ENTRY for end in ends):
        # Empty ones at the very beginning wait for the next: without them the log could not be read from its beginning.
        staying = [(ledger, staying[0][1], staying[0][2]) for ledger in going] + staying
        going, ends = [], []
    blocked = tuple(_in_rows(staying, _absent_text(verified, absent)))
    return TrimPlan(
        tuple(ledger.ledger_id for ledger in going),
        blocked,
        ends[-1].last_revision if ends else 0,
        sum(end.length for end in ends),
        "" if going else _alarm(staying, blocked, rules, now_ms),
        tuple(sorted({hold.name for hold in rules.holds if ends and ends[-1].last_revision > hold.revision})),
    )


def held_ledgers(chain: LogChain, hold: ConsumerHold, rules: TrimRules, *, now_ms: int) -> tuple[int, ...]:
    """Return the closed ledgers that a consumer has not read and holds, oldest first; others may hold them too.

    Args:
        chain: Of the log.
        hold: Of the consumer.
        rules: Of the leader; only its limits count.
        now_ms: Logged time.

    """
    behind = sum(ledger.closed.length for ledger in chain.ledgers if ledger.closed is not None)
    found = []
    for ledger in chain.ledgers:
        if ledger.closed is None:
            continue
        if is_held(ledger.closed, hold, rules, now_ms, behind):
            found.append(ledger.ledger_id)
        behind -= ledger.closed.length
    return tuple(found)


def is_held(end: ClosedEnd, hold: ConsumerHold, rules: TrimRules, now_ms: int, behind: int) -> bool:
    """Return whether a consumer holds a closed ledger.

    Args:
        end: Of the ledger.
        hold: Of the consumer.
        rules: Of the leader; only its limits count.
        now_ms: Logged time.
        behind: Payload bytes of this ledger and of all closed ones after it.

    """
    return (
        end.last_revision > hold.revision
        and now_ms - end.last_entry_ms <= min(hold.hold_ms, rules.hold_ms_max)
        and behind <= min(hold.hold_bytes, rules.hold_bytes_max)
    )


def _who_holds(ledger: ChainLedger, rules: TrimRules, now_ms: int, behind: int) -> tuple[StayReason, str] | None:
    """Return which consumer holds a ledger that may go otherwise, the one that is furthest behind; None = none does."""
    end = ledger.closed
    assert end is not None, "one that is being written stays in any case"
    holding = [hold for hold in rules.holds if is_held(end, hold, rules, now_ms, behind)]
    if holding:
        slowest = min(holding, key=lambda hold: (hold.revision, hold.name))
        return StayReason.UNREAD, (
            f"consumer {slowest.name} ({slowest.what}) has read up to revision {slowest.revision}; it holds the rest "
            f"for {_hours(min(slowest.hold_ms, rules.hold_ms_max))} and "
            f"{min(slowest.hold_bytes, rules.hold_bytes_max):,} bytes at most"
        )
    if rules.told_revision is not None and end.last_revision > rules.told_revision:
        return StayReason.NOT_TOLD, "consumers are told first; the next look takes it"
    return None


def _why_it_stays(
    ledger: ChainLedger,
    proofs: Mapping[str, SnapshotProof],
    rules: TrimRules,
    now_ms: int,
    behind: int,
    *,
    is_last: bool,
) -> tuple[StayReason, str] | None:
    """Return why one ledger stays, judged on its own; None if it may go."""
    end = ledger.closed
    if is_last or end is None:
        return StayReason.CURRENT, "it is being written"
    # An empty ledger repeats revision and time of the one before: it goes with it.
    if now_ms - end.last_entry_ms <= rules.retention_ms and not _may_go_young(end, rules, behind):
        if rules.retention_ms >= FOREVER_MS:
            return StayReason.YOUNG, "the log keeps its records however old they are"
        return StayReason.YOUNG, f"its last entry is within the retention of {_hours(rules.retention_ms)}"
    if not rules.needs_snapshots:
        return None
    if rules.offloaded_revision is not None and end.last_revision > rules.offloaded_revision:
        return StayReason.NOT_OFFLOADED, f"offloaded is up to revision {rules.offloaded_revision} only"
    if rules.unverified_revision is not None and rules.unverified_revision > end.last_revision:
        return None
    covering = {place: proof.domain for place, proof in proofs.items() if proof.revision > end.last_revision}
    domains = set(covering.values())
    wanted = 1 if rules.is_single_copy_allowed else _DOMAINS_WANTED
    if len(domains) < wanted:
        return StayReason.NOT_COVERED, _not_covered(proofs, len(domains), wanted)
    if rules.wanted_place and rules.wanted_place not in covering:
        known = proofs.get(rules.wanted_place)
        upto = "none is" if known is None else f"the one of revision {known.revision} is the newest"
        return StayReason.NOT_COVERED, f"a verified snapshot beyond it must lie at {rules.wanted_place}: {upto}"
    return None


def _may_go_young(end: ClosedEnd, rules: TrimRules, behind: int) -> bool:
    """Return whether a closed ledger may go although its last entry is within the retention."""
    return (
        end.last_revision <= rules.truncated_revision
        or (rules.retention_bytes is not None and behind - end.length >= rules.retention_bytes)
        or (rules.until_read and bool(rules.holds) and all(one.revision >= end.last_revision for one in rules.holds))
    )


def _not_covered(proofs: Mapping[str, SnapshotProof], found: int, wanted: int) -> str:
    known = ", ".join(f"{place} up to revision {proof.revision}" for place, proof in proofs.items()) or "none"
    return (
        f"verified snapshots beyond it lie in {found} of {wanted} failure domains (verified: {known}): "
        "let another replica verify one, write one to the lake, or allow a single copy"
    )


def _absent_text(verified: Mapping[str, SnapshotProof], absent: Collection[str]) -> str:
    away = [place for place in sorted(verified) if place in absent]
    return f"; not counted, because down or without it: {', '.join(away)}" if away else ""


def _in_rows(staying: Iterable[tuple[ChainLedger, StayReason, str]], absent: str) -> Iterable[Blocked]:
    """Join neighbours that stay for the same reason: thousands of ledgers are a few lines."""
    row: list[int] = []
    said: tuple[StayReason, str] | None = None
    for ledger, reason, text in staying:
        if said is not None and said != (reason, text):
            yield _blocked(row, *said, absent)
            row = []
        said = (reason, text)
        row.append(ledger.ledger_id)
    if said is not None:
        yield _blocked(row, *said, absent)


def _blocked(row: list[int], reason: StayReason, text: str, absent: str) -> Blocked:
    text += absent if reason is StayReason.NOT_COVERED else ""
    return Blocked(row[0], row[-1], len(row), reason, text)


def _alarm(
    staying: Iterable[tuple[ChainLedger, StayReason, str]], blocked: tuple[Blocked, ...], rules: TrimRules, now_ms: int
) -> str:
    """Return what to tell the operator if the oldest ledger should have gone long ago."""
    for ledger, reason, _ in staying:
        if ledger.closed is None or reason in _NO_ALARM:
            return ""
        if ledger.closed.last_entry_id == NO_ENTRY:
            continue  # The first of a log may be empty: it has no time of its own.
        age_ms = now_ms - ledger.closed.last_entry_ms
        if age_ms <= ALARM_RETENTIONS * rules.retention_ms:
            return ""
        return (
            f"nothing is trimmed: ledger {ledger.ledger_id} ended {_hours(age_ms)} ago, the retention is "
            f"{_hours(rules.retention_ms)}: {blocked[0].text}"
        )
    return ""


def _hours(span_ms: int) -> str:
    if span_ms < _HOUR_MS:
        return f"{span_ms / 1000:g} s"
    return f"{span_ms / _HOUR_MS:.3g} h"
