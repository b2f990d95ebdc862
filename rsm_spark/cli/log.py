"""`rsm log …`: replicated logs from the command line.

What is shown is read from ZooKeeper and the bookies alone; what changes a log is asked of its leader.
"""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import msgspec
import typer

from ledger.client.client import LedgerClient
from ledger.configuration import options_command
from ledger.errors import MetadataDeniedError, NoNodeError
from rsm_spark.cli.log_consumers import app as consumers_app
from rsm_spark.cli.log_consumers import described_consumers, tell_consumer
from rsm_spark.cli.log_delete import delete
from rsm_spark.cli.log_detach import detach
from rsm_spark.cli.log_fork import fork
from rsm_spark.cli.log_key import app as key_app
from rsm_spark.cli.log_leaders import leaders
from rsm_spark.cli.log_partitions import list_partitioned, show_partitioned
from rsm_spark.cli.log_plain import append, create, grow, tail, truncate
from rsm_spark.cli.log_proof import quarantine, verify
from rsm_spark.cli.log_rename import rename
from rsm_spark.cli.log_requests import OrderOptions, give_order
from rsm_spark.cli.log_serve import serve
from rsm_spark.cli.log_upgrade import check_upgrade_command
from rsm_spark.cli.log_writer import app as writer_app
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, run, shown, size_words
from rsm_spark.core.chain import LogChain, encode_chain
from rsm_spark.core.records import FORMAT_LEVEL
from rsm_spark.errors import NoSuchLogError
from rsm_spark.log.admin_requests import RaiseFormatRequest, RaiseVersionRequest, TrimRequest
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import LogConsumers
from rsm_spark.log.described_records import log_rows
from rsm_spark.log.partition_names import is_partitioned
from rsm_spark.log.partition_names import log_names as all_names
from rsm_spark.log.sharing import SharedLedgers

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List, describe and print replicated logs; have their leader trim them.",
    pretty_exceptions_enable=False,
)
app.add_typer(key_app, name="key")
app.add_typer(consumers_app, name="consumers")
app.add_typer(writer_app, name="writer")
app.command()(create)
app.command()(append)
app.command()(grow)
app.command()(tail)
app.command()(truncate)
app.command()(serve)
app.command()(leaders)
app.command()(verify)
app.command()(quarantine)
app.command()(delete)
app.command()(fork)
app.command()(detach)
app.command()(rename)
app.command("check-upgrade")(check_upgrade_command)


async def log_names(client: LedgerClient, rsm_root: str) -> list[str]:
    """Return the names of all logs, sorted."""
    try:
        return await client.store.children(f"{rsm_root}/logs")
    except NoNodeError:
        return []


@app.command("list")
@options_command
def list_logs(
    at: LogsOptions,
    prefix: Annotated[str, typer.Option("--prefix", help="Only those whose names begin so.")] = "",
) -> None:
    """List the logs.

    Examples:
        rsm log list --prefix click

        rsm log list --json

    """

    async def _list() -> None:
        async with await at.connect_ledgers() as client:
            for name in await all_names(client.store, at.rsm_root):
                if not name.startswith(prefix):
                    continue
                if await is_partitioned(client.store, name, at.rsm_root):
                    await list_partitioned(client.store, name, at.rsm_root, as_json=at.json)
                    continue
                try:
                    chain, _ = await ChainStore(client.store, name, at.rsm_root).read()
                except NoSuchLogError:
                    continue  # It has just been deleted.
                except MetadataDeniedError as error:
                    typer.echo(f"{name}: not shown: {error}", err=True)
                    continue
                if at.json:
                    print_json(_summary(name, chain))
                else:
                    if chain.unfinished:
                        typer.echo(f"{name}: unfinished: {chain.unfinished} is making it")
                        continue
                    leader = chain.leader.replica_id if chain.leader is not None else "nobody"
                    typer.echo(f"{name}: {len(chain.ledgers)} ledgers, epoch {chain.leader_epoch}, led by {leader}")

    run(_list())


