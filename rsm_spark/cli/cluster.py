"""`rsm cluster`: bookies and copies of a cluster, and what is done about a bookie that is gone."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
import typer

from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.cluster_options import ClusterOptions
from ledger.configuration import options_command
from ledger.errors import CorruptMetadataError, LedgerError, NoNodeError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.replication.copies_report import CopiesReport, report_copies
from ledger.replication.core.repair_plan import named_bookies
from ledger.replication.decommission import BookieDecommission, LedgersLeft
from ledger.replication.metadata_reading import read_each
from ledger.replication.questions import disk_space
from ledger.wire import paths
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import read_cookie
from ledger.zookeeper.session import connect
from ledger.zookeeper.uri import MetadataUri
from rsm_spark.cli.copies import RUN_ONE, copies_facts, copies_lines
from rsm_spark.cli.terminal import print_json, print_rows, printable, run

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


class ClusterBookie(msgspec.Struct, frozen=True, kw_only=True):
    """One bookie as `rsm cluster bookies` tells it.

    Attributes:
        bookie_id: Its id.
        state: "writable", "read-only" or "missing".
        total_bytes: Size of its ledger disks; None if it does not say.
        free_bytes: Free of it.
        ledger_count: Ledgers that name it.
        problem: Why it does not say how much room it has; "" if it does, or is missing.

    """

    bookie_id: str
    state: str
    total_bytes: int | None
    free_bytes: int | None
    ledger_count: int
    problem: str = ""


@app.command()
@options_command
def status(at: ClusterOptions) -> None:
    """Tell in a few lines whether all bookies serve and all copies are there.

    The exit code is 0 if nothing is lacking, else 1.
    """

    async def work() -> CopiesReport:
        async with _ledgers(at) as ledgers:
            return await report_copies(ledgers)

    report = run(work())
    if at.json:
        serving = {"writable": list(report.writable), "read_only": list(report.read_only)}
        print_json({**serving, **copies_facts(report), "is_whole": report.is_whole and not report.missing})
    else:
        typer.echo(f"bookies: {len(report.writable)} take entries, {len(report.read_only)} are read-only")
        typer.echo("\n".join(copies_lines(report)))
    if not report.is_whole or report.missing:
        raise typer.Exit(1)


@app.command()
@options_command
def bookies(at: ClusterOptions) -> None:
    """List the bookies: what each takes, how much room it has, how many ledgers name it.

    Example: rsm cluster bookies --json
    """

    async def work() -> list[ClusterBookie]:
        async with _ledgers(at) as ledgers:
            return await _look_at_bookies(ledgers)

    found = run(work())
    if at.json:
        for one in found:
            print_json(msgspec.to_builtins(one))
        return
    print_rows(
        ("bookie", "state", "free GiB", "of GiB", "ledgers", ""),
        [
            (one.bookie_id, one.state, _gib(one.free_bytes), _gib(one.total_bytes), one.ledger_count, one.problem)
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
        async with _ledgers(at) as ledgers:
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
        async with _ledgers(at) as ledgers:
            return await _look_at_cookies(ledgers)

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

    The bookie must not serve. Its cookie stays: it may come back. Auto-recovery does the work.

    Example: rsm cluster recover 10.0.0.3:3181 --wait
    """
    with audited_command(audit.audit_file, "rsm cluster recover", f"bookie {bookie}", this_operator()):
        left, _ = run(_give_away(at, bookie, wait=wait, limit_s=limit_s, is_last=False))
    if at.json:
        print_json(msgspec.to_builtins(left))
    elif not left.ledger_ids:
        typer.echo(f"no ledger names bookie {printable(bookie)} any more")
    else:
        typer.echo(
            f"{len(left.ledger_ids)} ledgers that name bookie {printable(bookie)} are marked: auto-recovery works"
        )
    _end_unless_done(left, was_awaited=wait)


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
        left, is_deleted = run(_give_away(at, bookie, wait=wait, limit_s=limit_s, is_last=True))
    if at.json:
        print_json({**msgspec.to_builtins(left), "cookie_deleted": is_deleted})
    elif left.ledger_ids:
        typer.echo(
            f"{len(left.ledger_ids)} ledgers that name bookie {printable(bookie)} are marked; give this command again "
            "when they are copied: then its cookie is deleted"
        )
    elif not left.unread:
        gone = "its cookie is deleted" if is_deleted else "it has no cookie"
        typer.echo(f"no ledger names bookie {printable(bookie)} any more, and {gone}")
    _end_unless_done(left, was_awaited=wait)


