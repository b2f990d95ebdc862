"""`rsm log list | info | cat | trim | raise-format`: replicated logs from the command line.

What is shown is read from ZooKeeper and the bookies alone; what changes a log is asked of its leader.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
import typer

from ledger.client.client import LedgerClient
from ledger.errors import NoNodeError
from rsm_spark.core.chain import DEFAULT_RSM_ROOT, LogChain, encode_chain
from rsm_spark.errors import RsmError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.orders import Order, OrderDesk, RaiseFormatOrder, TrimOrder
from rsm_spark.store.log_records import RecordNames, first_description, reader_from
from rsm_spark.store.terminal import Json, MetadataUriOption, RsmRoot, print_json, run, shown

__all__ = ["app", "log_names"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List, describe and print replicated logs; have their leader trim them.",
    pretty_exceptions_enable=False,
)
_Name = Annotated[str, typer.Argument(help="Name of the log.", envvar="RSM_LOG")]
_Timeout = Annotated[float, typer.Option("--timeout", min=1.0, metavar="S", help="How long to wait for the leader.")]
_WAIT_S = 1.0


@asynccontextmanager
async def _client(metadata_uri: str | None) -> AsyncIterator[LedgerClient]:
    client = await LedgerClient.connect(metadata_uri)
    try:
        yield client
    finally:
        await client.close()


async def log_names(client: LedgerClient, rsm_root: str) -> list[str]:
    """Return the names of all logs, sorted."""
    try:
        return await client.store.children(f"{rsm_root}/logs")
    except NoNodeError:
        return []


@app.command("list")
def list_logs(metadata_uri: MetadataUriOption = None, rsm_root: RsmRoot = DEFAULT_RSM_ROOT, json: Json = False) -> None:
    """List the logs.

    Examples:
        rsm log list

        rsm log list --json

    """

    async def _list() -> None:
        async with _client(metadata_uri) as client:
            for name in await log_names(client, rsm_root):
                chain, _ = await ChainStore(client.store, name, rsm_root).read()
                if json:
                    print_json(_summary(name, chain))
                else:
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
        "first_revision": chain.ledgers[0].first_revision if chain.ledgers else None,
    }


@app.command()
def info(
    log: _Name, metadata_uri: MetadataUriOption = None, rsm_root: RsmRoot = DEFAULT_RSM_ROOT, json: Json = False
) -> None:
    """Describe a log: its ledgers, in order, and who leads it.

    Examples:
        rsm log info orders

        rsm log info orders --json

    """

    async def _info() -> None:
        async with _client(metadata_uri) as client:
            chain, version = await ChainStore(client.store, log, rsm_root).read()
            ledgers = []
            for item in chain.ledgers:
                metadata = await client.metadata(item.ledger_id)
                described = msgspec.to_builtins(item)
                described["state"] = metadata.state.name
                described["bookies"] = list(metadata.segments[-1].bookies)
                ledgers.append(described)
            described = {
                **_summary(log, chain),
                "chain_version": version,
                "chain_bytes": len(encode_chain(chain)),
                "ledgers": ledgers,
            }
            described["whole"] = bool(chain.ledgers) and chain.ledgers[0].ledger_id == chain.first_ledger_id
            if json:
                print_json(described)
            else:
                _print_info(described)

    run(_info())


def _print_info(described: dict[str, Any]) -> None:
    typer.echo(f"log {described['log']}, id {described['log_id']}")
    typer.echo(f"epoch {described['leader_epoch']}, led by {described['leader'] or 'nobody'}")
    if described["ledgers"] and not described["whole"]:
        typer.echo("its beginning has been trimmed: a new replica needs a snapshot")
    for item in described["ledgers"]:
        closed = item["closed"]
        last = "…" if closed is None else closed["last_revision"]
        size = "" if closed is None else f", {closed['length']:,} bytes"
        bookies = ", ".join(item["bookies"])
        revisions = f"revisions {item['first_revision']} to {last}"
        typer.echo(f"  ledger {item['ledger_id']}: {revisions}, {item['state']}{size}, {bookies}")


@app.command()
def trim(
    log: _Name,
    accept_unverified: Annotated[
        bool,
        typer.Option(
            "--accept-unverified",
            help="Take the leader's own newest snapshot for good, although nobody has verified it. If it is not, "
            "what is trimmed is lost.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go, and why the rest stays.")] = False,
    timeout_s: _Timeout = 30.0,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    json: Json = False,
) -> None:
    """Have the leader trim what may go now, and say why the rest stays.

    Exit code 0 also when nothing may go; 1 if the leader does not answer.

    Examples:
        rsm log trim orders --dry-run

        rsm log trim orders --accept-unverified

    """
    order = TrimOrder(accept_unverified=accept_unverified, is_dry_run=dry_run)
    answer = run(_order(log, order, timeout_s, metadata_uri, rsm_root))
    if json:
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
def raise_format(
    log: _Name,
    level: Annotated[int | None, typer.Option("--level", min=1, help="Default: what the leader knows.")] = None,
    timeout_s: _Timeout = 30.0,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    json: Json = False,
) -> None:
    """Raise the format level of a log, once every replica runs a version that knows it. There is no way back.

    Examples:
        rsm log raise-format orders

    """
    answer = run(_order(log, RaiseFormatOrder(level), timeout_s, metadata_uri, rsm_root))
    if json:
        print_json({"log": log, **answer})
    else:
        typer.echo(f"log {log}: format level {answer['format_level']}")


async def _order(log: str, order: Order, timeout_s: float, metadata_uri: str | None, rsm_root: str) -> dict[str, Any]:
    """Have the leader carry out an order; return what came of it."""
    async with _client(metadata_uri) as client:
        await ChainStore(client.store, log, rsm_root).read()  # A log that does not exist has no leader to wait for.
        answer = await OrderDesk(client.store, log, rsm_root).place(order, timeout_s=timeout_s)
    if answer.refusal:
        raise RsmError(answer.refusal)
    return {"leader": answer.by, **answer.outcome}


@app.command()
def cat(
    log: _Name,
    from_revision: Annotated[int, typer.Option("--from", metavar="REV", min=1, help="First revision.")] = 1,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as records are committed.")] = False,
    metadata_uri: MetadataUriOption = None,
    rsm_root: RsmRoot = DEFAULT_RSM_ROOT,
    json: Json = False,
) -> None:
    """Print the committed records of a log, with the names that its machine gives them.

    Examples:
        rsm log cat orders --from 1000 --limit 20

        rsm log cat orders --follow --json

    """

    async def _cat() -> None:
        async with _client(metadata_uri) as client:
            async for row in _records(client, log, rsm_root, from_revision, follow=follow, limit=limit):
                if json:
                    print_json(shown(row))
                else:
                    fields = " ".join(f"{name}={_brief(value)}" for name, value in row["fields"].items())
                    sys.stdout.write(f"{row['revision']} {row['type']} {fields}".rstrip() + "\n")
        sys.stdout.flush()

    run(_cat())


async def _records(
    client: LedgerClient, log: str, rsm_root: str, from_revision: int, *, follow: bool, limit: int | None
) -> AsyncIterator[dict[str, Any]]:
    chains = ChainStore(client.store, log, rsm_root)
    chain, _ = await chains.read()
    names = RecordNames(await first_description(client, chains, chain))
    reader = reader_from(client, chains, chain, from_revision)
    left = limit
    try:
        while left != 0:
            entries = await reader.read()
            for entry in entries:
                for row in names.rows(entry, from_revision):
                    if left == 0:
                        return
                    yield row
                    left = None if left is None else left - 1
            if not entries and reader.ledgers_ahead == 0:
                if not follow:
                    return
                sys.stdout.flush()
                await reader.wait(_WAIT_S)
    finally:
        await reader.close()


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