def _summary(name: str, chain: LogChain) -> dict[str, Any]:
    return {
        "log": name,
        "log_id": chain.log_id,
        "leader_epoch": chain.leader_epoch,
        "leader": chain.leader.replica_id if chain.leader is not None else None,
        "format_level": chain.format_level,
        "ledgers": len(chain.ledgers),
        "deleting": list(chain.deleting),
        "key_id": chain.key_id,
        "quarantined": [msgspec.to_builtins(entry) for entry in chain.quarantined],
        "unfinished": chain.unfinished,
        "shared": sum(bool(ledger.log_id) for ledger in chain.ledgers),
        "origins": [msgspec.to_builtins(origin) for origin in chain.origins],
        "first_revision": chain.ledgers[0].first_revision if chain.ledgers else None,
    }


@app.command()
@options_command
def info(log: LogArgument, at: LogsOptions) -> None:
    """Describe a log: its ledgers, in order, who leads it, and who holds it.

    Examples:
        rsm log info orders

        rsm log info orders --json

    """

    async def _info() -> None:
        async with await at.connect_ledgers() as client:
            if await is_partitioned(client.store, log, at.rsm_root):
                await show_partitioned(client.store, log, at.rsm_root, as_json=at.json)
                return
            chain, version = await ChainStore(client.store, log, at.rsm_root).read()
            ledgers = []
            for item in chain.ledgers:
                metadata = await client.metadata(item.ledger_id)
                described = msgspec.to_builtins(item)
                if item.closed is not None:
                    described["closed"]["length_bytes"] = item.closed.length  # `length` is for scripts of before.
                described["state"] = metadata.state.name
                described["bookies"] = list(metadata.segments[-1].bookies)
                ledgers.append(described)
            described = {
                **_summary(log, chain),
                "chain_version": version,
                "chain_bytes": len(encode_chain(chain)),
                "ledgers": ledgers,
            }
            users = await SharedLedgers(client, chain.log_id, at.rsm_root).users()
            described["used_by"] = [msgspec.to_builtins(user) for user in users]
            consumers = await LogConsumers(client.store, chain.log_id, at.rsm_root).present()
            described["consumers"] = described_consumers(chain, consumers, time.time_ns() // 1_000_000)
            described["whole"] = bool(chain.ledgers) and chain.is_whole
            if at.json:
                print_json(described)
            else:
                _print_info(described)

    run(_info())


def _print_info(described: dict[str, Any]) -> None:
    typer.echo(f"log {described['log']}, id {described['log_id']}")
    typer.echo(f"epoch {described['leader_epoch']}, led by {described['leader'] or 'nobody'}")
    typer.echo(f"format level {described['format_level']}")
    typer.echo(f"sealed with key {described['key_id']}" if described["key_id"] else "without a key: nothing is sealed")
    for origin in described["origins"]:
        whose = f"log {origin['log']} with id {origin['log_id']}"
        typer.echo(f"up to revision {origin['revision']} it is {whose}, taken from {origin['source']}")
    if described["unfinished"]:
        typer.echo(f"unfinished: {described['unfinished']} is making it; rsm log delete undoes what was cut off")
    if described["shared"]:
        typer.echo(f"{described['shared']} of its ledgers are of those logs, and shared with them")
    for user in described["used_by"]:
        if user["ledger_ids"]:
            typer.echo(f"log {user['log']} with id {user['log_id']} uses {len(user['ledger_ids'])} of its ledgers")
    for consumer in described["consumers"]:
        tell_consumer(consumer)
    for entry in described["quarantined"]:
        typer.echo(f"ledger {entry['ledger_id']} entry {entry['entry_id']} is set aside: {entry['reason']}")
    if described["ledgers"] and not described["whole"]:
        typer.echo("its beginning has been trimmed: a new replica needs a snapshot")
    for item in described["ledgers"]:
        closed = item.get("closed")
        last = "…" if closed is None else closed["last_revision"]
        size = "" if closed is None else f", {size_words(closed['length'])}"
        bookies = ", ".join(item["bookies"])
        revisions = f"revisions {item['first_revision']} to {last}"
        typer.echo(f"  ledger {item['ledger_id']}: {revisions}, {item['state']}{size}, {bookies}")


@app.command()
@options_command
def trim(
    log: LogArgument,
    at: LogsOptions,
    order: OrderOptions,
    accept_unverified: Annotated[
        bool,
        typer.Option(
            "--accept-unverified",
            help="Take the leader's own newest snapshot for good, although nobody has verified it. If it is not, "
            "what is trimmed is lost.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go, and why the rest stays.")] = False,
) -> None:
    """Have the leader trim what may go now, and say why the rest stays.

    Exit code 0 also when nothing may go; 6 if the leader does not answer.

    Examples:
        rsm log trim orders --dry-run

        rsm log trim orders --accept-unverified

    """
    request = TrimRequest(accept_unverified=accept_unverified, is_dry_run=dry_run)
    how = msgspec.structs.replace(order, audit_file=None) if dry_run else order
    answer = give_order(log, request, at, how, "rsm log trim")
    if at.json:
        print_json({"log": log, **answer})
    else:
        _print_trim(log, answer, is_dry_run=dry_run)


def _print_trim(log: str, answer: dict[str, Any], *, is_dry_run: bool) -> None:
    gone = answer["ledger_ids"]
    verb = "would go" if is_dry_run else "went"
    if gone:
        typer.echo(
            f"log {log}: {len(gone)} ledgers {verb} ({gone[0]} to {gone[-1]}), {answer['length']:,} bytes, "
            f"up to revision {answer['last_revision']}"
        )
    else:
        typer.echo(f"log {log}: nothing {verb}")
    for row in answer["blocked"]:
        first, last, count = row["first_ledger_id"], row["last_ledger_id"], row["ledger_count"]
        ledgers = f"ledger {first} stays" if count == 1 else f"{count} ledgers, {first} to {last}, stay"
        typer.echo(f"  {ledgers} ({row['reason']}): {row['text']}")
    if answer["alarm"]:
        typer.echo(f"  alarm: {answer['alarm']}")


@app.command("raise-format")
@options_command
def raise_format(
    log: LogArgument,
    at: LogsOptions,
    order: OrderOptions,
    level: Annotated[int | None, typer.Option("--level", min=1, help="Default: what the leader knows.")] = None,
) -> None:
    """Raise the format level of a log, once every replica runs a version that knows it. There is no way back.

    Examples:
        rsm log raise-format orders

    """
    answer = give_order(log, RaiseFormatRequest(level), at, order, "rsm log raise-format")
    if at.json:
        print_json({"log": log, **answer})
    else:
        typer.echo(f"log {log}: format level {answer['format_level']}")
        if level is None and answer["format_level"] < FORMAT_LEVEL:
            behind = f"This version knows level {FORMAT_LEVEL}, the leader {answer['leader']} does not: upgrade it"
            typer.echo(f"{behind}, then again", err=True)


@app.command("raise-version")
@options_command
def raise_version(
    log: LogArgument,
    at: LogsOptions,
    order: OrderOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Also where a live replica runs an older version: it cannot lead then.")
    ] = False,
) -> None:
    """Raise the version of the machine that a log is of, to that of its leader. There is no way back.

    The leader does so by itself once every live replica runs the newer version, unless it was told to wait.

    Examples:
        rsm log raise-version bank

    """
    answer = give_order(log, RaiseVersionRequest(force), at, order, "rsm log raise-version")
    if at.json:
        print_json({"log": log, **answer})
    else:
        typer.echo(f"log {log}: version {answer['version']} of its machine")


@app.command()
@options_command
def cat(
    log: LogArgument,
    at: LogsOptions,
    from_revision: Annotated[int, typer.Option("--from", metavar="REV", min=1, help="First revision.")] = 1,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as records are committed.")] = False,
) -> None:
    """Print the committed records of a log, with the names that its machine gives them.

    Examples:
        rsm log cat orders --from 1000 --limit 20

        rsm log cat orders --follow --json

    """

    async def _cat() -> None:
        async with await at.connect_ledgers() as client:
            async for row in log_rows(client, log, at.rsm_root, from_revision, follow=follow, limit=limit):
                if at.json:
                    print_json(shown(row))
                else:
                    fields = " ".join(f"{name}={_brief(value)}" for name, value in row["fields"].items())
                    sys.stdout.write(f"{row['revision']} {row['type']} {fields}".rstrip() + "\n")
        sys.stdout.flush()

    run(_cat())


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
