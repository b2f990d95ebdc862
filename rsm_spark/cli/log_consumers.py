"""`rsm log consumers list | add | move | remove`: readers that hold a log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from ledger.client.client import LedgerClient
from ledger.configuration import options_command
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from rsm_spark.cli.terminal import LogArgument, LogsOptions, print_json, print_result, printable, run, size_words
from rsm_spark.core.chain import LogChain
from rsm_spark.core.trimming import HOLD_BYTES, HOLD_MS, TrimRules, held_ledgers
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import LogConsumers, RegisteredConsumer, trimmed_revision

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List, add, move and remove consumers: readers for which a log is held.",
    pretty_exceptions_enable=False,
)

_HOUR_MS = 3_600_000
_NameArgument = Annotated[str, typer.Argument(help="Name of the consumer.")]


def described_consumers(chain: LogChain, found: Sequence[RegisteredConsumer], now_ms: int) -> list[dict[str, Any]]:
    """Return what consumers hold, as JSON; the leader's own limits are not known here."""
    ledgers = {ledger.ledger_id: ledger.closed for ledger in chain.ledgers if ledger.closed is not None}
    rules = TrimRules(0)
    described = []
    for one in found:
        held = held_ledgers(chain, one.hold, rules, now_ms=now_ms)
        ends = [end for ledger_id in held if (end := ledgers[ledger_id]) is not None]
        described.append({
            "name": one.name,
            **msgspec.to_builtins(one.state),
            "problem": one.problem,
            "held_ledgers": list(held),
            "held_bytes": sum(end.length for end in ends),
            "held_until_ms": ends[0].last_entry_ms + min(one.state.hold_ms, HOLD_MS) if ends else None,
            "lost_revisions": max(0, trimmed_revision(chain) - one.state.revision) if not one.problem else None,
        })  # fmt: skip
    return described


def tell_consumer(one: dict[str, Any]) -> None:
    """Print one consumer."""
    name = printable(one["name"])
    if one["problem"]:
        typer.echo(f"consumer {name}: {printable(one['problem'])}; it holds as much as the leader allows")
        return
    held = "holds no closed ledger"
    if one["held_ledgers"]:
        until = datetime.fromtimestamp(one["held_until_ms"] / 1000, UTC).isoformat(timespec="seconds")
        count = len(one["held_ledgers"])
        held = f"holds {count} closed ledgers, {size_words(one['held_bytes'])}, the oldest until {until} at the latest"
    lost = f"; {one['lost_revisions']} records behind that were trimmed" if one["lost_revisions"] else ""
    typer.echo(f"consumer {name} ({printable(one['what'])}): has read up to revision {one['revision']}, {held}{lost}")


async def consumers_of(client: LedgerClient, log: str, rsm_root: str) -> tuple[LogChain, LogConsumers]:
    """Return the chain and the consumers of a log.

    Raises:
        NoSuchLogError: There is no such log.

    """
    chain, _ = await ChainStore(client.store, log, rsm_root).read()
    return chain, LogConsumers(client.store, chain.log_id, rsm_root)


@app.command("list")
@options_command
def list_consumers(log: LogArgument, at: LogsOptions) -> None:
    """List who holds a log: what they have read, and what is kept for them.

    Examples:
        rsm log consumers list orders

        rsm log consumers list orders --json

    """

    async def _list() -> list[dict[str, Any]]:
        async with await at.connect_ledgers() as client:
            chain, consumers = await consumers_of(client, log, at.rsm_root)
            return described_consumers(chain, await consumers.present(), time.time_ns() // 1_000_000)

    for one in run(_list()):
        if at.json:
            print_json(one)
        else:
            tell_consumer(one)


@app.command()
@options_command
def add(
    log: LogArgument,
    name: _NameArgument,
    at: LogsOptions,
    audit: AuditOptions,
    revision: Annotated[int, typer.Option("--revision", min=0, help="Last revision that it has read.")] = 0,
    what: Annotated[str, typer.Option("--what", help="What it is, in words.")] = "added by an operator",
    hold_hours: Annotated[
        float, typer.Option("--hold-hours", min=0, help="What it has not read stays so long after it was written.")
    ] = HOLD_MS / _HOUR_MS,
    hold_bytes: Annotated[
        int, typer.Option("--hold-bytes", min=0, help="What it has not read stays up to so many bytes.")
    ] = HOLD_BYTES,
) -> None:
    """Hold a log for a reader that does not register by itself; or anew for one that is there.

    The settings of the leader bound both limits (consumer_hold_s, consumer_hold_bytes).

    Examples:
        rsm log consumers add orders nightly-export --revision 120000 --hold-hours 48

    """

    async def _add() -> int:
        async with await at.connect_ledgers() as client:
            _, consumers = await consumers_of(client, log, at.rsm_root)
            hold_ms = int(hold_hours * _HOUR_MS)
            return await consumers.register(log, name, revision, what=what, hold_ms=hold_ms, hold_bytes=hold_bytes)

    with audited_command(audit.audit_file, "rsm log consumers add", f"log {log}: {name}", this_operator()):
        held = run(_add())
    gone = f"; the log does not reach back to revision {revision + 1}" if held > revision else ""
    done = {"log": log, "name": name, "revision": held}
    print_result(at.json, done, f"log {log}: what is behind revision {held} is held for consumer {name}{gone}")


@app.command()
@options_command
def move(
    log: LogArgument,
    name: _NameArgument,
    revision: Annotated[int, typer.Argument(help="Last revision that it has read.", min=0)],
    at: LogsOptions,
) -> None:
    """Let go of what a consumer has read. A position moves forward only; for another one, add it anew.

    Examples:
        rsm log consumers move orders nightly-export 130000

    """

    async def _move() -> bool:
        async with await at.connect_ledgers() as client:
            _, consumers = await consumers_of(client, log, at.rsm_root)
            return await consumers.advance(name, revision)

    moved = run(_move())
    text = f"has read up to revision {revision}" if moved else f"had read up to revision {revision} before"
    print_result(at.json, {"log": log, "name": name, "moved": moved}, f"log {log}: consumer {name} {text}")


@app.command()
@options_command
def remove(
    log: LogArgument,
    name: _NameArgument,
    at: LogsOptions,
    audit: AuditOptions,
    reason: Annotated[str, typer.Option("--reason", help="Why; the audit keeps it.")] = "",
) -> None:
    """Hold a log no more for a consumer. If it still reads, it may find its records trimmed.

    Examples:
        rsm log consumers remove orders nightly-export

    """

    async def _remove() -> None:
        async with await at.connect_ledgers() as client:
            _, consumers = await consumers_of(client, log, at.rsm_root)
            await consumers.remove(name)

    with audited_command(audit.audit_file, "rsm log consumers remove", f"log {log}: {name}", this_operator(reason)):
        run(_remove())
    print_result(at.json, {"log": log, "name": name}, f"log {log}: nothing is held for consumer {name} any more")
