"""`rsm status`: who leads, how far each replica is, what is verified, what may be trimmed, which bookies are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.client.client import LedgerClient
from ledger.configuration import options_command
from ledger.errors import LedgerError, MetadataUnavailableError
from ledger.replication.copies_report import report_copies
from rsm_spark.cli.copies import copies_facts, painted_copies
from rsm_spark.cli.log import log_names
from rsm_spark.cli.log_machines import LogMachines
from rsm_spark.cli.markup import plain
from rsm_spark.cli.terminal import LogsOptions, print_json, printable, run
from rsm_spark.cli.watching import WatchOption, watch
from rsm_spark.core.plain_log import PLAIN_LOG
from rsm_spark.errors import ConnectionLostError, NoSuchLogError, RsmError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.forgetting import forgotten_log
from rsm_spark.log.member import Member
from rsm_spark.transport.channel import ReplicaChannel

_TIMEOUT_S = 2.0


@options_command
def status(
    at: LogsOptions,
    log: Annotated[
        str | None, typer.Option("--log", envvar="RSM_LOG", help="One log.", show_default="all of them")
    ] = None,
    is_watched: WatchOption = False,
) -> None:
    """Show copies that are lacking; leader, replicas, lag, snapshots, what may be trimmed, alarms, bookies.

    Examples:
        rsm status

        rsm status --log orders --json

        rsm status --watch

    """

    @asynccontextmanager
    async def _connect() -> AsyncIterator[LedgerClient]:
        async with await at.connect_ledgers() as client:
            yield client

    async def _look(client: LedgerClient) -> Callable[[], None]:
        shown = await _look_at(client, at, log)
        return partial(_show, shown)

    async def _status() -> None:
        async with _connect() as client:
            (await _look(client))()

    if is_watched:
        watch(_connect, _look)
    else:
        run(_status())


def _show(shown: list[Callable[[], None]]) -> None:
    for one in shown:
        one()


async def _look_at(client: LedgerClient, at: LogsOptions, log: str | None) -> list[Callable[[], None]]:
    """Ask; return what prints the answers."""
    report = await report_copies(client.ledgers, is_thorough=False)
    bookies = list(report.writable)
    names = await log_names(client, at.rsm_root) if log is None else [log]
    shown: list[Callable[[], None]] = []
    if not at.json and not names:
        shown.append(lambda: typer.echo(f"no logs; bookies: {', '.join(bookies) or 'none'}"))
    if not at.json:
        shown.append(lambda: typer.echo(painted_copies(report)))
    for name in names:
        try:
            found = await describe_log(client, name, at.rsm_root, bookies)
        except (LedgerError, RsmError) as error:
            if log is not None or isinstance(error, MetadataUnavailableError):
                raise
            if not isinstance(error, NoSuchLogError):  # It has just been deleted.
                shown.append(partial(typer.echo, f"{name}: not shown: {error}", err=True))
            continue
        if at.json:
            shown.append(partial(print_json, {**found, "copies": copies_facts(report)}))
        else:
            shown.append(partial(_print, found))
    return shown


async def describe_log(
    client: LedgerClient,
    log: str,
    rsm_root: str,
    bookies: list[str],
    ask: Callable[[str, Member], Awaitable[dict[str, Any]]] | None = None,
    machines: LogMachines | None = None,
) -> dict[str, Any]:
    """Return what `rsm status --json` says of one log.

    Args:
        client: Connected.
        log: Name of the log.
        rsm_root: Root of the logs.
        bookies: Those that take entries, to be told.
        ask: Returns what a replica says of itself; None = each is asked over a connection of its own.
        machines: Remembers of which machines logs are that no replica tells of; None = it is read.

    Raises:
        NoSuchLogError: There is no such log.
        MetadataError: The metadata store cannot be asked.

    """
    chain, _ = await ChainStore(client.store, log, rsm_root).read()
    members = await Discovery(client.store, log, rsm_root).members()
    forgotten = None if members else await forgotten_log(client.store, log, chain, rsm_root)
    replicas = await asyncio.gather(*((ask or ask_replica)(log, member) for member in members))
    leader = next((replica for replica in replicas if replica.get("role") == "leader"), None)
    revision = max((replica.get("revision", 0) for replica in replicas), default=0)
    for replica in replicas:
        if "revision" in replica:
            replica["behind"] = revision - replica["revision"]
    machine = next((one["machine"] for one in replicas if one.get("machine")), None)
    is_plain = False
    if machine is None:
        machine = await (machines or LogMachines(client, rsm_root)).name_of(log, chain.log_id) or None
        is_plain = machine == PLAIN_LOG.name
    return {
        "log": log,
        "log_id": chain.log_id,
        "leader_epoch": chain.leader_epoch,
        "leader": leader["replica_id"] if leader is not None else None,
        "leader_address": leader["address"] if leader is not None else None,
        "revision": revision,
        "ledgers": len(chain.ledgers),
        "deleting": len(chain.deleting),
        "verified": leader["verified"] if leader is not None else {},
        "trim": leader["trim"] if leader is not None else None,
        "machine": machine,
        "is_plain": is_plain,
        "log_version": max((one.get("log_version", 0) for one in replicas), default=0),
        "alarms": [f"{one['replica_id']}: {alarm}" for one in replicas for alarm in one.get("alarms", ())],
        "replicas": replicas,
        "forgotten": None if forgotten is None else msgspec.to_builtins(forgotten),
        "bookies": bookies,
    }


async def ask_replica(log: str, member: Member) -> dict[str, Any]:
    """Return what a replica says of itself, or the error why it does not."""
    if not member.address:
        return {"replica_id": member.replica_id, "address": "", "error": "serves no clients"}
    async with ReplicaChannel(member.address, log) as channel:
        return await ask_over(channel, member)


async def ask_over(channel: ReplicaChannel, member: Member) -> dict[str, Any]:
    """Return the same, over a channel that is there."""
    known: dict[str, Any] = {"replica_id": member.replica_id, "address": member.address}
    try:
        said: dict[str, Any] = msgspec.json.decode(await channel.status(_TIMEOUT_S))
    except ConnectionLostError as error:
        return {**known, "error": str(error)}
    return {**said, **known}


def _print(found: dict[str, Any]) -> None:
    console = Console()
    if found["is_plain"]:
        writers = ", ".join(plain(one["replica_id"]) for one in found["replicas"]) or "nobody now"
        console.print(
            f"plain log [bold]{plain(found['log'])}[/bold]: written by {writers}, epoch {found['leader_epoch']}, "
            f"{found['ledgers']} ledgers",
            highlight=False,
            soft_wrap=True,
        )
        return
    leader = plain(found["leader"]) if found["leader"] else "[bold red]nobody[/bold red]"
    bookies = ", ".join(map(plain, found["bookies"])) or "none"
    console.print(
        f"log [bold]{plain(found['log'])}[/bold]: epoch {found['leader_epoch']}, led by {leader}, revision "
        f"{found['revision']:,}, {found['ledgers']} ledgers; bookies: {bookies}",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(box=None)
    for title in ("replica", "role", "address", "revision", "behind", "age", "rows", "snapshots"):
        table.add_column(title, no_wrap=title != "snapshots", overflow="fold")
    for replica in found["replicas"]:
        if "error" in replica:
            error = Text(printable(replica["error"]), style="red")
            table.add_row(plain(replica["replica_id"]), "?", plain(replica["address"]), error)
            continue
        snapshots = ", ".join(f"{one['revision']:,}" for one in replica["snapshots"]) or "none"
        if replica["damaged_snapshots"]:
            snapshots += f" ({len(replica['damaged_snapshots'])} damaged)"
        table.add_row(
            plain(replica["replica_id"]),
            plain(replica["role"]),
            plain(replica["address"]),
            f"{replica['revision']:,}",
            f"{replica['behind']:,}",
            f"{replica['lag_ms'] / 1000:.1f} s" if replica["logged_ms"] else "-",
            f"{replica['row_count']:,}",
            snapshots,
        )
    console.print(table)
    for line in _upkeep_lines(found):
        console.print(line, highlight=False, soft_wrap=True)


def _upkeep_lines(found: dict[str, Any]) -> list[str]:
    """Say what is verified and what may go, and what an operator has to look at, as markup."""
    verified = ", ".join(f"{plain(place)} up to {revision:,}" for place, revision in found["verified"].items())
    lines = [f"verified snapshots: {verified or 'none'}"]
    if found["forgotten"] is not None:
        lines.append(f"nobody is to serve it any more, as {plain(found['forgotten']['by'])} said (rsm doctor --forget)")
    if mixed := mixed_versions(found):
        lines.append(plain(mixed))
    trim = found["trim"]
    if trim is not None:
        count = len(trim["ledger_ids"])
        lines.append(f"may be trimmed: {count} of {found['ledgers']} ledgers")
        lines += [plain(_stays(blocked)) for blocked in trim["blocked"]]
    return lines + [f"[bold red]alarm[/bold red] {plain(alarm)}" for alarm in found["alarms"]]


def mixed_versions(found: Mapping[str, Any]) -> str:
    """Say which replica runs which version of the machine, where one is not that of the log; "" = all are."""
    versions = {one["replica_id"]: one["machine_version"] for one in found["replicas"] if one.get("machine_version")}
    if set(versions.values()) <= {found.get("log_version")}:
        return ""
    said = ", ".join(f"{name} runs version {version}" for name, version in versions.items())
    return f"the log is of version {found['log_version']} of machine {found['machine']}: {said}"


def _stays(blocked: dict[str, Any]) -> str:
    first, last = blocked["first_ledger_id"], blocked["last_ledger_id"]
    ledgers = f"ledger {first} stays" if blocked["ledger_count"] == 1 else f"ledgers {first} to {last} stay"
    return f"  {ledgers}: {blocked['text']}"