def _end_unless_done(left: LedgersLeft, *, was_awaited: bool) -> None:
    if left.unread:
        ids = ", ".join(map(str, left.unread[:5]))
        raise LedgerError(f"the metadata of ledgers {ids} are damaged: they may name bookie {left.bookie_id}")
    if was_awaited and left.ledger_ids:
        raise LedgerError(
            f"{len(left.ledger_ids)} ledgers still name bookie {left.bookie_id}, {left.ledger_ids[0]} for one; "
            "`rsm cluster under-replicated` shows who works on them"
        )


async def _give_away(
    at: ClusterOptions, bookie_id: str, *, wait: bool, limit_s: float | None, is_last: bool
) -> tuple[LedgersLeft, bool]:
    """Mark, wait if that is wanted, and delete the cookie if it is the last of the bookie."""
    async with _ledgers(at) as ledgers:
        work = BookieDecommission(ledgers, bookie_id)
        left = await work.begin(time.time_ns() // 1_000_000)
        if left.ledger_ids:
            report = await report_copies(ledgers, is_thorough=False)
            if report.auditor is None:
                _say(f"nobody copies what bookie {bookie_id} held: {RUN_ONE}")
        if wait and left.ledger_ids:
            left = await _wait(work, left, limit_s)
        is_deleted = is_last and not left.ledger_ids and not left.unread and await work.end()
        return left, is_deleted


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


async def _look_at_bookies(ledgers: LedgerStore) -> list[ClusterBookie]:
    await ledgers.store.sync(ledgers.root)
    states = dict.fromkeys(await ledgers.writable_bookies(), "writable")
    states.update(dict.fromkeys(await ledgers.read_only_bookies(), "read-only"))
    counts: dict[str, int] = {}
    async for _, metadata in read_each(ledgers, await ledgers.list()):
        for bookie_id in [] if metadata is None else named_bookies(metadata):
            counts[bookie_id] = counts.get(bookie_id, 0) + 1
    rng = random.Random()  # noqa: S311 - spreads load, guards nothing
    pool = ConnectionPool(ledgers.bookie_address, rng, ClientSettings.from_environment())
    try:
        rooms = await disk_space(pool, list(states))
    finally:
        await pool.close()
    found: list[ClusterBookie] = []
    for bookie_id in sorted({*states, *counts, *await _cookie_ids(ledgers)}):
        room = rooms.get(bookie_id, "")
        total_bytes, free_bytes = (None, None) if isinstance(room, str) else (room.total_bytes, room.free_bytes)
        found.append(
            ClusterBookie(
                bookie_id=bookie_id,
                state=states.get(bookie_id, "missing"),
                total_bytes=total_bytes,
                free_bytes=free_bytes,
                ledger_count=counts.get(bookie_id, 0),
                problem=room if isinstance(room, str) else "",
            )
        )
    return found


async def _look_at_cookies(ledgers: LedgerStore) -> list[dict[str, Any]]:
    serving = {*await ledgers.writable_bookies(), *await ledgers.read_only_bookies()}
    found: list[dict[str, Any]] = []
    for bookie_id in await _cookie_ids(ledgers):
        try:
            cookie = await read_cookie(ledgers.store, ledgers.root, bookie_id)
        except CorruptMetadataError as error:
            found.append({"bookie_id": bookie_id, "serves": bookie_id in serving, "problem": str(error)})
            continue
        if cookie is not None:
            facts = msgspec.to_builtins(cookie)
            found.append({**facts, "bookie_id": bookie_id, "serves": bookie_id in serving, "problem": ""})
    return found


async def _cookie_ids(ledgers: LedgerStore) -> list[str]:
    try:
        return sorted(await ledgers.store.children(paths.cookie_path(ledgers.root)))
    except NoNodeError:
        return []


@asynccontextmanager
async def _ledgers(at: ClusterOptions) -> AsyncIterator[LedgerStore]:
    uri = MetadataUri.of(at.metadata_uri)
    store = await connect(uri.hosts)
    try:
        ledgers = LedgerStore(store, uri.ledgers_root)
        await ledgers.writable_bookies()  # Complains if there is no cluster.
        yield ledgers
    finally:
        await store.close()


def _gib(amount: int | None) -> str:
    return "?" if amount is None else f"{amount / _GIB:.1f}"
