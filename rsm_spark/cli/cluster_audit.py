"""`rsm cluster audit`: what the auditor has found, when, and a look of it now."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated

import msgspec
import typer

from ledger.cluster_options import ClusterOptions
from ledger.configuration import options_command
from ledger.errors import CorruptMetadataError, RetryableError, UsageError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.replication.audit_records import AUDIT_KINDS, AuditKind, AuditLook, AuditRecord, AuditRecords
from ledger.replication.audit_waiting import wait_for_look
from ledger.replication.election import AuditorElection
from ledger.replication.marks import MarkStore
from ledger.zookeeper.ledgers import LedgerStore
from rsm_spark.cli.cluster_link import cluster_ledgers
from rsm_spark.cli.copies import RUN_ONE
from rsm_spark.cli.terminal import ago, painted, print_json, printable, run

_SHOWN_MAX = 5
_COUNT_WORDS = {"audit": "read", "check": "asked for"}


class AuditState(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `rsm cluster audit`.

    Attributes:
        auditor: Who audits; None = nobody does.
        enabled: Auto-recovery is not switched off for the cluster.
        checked_ms: When all copies were last checked, also by BookKeeper's auditor; None = never.
        audit: Looks at the metadata of all ledgers.
        check: Looks at what the bookies hold of all ledgers.

    """

    auditor: str | None
    enabled: bool
    checked_ms: int | None
    audit: AuditRecord
    check: AuditRecord

    @property
    def is_good(self) -> bool:
        """Somebody audits, and the last looks have found nothing."""
        looks = [record.last for record in (self.audit, self.check) if record.last is not None]
        return self.auditor is not None and self.enabled and bool(looks) and all(one.found_nothing for one in looks)


