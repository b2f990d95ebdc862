"""`rsm log create | append | grow | tail | truncate`: logs that programs append to and read themselves."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.options import Option
from rsm_spark.cli.copying import ms_of
from rsm_spark.cli.terminal import LogArgument, LogsOptions, key_bytes, print_json, print_result, run, shown

if TYPE_CHECKING:
    # Loaded when a command connects: what only prints help must not wait for it.
    from rsm_spark.logs import LogRecord, Logs, PartitionedLogWriter, PartitionPosition, PartitionRecord
    from rsm_spark.logs.record_writer import PlainLogWriter

_CHUNK_BYTES = 65_536


class PlainLogOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of a command that appends to a log or reads it."""

    bookies: Annotated[str, Option("Ensemble, write quorum and ack quorum of new ledgers.", metavar="E/Qw/Qa")] = (
        "2/2/2"
    )
    single_copy: Annotated[bool, Option("Allow an ack quorum of 1. With one disk the log is lost.")] = False
    password_file: Annotated[
        Path | None, Option("Holds the password of the log's ledgers, in one line.", metavar="FILE")
    ] = None
    log_key: Annotated[
        Path | None,
        Option("Key file of the log (rsm log key new).", metavar="FILE", variables=("RSM_LOG_KEY",)),
    ] = None

    async def connect(self) -> Logs:
        """Return the logs there."""
        from rsm_spark.log.key_file import KeyFile  # noqa: PLC0415 - not every command connects
        from rsm_spark.logs import Logs  # noqa: PLC0415
        from rsm_spark.runtime.settings import ReplicaSettings  # noqa: PLC0415
        from rsm_spark.server.replica_options import password_of, quorum_of  # noqa: PLC0415

        ensemble_size, write_quorum, ack_quorum = quorum_of(self.bookies)
        settings = ReplicaSettings(
            rsm_root=self.rsm_root,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            allow_single_copy=self.single_copy,
            ledger_password=password_of(self.password_file),
            log_keys=None if self.log_key is None else KeyFile.read(self.log_key),
        )
        return await Logs.connect(self.metadata_uri, settings=settings)


@options_command
def create(
    log: LogArgument,
    at: PlainLogOptions,
    retention_s: Annotated[
        float | None, typer.Option("--retention-s", min=0, help="Records that are older go. Default: none goes by age.")
    ] = None,
    retention_bytes: Annotated[
        int | None, typer.Option("--retention-bytes", min=0, help="The oldest go when newer ones have so many bytes.")
    ] = None,
    until_read: Annotated[
        bool, typer.Option("--until-read", help="What every subscription has read goes, if there is one.")
    ] = False,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Make a partitioned log: records go by their key.")
    ] = None,
) -> None:
    """Make a log to append to. Without limits it keeps every record.

    Examples:
        rsm log create clicks --retention-s 604800

        rsm log create orders --partitions 4

    """

    async def _create() -> None:
        async with await at.connect() as logs:
            await logs.create(
                log,
                retention_s=retention_s,
                retention_bytes=retention_bytes,
                until_read=until_read,
                partitions=partitions,
            )

    run(_create())
    if partitions is None:
        print_result(at.json, {"log": log}, f"log {log}: made")
    else:
        print_result(at.json, {"log": log, "partitions": partitions}, f"log {log}: made, with {partitions} partitions")


@options_command
def grow(
    log: LogArgument,
    at: PlainLogOptions,
    audit: AuditOptions,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="How many it is to have.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; the audit keeps it.")] = "",
) -> None:
    """Give a partitioned log more partitions. Its writer does it and goes on; without one, the command does it.

    Records of one key stay in the order of their appends, for every reader. There is no way back to fewer.

    Examples:
        rsm log grow orders --partitions 8

    """

    async def _grow() -> None:
        async with await at.connect() as logs:
            await logs.grow(log, partitions)

    with audited_command(audit.audit_file, "rsm log grow", f"log {log}: {partitions}", this_operator(reason)):
        run(_grow())
    print_result(at.json, {"log": log, "partitions": partitions}, f"log {log}: it has {partitions} partitions")


@options_command
def append(
    log: LogArgument,
    at: PlainLogOptions,
    payloads: Annotated[
        list[str] | None, typer.Argument(help="Records, as text. Default: each line of standard input is one.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Key of these records.")] = None,
    txid: Annotated[
        int | None, typer.Option("--txid", min=0, help="Transaction id of these records. Default: the last one.")
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="Append the end mark behind them: nothing can follow.")] = False,
) -> None:
    """Append records to a log. Whoever wrote the log before is fenced: it has one writer at a time.

    In a partitioned log they go to the partition of their key, without a key to the partitions in turn.

    Examples:
        rsm log append clicks "page=/" "page=/about" --txid 7

        tail -F access.log | rsm log append clicks --json

    """

    async def _append() -> tuple[int, str]:
        async with await at.connect() as logs:
            if not await logs.is_partitioned(log):
                async with await logs.open_writer(log) as writer:
                    count, last = await _append_all(writer)
                    return count, str(await writer.mark_end()) if end else last
            if end:
                raise UsageError(f"rsm log append {log} --end: a partitioned log has no end mark")
            async with await logs.open_partitioned_writer(log) as whole:
                return await _append_all(whole)

    async def _append_all(writer: PlainLogWriter | PartitionedLogWriter) -> tuple[int, str]:
        count, last = 0, "none"
        name = None if key is None else key_bytes(key)
        async for chunk in _chunks(payloads):
            for added in [writer.append(one, key=name, txid=txid) for one in chunk]:
                place = await added
                count, last = count + 1, _shown_place(place)
                if at.json:
                    print_json(_described_place(place))
            await writer.drain()
        return count, last

    count, last = run(_append())
    if not at.json:
        typer.echo(f"log {log}: {count} records appended, the last position is {last}{', its end' if end else ''}")


