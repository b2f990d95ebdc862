"""`rsm cluster`: bookies and copies of a cluster, and what is done about a bookie that is gone."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from ledger.cluster_options import ClusterOptions
from ledger.configuration import options_command
from ledger.errors import LedgerError, RetryableError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.replication.copies_report import CopiesReport, report_copies
from ledger.replication.decommission import BookieDecommission, LedgersLeft
from ledger.replication.marks import MarkStore
from ledger.zookeeper.ledgers import LedgerStore
from rsm_spark.cli.cluster_audit import audit as audit_command
from rsm_spark.cli.cluster_bookies import ClusterBookie, look_at_bookies, look_at_cookies
from rsm_spark.cli.cluster_link import cluster_ledgers
from rsm_spark.cli.cluster_placement import placement, set_placement
from rsm_spark.cli.cluster_wait import wait
from rsm_spark.cli.copies import RUN_ONE, copies_facts, painted_copies
from rsm_spark.cli.terminal import print_json, print_rows, printable, run
from rsm_spark.cli.watching import WatchOption, watch

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Look at the bookies and copies of a cluster; take a bookie out.\n\nExample: rsm cluster bookies",
)

_BookieArgument = Annotated[str, typer.Argument(help="The bookie's id, as `rsm cluster bookies` shows it.")]
_Wait = Annotated[bool, typer.Option("--wait", help="Return when it is done; what is left is told meanwhile.")]
_For = Annotated[
    float | None, typer.Option("--for", min=0.0, help="Give up waiting after so many seconds; the work goes on.")
]
_GIB = 1 << 30

app.command(name="audit")(audit_command)
app.command(name="placement")(placement)
app.command(name="set-placement")(set_placement)
app.command(name="wait")(wait)


@app.command()
@options_command
def status(at: ClusterOptions, is_watched: WatchOption = False) -> None:
    """Tell in a few lines whether all bookies serve and all copies are there.

    The exit code is 0 if nothing is lacking, else 1.

    Examples:
        rsm cluster status

        rsm cluster status --watch

    """

    async def look(ledgers: LedgerStore) -> Callable[[], None]:
        report = await report_copies(ledgers)
        return lambda: _show_status(at, report)

    if is_watched:
        watch(lambda: cluster_ledgers(at), look)
        return

    async def work() -> CopiesReport:
        async with cluster_ledgers(at) as ledgers:
            return await report_copies(ledgers)

    report = run(work())
    _show_status(at, report)
    if not report.is_whole or report.missing:
        raise typer.Exit(1)


def _show_status(at: ClusterOptions, report: CopiesReport) -> None:
    if at.json:
        serving = {"writable": list(report.writable), "read_only": list(report.read_only)}
        print_json({**serving, **copies_facts(report), "is_whole": report.is_whole and not report.missing})
    else:
        typer.echo(f"bookies: {len(report.writable)} take entries, {len(report.read_only)} are read-only")
        typer.echo(painted_copies(report))


@app.command()
@options_command
def bookies(at: ClusterOptions) -> None:
    """List the bookies: what each takes, how much room it has, how many ledgers name it.

    Example: rsm cluster bookies --json
    """

    async def work() -> list[ClusterBookie]:
        async with cluster_ledgers(at) as ledgers:
            return await look_at_bookies(ledgers)

    found = run(work())
    if at.json:
        for one in found:
            print_json(msgspec.to_builtins(one))
        return
    print_rows(
        ("bookie", "state", "free GiB", "of GiB", "ledgers", ""),
        [
            (_name(one), one.state, _gib(one.free_bytes), _gib(one.total_bytes), one.ledger_count, one.problem)
            for one in found
        ],
        right=(2, 3, 4),
    )


@app.command(name="under-replicated")
@options_command
def under_replicated(at: ClusterOptions) -> None:
    """List the ledgers that lack copies now, whether an auditor has noticed or not.

    Example: rsm cluster under-replicated
    """

    async def work() -> CopiesReport:
        async with cluster_ledgers(at) as ledgers:
            return await report_copies(ledgers)

    report = run(work())
    marked = frozenset(report.marked)
    found = [
        {
            **msgspec.to_builtins(one),
            "is_marked": one.ledger_id in marked,
            "worker": report.worked_on.get(one.ledger_id),
        }
        for one in report.lacking
    ]
    if at.json:
        for line in found:
            print_json(line)
        return
    if not found:
        typer.echo(f"all of {report.ledger_count} ledgers have all of their copies on bookies that serve")
    else:
        print_rows(
            ("ledger", "entries", "fewest copies", "lacking on", "worked on by"),
            [
                (
                    line["ledger_id"],
                    f"{line['entry_count']:,}{'+' if line['is_being_written'] else ''}",
                    line["copies_min"],
                    ", ".join(line["bookie_ids"]),
                    line["worker"] or ("marked" if line["is_marked"] else "nobody yet"),
                )
                for line in found
            ],
            right=(0, 1, 2),
        )
    for ledger_id in report.unread:
        typer.echo(f"the metadata of ledger {ledger_id} are damaged: nobody can tell what it lacks")


@app.command()
@options_command
def cookies(at: ClusterOptions) -> None:
    """List the cookies: which disks belong to which bookie id, and whether the bookie serves.

    Example: rsm cluster cookies
    """

    async def work() -> list[dict[str, Any]]:
        async with cluster_ledgers(at) as ledgers:
            return await look_at_cookies(ledgers)

    found = run(work())
    for line in found:
        if at.json:
            print_json(line)
        elif line["problem"]:
            typer.echo(f"{printable(line['bookie_id'])}: {printable(line['problem'])}")
        else:
            serves = "serves" if line["serves"] else "does not serve"
            disks = ", ".join(line["ledger_dirs"])
            typer.echo(
                printable(f"{line['bookie_id']}: {serves}; journal {line['journal_dirs']}; ledgers {disks}")
                + printable(f"; cluster {line['instance_id']}")
            )
    if not found and not at.json:
        typer.echo("there are no cookies: no bookie has served in this cluster")


@app.command()
@options_command
def recover(
    bookie: _BookieArgument, at: ClusterOptions, audit: AuditOptions, wait: _Wait = False, limit_s: _For = None
) -> None:
    """Have what a lost bookie held copied to others at once, without the cluster's delay.

    The bookie must not serve. Its cookie stays: it may come back.

    Example: rsm cluster recover 10.0.0.3:3181 --wait
    """
    with audited_command(audit.audit_file, "rsm cluster recover", f"bookie {bookie}", this_operator()):
        left = run(_give_away(at, bookie, wait=wait, limit_s=limit_s))
    if at.json:
        print_json(msgspec.to_builtins(left))
    elif left.ledger_ids:
        typer.echo(_marked(left))
    elif not left.unread:
        typer.echo(f"no ledger names bookie {printable(bookie)} any more")
    _end_unless_done(left, was_awaited=wait)


@app.command()
@options_command
def drain(
    bookie: _BookieArgument,
    at: ClusterOptions,
    audit: AuditOptions,
    wait: _Wait = False,
    limit_s: _For = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the order back: the bookie takes entries again.")] = False,
) -> None:
    """Empty a bookie while it serves: it takes no more entries, and others get what it holds.

    The order stands over restarts of the bookie. No entry lacks a copy meanwhile. When it is done, stop the bookie and
    decommission it.

    Examples:
        rsm cluster drain 10.0.0.3:3181 --wait

        rsm cluster drain 10.0.0.3:3181 --undo

    """
    what = f"bookie {bookie}{', taken back' if undo else ''}"
    with audited_command(audit.audit_file, "rsm cluster drain", what, this_operator()):
        if undo:
            was_given = run(_undo_drain(at, bookie))
            if not was_given:
                raise LedgerError(f"bookie {bookie}: there is no order to drain it")
            left = LedgersLeft(bookie, ())
        else:
            left = run(_give_away(at, bookie, wait=wait, limit_s=limit_s, is_drain=True))
    if at.json:
        print_json({**msgspec.to_builtins(left), "draining": not undo})
    elif undo:
        typer.echo(f"bookie {printable(bookie)} is drained no more, and takes entries again")
    elif left.ledger_ids:
        typer.echo(f"bookie {printable(bookie)} takes no more entries; {_marked(left)}")
    elif not left.unread:
        typer.echo(
            f"bookie {printable(bookie)} takes no more entries, and no ledger names it any more: it may be stopped"
        )
    _end_unless_done(left, was_awaited=wait)


async def _undo_drain(at: ClusterOptions, bookie_id: str) -> bool:
    async with cluster_ledgers(at) as ledgers:
        return await MarkStore(ledgers.store, ledgers.root, "").set_draining(bookie_id, is_draining=False)


@app.command()
@options_command
def decommission(
    bookie: _BookieArgument, at: ClusterOptions, audit: AuditOptions, wait: _Wait = False, limit_s: _For = None
) -> None:
    """Take a bookie out for good: what it held is copied to others, then its cookie is deleted.

    Stop the bookie first. Broken off, or without --wait, the same command goes on with it later.

    Example: rsm cluster decommission 10.0.0.3:3181 --wait
    """
    with audited_command(audit.audit_file, "rsm cluster decommission", f"bookie {bookie}", this_operator()):
        left = run(_give_away(at, bookie, wait=wait, limit_s=limit_s))
        is_deleted = not left.ledger_ids and not left.unread and run(_delete_cookie(at, bookie))
    if at.json:
        print_json({**msgspec.to_builtins(left), "cookie_deleted": is_deleted})
    elif left.ledger_ids:
        typer.echo(f"{_marked(left)}; give this command again when they are copied: then its cookie is deleted")
    elif not left.unread:
        gone = "its cookie is deleted" if is_deleted else "it has no cookie"
        typer.echo(f"no ledger names bookie {printable(bookie)} any more, and {gone}")
    _end_unless_done(left, was_awaited=wait)


def _name(bookie: ClusterBookie) -> str:
    """Return the id; the address too, if the id does not say it."""
    at = "" if bookie.address in (None, bookie.bookie_id) else f" at {bookie.address}"
    return f"{bookie.bookie_id}{at}"


def _marked(left: LedgersLeft) -> str:
    return f"{len(left.ledger_ids)} ledgers that name bookie {printable(left.bookie_id)} are marked to be copied"


def _end_unless_done(left: LedgersLeft, *, was_awaited: bool) -> None:
    if left.unread:
        ids = ", ".join(map(str, left.unread[:5]))
        raise LedgerError(f"the metadata of ledgers {ids} are damaged: they may name bookie {left.bookie_id}")
    if was_awaited and left.ledger_ids:
        raise RetryableError(
            f"{len(left.ledger_ids)} ledgers still name bookie {left.bookie_id}, {left.ledger_ids[0]} for one; "
            "`rsm cluster under-replicated` shows who works on them"
        )


async def _give_away(
    at: ClusterOptions, bookie_id: str, *, wait: bool, limit_s: float | None, is_drain: bool = False
) -> LedgersLeft:
    """Have what a bookie holds marked, and wait if that is wanted; return what is left."""
    async with cluster_ledgers(at) as ledgers:
        work = BookieDecommission(ledgers, bookie_id, wall_ms=_wall_ms, is_drain=is_drain)
        left = await work.begin()
        if left.ledger_ids:
            report = await report_copies(ledgers, is_thorough=False)
            if report.auditor is None:
                _say(f"nobody copies what bookie {bookie_id} holds: {RUN_ONE}")
        return await _wait(work, left, limit_s) if wait else left


async def _delete_cookie(at: ClusterOptions, bookie_id: str) -> bool:
    async with cluster_ledgers(at) as ledgers:
        return await BookieDecommission(ledgers, bookie_id, wall_ms=_wall_ms).end()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def _wait(work: BookieDecommission, left: LedgersLeft, limit_s: float | None) -> LedgersLeft:
    begun = len(left.ledger_ids)
    said_s = 0.0

    def tell(now: LedgersLeft) -> None:
        nonlocal left, said_s
        left = now
        at_s = time.monotonic()
        if at_s - said_s >= 1.0:
            said_s = at_s
            _say(f"{len(now.ledger_ids)} of {begun} ledgers still name bookie {now.bookie_id}")

    try:
        async with asyncio.timeout(limit_s):
            return await work.wait(left, tell)
    except TimeoutError:
        return left


def _say(line: str) -> None:
    sys.stderr.write(f"rsm cluster: {printable(line)}\n")
    sys.stderr.flush()


def _gib(amount: int | None) -> str:
    return "?" if amount is None else f"{amount / _GIB:.1f}"