@options_command
def audit(
    at: ClusterOptions,
    audit: AuditOptions,
    now: Annotated[
        bool, typer.Option("--now", help="Have the auditor look at all ledgers now, and wait until it has.")
    ] = False,
    copies: Annotated[
        bool,
        typer.Option("--copies", help="With --now: have it ask all bookies what they hold, too. It may take hours."),
    ] = False,
    limit_s: Annotated[
        float | None,
        typer.Option("--for", min=0.0, help="Give up waiting after so many seconds; the auditor goes on."),
    ] = None,
) -> None:
    """Tell who audits, when it last looked at all ledgers and what it found; or have it look now.

    The exit code is 0 if somebody audits and the last looks have found nothing, else 1.

    Examples:
        rsm cluster audit

        rsm cluster audit --now --copies --for 600 --json

    """
    if not now and (copies or limit_s is not None):
        raise UsageError("--copies and --for say how to look now: say --now, too")
    kinds: tuple[AuditKind, ...] = AUDIT_KINDS if copies else ("audit",)
    if now:
        with audited_command(audit.audit_file, "rsm cluster audit", " and ".join(kinds), this_operator()):
            state = run(_ask(at, kinds, limit_s))
    else:
        state = run(_look(at))
    if at.json:
        print_json({**msgspec.to_builtins(state), "is_good": state.is_good})
    else:
        typer.echo(painted("\n".join(audit_lines(state, time.time_ns() // 1_000_000)), is_good=state.is_good))
    if not state.is_good:
        raise typer.Exit(1)


def audit_lines(state: AuditState, now_ms: int) -> list[str]:
    """Return what the command tells in words."""
    who = f"auditor {printable(state.auditor)}" if state.auditor else f"nobody audits: {RUN_ONE}"
    off = "" if state.enabled else "; auto-recovery is switched off for the cluster: rsm autorecovery enable"
    lines = [f"{who}{off}"]
    for kind, record in (("audit", state.audit), ("check", state.check)):
        if record.last is None:
            lines.append(f"{kind}: none yet")
        else:
            lines += [f"{kind}: {words}" for words in _ended(kind, record.last, now_ms)]
        if record.running is not None:
            lines.append(f"{kind}: {_running(record.running, state.auditor, now_ms)}")
        if record.problem:
            lines.append(f"{kind}: the last attempt was put off: {printable(record.problem)}")
    if state.check.last is None and state.checked_ms is not None:
        lines.append(f"check: BookKeeper's auditor ended one {ago(state.checked_ms, now_ms)} ago")
    return lines


def _ended(kind: str, look: AuditLook, now_ms: int) -> list[str]:
    ended_ms = look.ended_ms or look.began_ms
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ended_ms / 1000))
    took_s = (ended_ms - look.began_ms) / 1000
    lines = [
        (
            f"{when} ({ago(ended_ms, now_ms)} ago), by {printable(look.by)}: {look.ledger_count:,} ledgers "
            f"{_COUNT_WORDS[kind]} in {took_s:.1f} s, {found_words(look)}"
        )
    ]
    if look.lost:
        lines.append(f"  lost bookies: {_few(look.lost)}")
    if look.drained:
        lines.append(f"  drained bookies: {_few(look.drained)}")
    return lines


def found_words(look: AuditLook) -> str:
    """Return in words what a look has found."""
    parts = []
    if look.lacking_count:
        ids = ", ".join(map(str, look.lacking[:_SHOWN_MAX])) + (", …" if look.lacking_count > _SHOWN_MAX else "")
        parts.append(f"{look.lacking_count:,} lack copies ({ids})")
    if look.short_count:
        parts.append(f"{look.short_count:,} have entries with fewer copies than an acknowledgement needs")
    if look.unreadable_count:
        parts.append(f"{look.unreadable_count:,} have entries that nobody who serves has")
    if look.unread_count:
        parts.append(f"{look.unread_count:,} have damaged metadata")
    if look.silent:
        parts.append(f"bookies did not say what they hold ({_few(look.silent)})")
    if look.marked_count:
        parts.append(f"{look.marked_count:,} newly marked")
    return ", ".join(parts) or "all is as it should be"


def _running(look: AuditLook, auditor: str | None, now_ms: int) -> str:
    if look.by != auditor:
        return f"one of {printable(look.by)} was broken off: it audits no more"
    return f"under way for {ago(look.began_ms, now_ms)}: {look.seen_count:,} of {look.ledger_count:,} ledgers"


def _few(names: tuple[str, ...]) -> str:
    return printable(", ".join(names[:_SHOWN_MAX])) + (", …" if len(names) > _SHOWN_MAX else "")


async def _look(at: ClusterOptions) -> AuditState:
    async with cluster_ledgers(at) as ledgers:
        return await audit_state(ledgers)


async def audit_state(ledgers: LedgerStore) -> AuditState:
    """Return who audits a cluster, and what was found; a damaged record is its problem."""
    await ledgers.store.sync(ledgers.root)
    marks = MarkStore(ledgers.store, ledgers.root, "")
    records = AuditRecords(ledgers.store, ledgers.root)

    async def read(kind: AuditKind) -> AuditRecord:
        try:
            return await records.read(kind)
        except CorruptMetadataError as error:
            return AuditRecord(problem=str(error))

    return AuditState(
        auditor=await AuditorElection(marks).leader(),
        enabled=await marks.is_enabled(),
        checked_ms=await marks.checked_ms(),
        audit=await read("audit"),
        check=await read("check"),
    )


async def _ask(at: ClusterOptions, kinds: tuple[AuditKind, ...], limit_s: float | None) -> AuditState:
    """Have looks made, and wait for them."""
    async with cluster_ledgers(at) as ledgers:
        records = AuditRecords(ledgers.store, ledgers.root)
        try:
            async with asyncio.timeout(limit_s):
                for kind in kinds:
                    request = await records.request(kind)
                    await wait_for_look(ledgers, kind, request, lambda look, kind=kind: _say(kind, look))  # type: ignore[misc]
        except TimeoutError:
            raise RetryableError(
                f"no answer within {limit_s:g} s; the auditor goes on: `rsm cluster audit` tells how far it is"
            ) from None
        return await audit_state(ledgers)


def _say(kind: AuditKind, look: AuditLook) -> None:
    sys.stderr.write(f"rsm cluster: {kind}: {look.seen_count:,} of {look.ledger_count:,} ledgers\n")
    sys.stderr.flush()