def _shown_place(place: int | PartitionPosition) -> str:
    return str(place) if isinstance(place, int) else f"{place.position} of partition {place.partition}"


def _described_place(place: int | PartitionPosition) -> dict[str, int]:
    return {"position": place} if isinstance(place, int) else place._asdict()


async def _chunks(payloads: list[str] | None) -> AsyncIterator[list[bytes]]:
    """Yield records as they come: those of the command line, else lines of standard input."""
    if payloads:
        yield [key_bytes(payload) for payload in payloads]
        return
    rest = b""
    while chunk := await asyncio.to_thread(os.read, sys.stdin.fileno(), _CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


@options_command
def tail(
    log: LogArgument,
    at: PlainLogOptions,
    start: Annotated[str, typer.Option("--from", metavar="begin|end|POSITION", help="Where to begin.")] = "end",
    txid: Annotated[int | None, typer.Option("--txid", min=0, help="Begin with this transaction id.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Begin with what was logged then, or ms since 1970.")
    ] = None,
    subscription: Annotated[
        str | None, typer.Option("--subscription", help="Go on where this name is; what is printed counts as read.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most records.")] = None,
    no_follow: Annotated[bool, typer.Option("--no-follow", help="End where the log is confirmed now.")] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Of a partitioned log, this one. Default: all.")
    ] = None,
) -> None:
    """Print the records of a log, and those to come; at its end mark it ends.

    Of a partitioned log the records of each key come in the order of their appends.

    Examples:
        rsm log tail clicks --from begin --no-follow

        rsm log tail clicks --since 2026-11-24T12:00:00Z --json

        rsm log tail orders --partition 2 --partition 6

    """

    async def _tail() -> None:
        async with await at.connect() as logs:
            if await logs.is_partitioned(log):
                await _tail_partitions(logs)
                return
            if partition:
                raise UsageError(f"rsm log tail {log} --partition: the log is not partitioned")
            async with await logs.reader(
                log, _start(start), txid=txid, since=_time(since), subscription=subscription, follow=not no_follow
            ) as reader:
                left = limit
                async for record in reader:
                    _print_record(record, as_json=at.json)
                    if subscription is not None:
                        await reader.processed(record.position)
                    left = None if left is None else left - 1
                    if left == 0:
                        break

    async def _tail_partitions(logs: Logs) -> None:
        begin = _start(start)
        if isinstance(begin, int):
            raise UsageError(f"rsm log tail {log} --from {start}: each partition has positions of its own: name one")
        wanted, left = partition or None, limit
        async with await logs.partitioned_reader(
            log,
            begin,
            partitions=wanted,
            txid=txid,
            since=_time(since),
            subscription=subscription,
            follow=not no_follow,
        ) as reader:
            async for record in reader:
                _print_record(record, as_json=at.json)
                if subscription is not None:
                    await reader.processed(record)
                left = None if left is None else left - 1
                if left == 0:
                    break

    run(_tail())


def _start(text: str) -> int | Literal["begin", "end"]:
    if text == "begin":
        return "begin"
    if text == "end":
        return "end"
    if not text.isdigit():
        raise UsageError(f"--from {text!r}: expected begin, end or a position")
    return int(text)


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromtimestamp(ms_of(text, "--since") / 1000, UTC)


def _print_record(record: LogRecord | PartitionRecord, *, as_json: bool) -> None:
    if as_json:
        print_json(shown(record._asdict()))
        return
    from rsm_spark.logs import PartitionRecord  # noqa: PLC0415 - loaded when a command connects

    key = "" if record.key is None else f" key={shown(record.key)}"
    partition = f"partition {record.partition}: " if isinstance(record, PartitionRecord) else ""
    sys.stdout.write(f"{partition}{record.position} txid={record.txid}{key} {shown(record.payload)}\n")
    sys.stdout.flush()


@options_command
def truncate(
    log: LogArgument,
    position: Annotated[int, typer.Argument(help="The last position to let go of.", min=0)],
    at: PlainLogOptions,
    audit: AuditOptions,
    reason: Annotated[str, typer.Option("--reason", help="Why; the audit keeps it.")] = "",
) -> None:
    """Let go of the records of a log up to a position. Whole ledgers go; what a subscription has not read stays.

    Examples:
        rsm log truncate clicks 120000

    """

    async def _truncate() -> dict[str, Any]:
        async with await at.connect() as logs:
            plan: dict[str, Any] = msgspec.to_builtins(await logs.truncate(log, position))
            return plan

    with audited_command(audit.audit_file, "rsm log truncate", f"log {log}: {position}", this_operator(reason)):
        plan = run(_truncate())
    if at.json:
        print_json({"log": log, "position": position, **plan})
        return
    typer.echo(f"log {log}: readers begin behind position {position}; {len(plan['ledger_ids'])} ledgers went")
    for row in plan["blocked"]:
        typer.echo(f"  {row['ledger_count']} ledgers stay ({row['reason']}): {row['text']}")
