"""`rsm cluster wait`: returns when every bookie is there and no ledger lacks copies, open ones included."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Annotated, Final

import msgspec
import typer

from ledger.cluster_options import ClusterOptions
from ledger.configuration import options_command
from ledger.errors import LedgerError, MetadataSessionLostError, MetadataUnavailableError, RetryableError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.replication.audit_records import AuditLook, AuditRecords
from ledger.replication.audit_waiting import wait_for_look
from ledger.replication.copies_report import CopiesReport, report_copies
from ledger.replication.hints import Hints
from ledger.replication.marks import MarkStore
from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore
from rsm_spark.cli.cluster_audit import found_words
from rsm_spark.cli.cluster_link import cluster_ledgers
from rsm_spark.cli.copies import RUN_ONE, copies_summary
from rsm_spark.cli.terminal import painted, print_json, printable, run

_LOOK_S: Final = 2.0
"""Pause before another look; a bookie that comes or goes ends it."""


class WholeCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Cluster in which nothing is lacking.

    Attributes:
        bookies: Bookies that take entries.
        ledgers: Ledgers of which every bookie was asked what it holds.
        auditor: Who asked.
        covers_open: What is confirmed in open ledgers was asked for, too; an auditor of an older release does not.

    """

    bookies: int
    ledgers: int
    auditor: str
    covers_open: bool


@options_command
def wait(
    at: ClusterOptions,
    audit: AuditOptions,
    limit_s: Annotated[
        float | None, typer.Option("--for", min=0.0, help="Give up after so many seconds, with exit code 6.")
    ] = None,
) -> None:
    """Return when all bookies take entries and hold all of their copies, also of what is confirmed in open ledgers.

    Every bookie with a cookie must be there, drained ones apart. The auditor then asks all bookies what they hold,
    again and again until nothing is lacking. What is lacking is told meanwhile.

    Examples:
        rsm cluster wait

        rsm cluster wait --for 600 --json

    """
    progress = _Progress()
    try:
        with audited_command(audit.audit_file, "rsm cluster wait", "copies of all ledgers", this_operator()):
            found = run(_wait(at, progress, limit_s))
    except RetryableError:
        if at.json:
            print_json({"is_whole": False, "lacking": progress.lacking})
        raise
    if at.json:
        print_json({"is_whole": True, **msgspec.to_builtins(found)})
        return
    typer.echo(
        painted(f"{found.bookies} bookies take entries, and hold all copies of {found.ledgers:,} ledgers", is_good=True)
    )
    if not found.covers_open:
        progress.say(
            f"ends of open ledgers were not asked for: the auditor {found.auditor} is of an older release; wait again "
            "when it is replaced"
        )


class _Progress:
    """Progress of the wait: what is lacking, told whenever it changes.

    Attributes:
        lacking: In words, as it was told last.

    """

    def __init__(self) -> None:
        self.lacking = "nobody has looked yet"

    def tell(self, lacking: str) -> None:
        if lacking != self.lacking:
            self.lacking = lacking
            self.say(lacking)

    def say(self, line: str) -> None:
        sys.stderr.write(f"rsm cluster: {printable(line)}\n")
        sys.stderr.flush()


async def _wait(at: ClusterOptions, progress: _Progress, limit_s: float | None) -> WholeCluster:
    """Wait; a metadata store that goes away, as one that is restarted does, is waited for too."""
    try:
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    async with cluster_ledgers(at) as ledgers:
                        return await wait_until_whole(ledgers, progress.tell)
                except (MetadataUnavailableError, MetadataSessionLostError) as error:
                    progress.tell(str(error))
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise RetryableError(f"after {limit_s:g} s still: {progress.lacking}") from None


async def wait_until_whole(ledgers: LedgerStore, tell: Callable[[str], None]) -> WholeCluster:
    """Wait until nothing is lacking.

    Args:
        ledgers: The cluster.
        tell: Told what is lacking, in words.

    Raises:
        LedgerError: Auto-recovery is switched off for the cluster, or the metadata store does not answer.

    """
    hints = Hints()
    while True:
        lacking = await _lacking(ledgers, hints)
        if not lacking:
            tell("all bookies are asked what they hold")
            try:
                look = await _check(ledgers, tell)
            except RetryableError as error:
                lacking = str(error)
            else:
                lacking = _found(look) or await _lacking(ledgers, hints)
                if not lacking:
                    count = len(await ledgers.writable_bookies())
                    return WholeCluster(
                        bookies=count, ledgers=look.ledger_count, auditor=look.by, covers_open=look.covers_open
                    )
        tell(lacking)
        await hints.wait(_LOOK_S)


async def _lacking(ledgers: LedgerStore, hints: Hints) -> str:
    """Return what the metadata say that is lacking, "" if nothing is; bookies first, for copies come after them."""
    marks = MarkStore(ledgers.store, ledgers.root, "")
    if not await marks.is_enabled(hints):
        raise LedgerError(
            "auto-recovery is switched off for the cluster, so nobody looks for lost copies or makes them: rsm "
            "autorecovery enable"
        )
    await ledgers.writable_bookies(watch=hints.on(paths.available_path(ledgers.root)))
    await ledgers.read_only_bookies(watch=hints.on(paths.read_only_path(ledgers.root)))
    return lacking_words(await report_copies(ledgers), await marks.draining(hints))


def lacking_words(report: CopiesReport, draining: list[str]) -> str:
    """Return in one sentence what a cluster lacks by its metadata; "" if nothing."""
    parts = []
    missing = [one for one in report.missing if one not in draining]
    read_only = [one for one in report.read_only if one not in draining]
    if missing:
        parts.append(f"bookies that do not serve: {', '.join(missing)}")
    if read_only:
        parts.append(f"bookies that are read-only: {', '.join(read_only)}")
    if not report.writable:
        parts.append("no bookie takes entries")
    if report.lacking or report.marked:
        parts.append(f"copies: {copies_summary(report)}")
    if report.unread:
        parts.append(f"ledgers with damaged metadata: {', '.join(map(str, report.unread[:5]))}")
    if report.auditor is None:
        parts.append(f"nobody looks for lost copies: {RUN_ONE}")
    return "; ".join(parts)


def _found(look: AuditLook) -> str:
    """Return in words what a check found, "" if nothing."""
    return "" if look.found_nothing else f"of {look.ledger_count:,} ledgers: {found_words(look)}"


async def _check(ledgers: LedgerStore, tell: Callable[[str], None]) -> AuditLook:
    """Have all bookies asked what they hold; return what that has found."""
    told_s = time.monotonic()

    def on_progress(look: AuditLook) -> None:
        nonlocal told_s
        if look.ledger_count and time.monotonic() - told_s >= 1.0:
            told_s = time.monotonic()
            tell(f"all bookies are asked what they hold: {look.seen_count:,} of {look.ledger_count:,} ledgers")

    request = await AuditRecords(ledgers.store, ledgers.root).request("check")
    return await wait_for_look(ledgers, "check", request, on_progress)
