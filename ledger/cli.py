"""`rsm ledger`: ledgers from the command line, payloads on standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Annotated, Any

import msgspec
import typer

from ledger.client.client import UNCLAIMED, LedgerClient
from ledger.client.read_handle import ReadHandle
from ledger.client.rolling import LedgerRun, RollingAppender
from ledger.client.write_handle import WriteHandle
from ledger.cluster_options import ClusterOptions, MetadataOptions
from ledger.configuration import options_command
from ledger.core.entry import Entry
from ledger.core.metadata import DigestType, LedgerMetadata
from ledger.errors import LedgerError, UsageError
from ledger.exit_codes import exit_code
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.options import Option
from ledger.payload_stream import PayloadSplitter, json_line

app = typer.Typer(
    no_args_is_help=True,
    help="Create, append, read, tail, recover and list ledgers.\n\nExample: seq 1000 | rsm ledger append --ensemble 3",
)

_PROGRESS_S = 1.0
_CHUNK_BYTES = 1024 * 1024

_Id = Annotated[int, typer.Argument(metavar="LEDGER_ID", min=0)]
_Password = Annotated[str, typer.Option("--password", envvar="RSM_LEDGER_PASSWORD", help="The ledger's password.")]
_Prefixed = Annotated[
    bool, typer.Option("--length-prefixed", help="Payloads are 4 bytes of length (big-endian) and content, not lines.")
]


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Layout of a ledger, as asked for on the command line."""

    ensemble: Annotated[int, Option("Bookies that share the ledger.", ge=1)] = 2
    write_quorum: Annotated[int | None, Option("Copies of an entry.", ge=1, shown="ensemble")] = None
    ack_quorum: Annotated[int | None, Option("Copies that confirm it.", ge=1, shown="write quorum, or 2 of 3")] = None
    digest: Annotated[str, Option("crc32c, crc32, hmac or dummy.")] = "crc32c"
    password: Annotated[str, Option("The ledger's password.", variables=("RSM_LEDGER_PASSWORD",))] = ""

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> _Shape:
        quorum = metadata.quorum
        password = metadata.password.decode(errors="surrogateescape")
        return cls(
            ensemble=quorum.ensemble_size,
            write_quorum=quorum.write_quorum,
            ack_quorum=quorum.ack_quorum,
            digest=metadata.digest_type.name,
            password=password,
        )

    async def create(self, client: LedgerClient, custom: dict[str, bytes] | None = None) -> WriteHandle:
        try:
            digest_type = DigestType[self.digest.upper()]
        except KeyError:
            raise UsageError(f"digest {self.digest!r}: choose crc32c, crc32, hmac or dummy") from None
        write_quorum = self.ensemble if self.write_quorum is None else self.write_quorum
        ack_quorum = min(2, write_quorum) if self.ack_quorum is None else self.ack_quorum
        return await client.create(
            ensemble_size=self.ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=digest_type,
            password=self.password.encode(errors="surrogateescape"),
            custom=custom,
        )

    async def create_on_living(self, client: LedgerClient) -> WriteHandle:
        """Create the next ledger, smaller if need be, but never with fewer copies than confirm an entry."""
        ack_quorum = min(2, self.ensemble) if self.ack_quorum is None else self.ack_quorum
        unreachable = client.unreachable_bookies()
        living = [b for b in await client.ledgers.writable_bookies() if b not in unreachable]
        ensemble = max(ack_quorum, min(self.ensemble, len(living)))
        write_quorum = min(ensemble, self.ensemble if self.write_quorum is None else self.write_quorum)
        shape = msgspec.structs.replace(
            self, ensemble=ensemble, write_quorum=max(write_quorum, ack_quorum), ack_quorum=ack_quorum
        )
        return await shape.create(client)


@app.command()
@options_command
def create(
    at: ClusterOptions,
    shape: _Shape,
) -> None:
    """Create an empty ledger and print its id; one `rsm ledger append ID` may then write to it.

    Example: rsm ledger create --ensemble 3 --ack-quorum 2
    """

    async def run() -> None:
        async with await LedgerClient.connect(at.metadata_uri) as client:
            handle = await shape.create(client, {UNCLAIMED: b""})
            handle.abandon()
            _print({"ledger_id": handle.ledger_id} if at.json else str(handle.ledger_id))

    _run(run())


@app.command()
@options_command
def append(
    at: ClusterOptions,
    shape: _Shape,
    ledger_id: Annotated[int | None, typer.Argument(metavar="[LEDGER_ID]", min=0, show_default="a new one")] = None,
    length_prefixed: _Prefixed = False,
) -> None:
    """Append standard input, one entry a line, to a ledger; close it and print its id and its last entry.

    If too few bookies are left, the ledger is closed, the next one created on the living, and what was not
    confirmed appended again there: one line of output per ledger, in order.

    Example: seq 1000 | rsm ledger append
    """

    async def run() -> None:
        async with await LedgerClient.connect(at.metadata_uri) as client:
            if ledger_id is None:
                handle, next_shape = await shape.create(client), shape
            else:
                handle = await client.claim(ledger_id, password=shape.password.encode())
                next_shape = _Shape.of(handle.metadata)
            appender = RollingAppender(handle, lambda: next_shape.create_on_living(client), _tell_roll)
            progress = _Progress("entries confirmed")
            try:
                async for payloads in _stdin_payloads(length_prefixed=length_prefixed):
                    await appender.append(payloads)
                    progress.show(appender.confirmed_count)
                runs = await appender.finish()
            except LedgerError:
                _print_runs(await appender.abort(), as_json=at.json)  # what is stored all the same
                raise
            _print_runs(runs, as_json=at.json)

    _run(run())


@app.command()
@options_command
def read(
    ledger_id: _Id,
    at: ClusterOptions,
    first: Annotated[int, typer.Option("--from", min=0, help="First entry.")] = 0,
    last: Annotated[
        int | None, typer.Option("--to", min=0, help="Last entry.", show_default="the last confirmed")
    ] = None,
    length_prefixed: _Prefixed = False,
    password: _Password = "",
) -> None:
    """Print the confirmed entries of a ledger, one a line; its writer is not disturbed.

    Example: rsm ledger read 7 --from 10 --to 20 --json
    """

    async def run() -> None:
        async with await LedgerClient.connect(at.metadata_uri) as client:
            handle = await client.open_no_recovery(ledger_id, password=password.encode())
            end = (await handle.read_lac()).last_add_confirmed
            if last is not None:
                await handle.read(last, last)  # the clear error, before anything is printed
                end = last
            out = _Output(ledger_id, as_json=at.json, length_prefixed=length_prefixed)
            if first <= end:
                async for entries in handle.entries(first, end):
                    out.write(entries)

    _run(run())


@app.command()
@options_command
def tail(
    ledger_id: _Id,
    at: ClusterOptions,
    first: Annotated[int, typer.Option("--from", min=0, help="First entry.")] = 0,
    length_prefixed: _Prefixed = False,
    password: _Password = "",
) -> None:
    """Print entries as they are confirmed, until the ledger is closed; its writer is not disturbed.

    Example: rsm ledger tail 7 | grep error
    """

    async def run() -> None:
        async with await LedgerClient.connect(at.metadata_uri) as client:
            handle = await client.open_no_recovery(ledger_id, password=password.encode())
            out = _Output(ledger_id, as_json=at.json, length_prefixed=length_prefixed)
            async for entries in handle.tail(first):
                out.write(entries)

    _run(run())


@app.command()
@options_command
def recover(
    ledger_id: _Id,
    at: ClusterOptions,
    audit: AuditOptions,
    password: _Password = "",
) -> None:
    """Fence the writer of a ledger, find its end and close it; print the last entry. A closed one stays as it is.

    Example: rsm ledger recover 7
    """

    async def run() -> None:
        async with await LedgerClient.connect(at.metadata_uri) as client:
            handle: ReadHandle = await client.open(ledger_id, password=password.encode())
            last = handle.last_add_confirmed
            _print({"ledger_id": ledger_id, "last_entry_id": last} if at.json else str(last))

    with audited_command(audit.audit_file, "rsm ledger recover", f"ledger {ledger_id}", this_operator()):
        _run(run())


@app.command("list")
@options_command
def list_(at: ClusterOptions) -> None:
    """Print the ids of all ledgers, one a line, with state and last entry.

    Example: rsm ledger list --json
    """

    async def run() -> None:
        async with await LedgerClient.connect(at.metadata_uri) as client:
            for ledger_id in await client.list():
                try:
                    metadata = await client.metadata(ledger_id)
                except LedgerError as error:
                    _note(f"ledger {ledger_id}: {error}")  # deleted meanwhile, or not ours to read
                    continue
                row = {"ledger_id": ledger_id, "state": metadata.state.name} | _end_of(metadata)
                _print(row if at.json else "\t".join(str(value) for value in row.values()))

    _run(run())


@app.command()
@options_command
def info(ledger_id: _Id, at: ClusterOptions) -> None:
    """Print what the metadata store knows of a ledger (never its password).

    Example: rsm ledger info 7 --json
    """

    async def run() -> None:
        async with await LedgerClient.connect(at.metadata_uri) as client:
            metadata = await client.metadata(ledger_id, sync=True)
            row = {
                "ledger_id": ledger_id,
                "state": metadata.state.name,
                "ensemble_size": metadata.quorum.ensemble_size,
                "write_quorum": metadata.quorum.write_quorum,
                "ack_quorum": metadata.quorum.ack_quorum,
                "digest": metadata.digest_type.name,
                "created_ms": metadata.created_ms,
                "segments": [msgspec.structs.asdict(segment) for segment in metadata.segments],
                "custom": {key: value.decode(errors="backslashreplace") for key, value in metadata.custom.items()},
            } | _end_of(metadata)
            _print(row if at.json else "\n".join(f"{key}: {value}" for key, value in row.items()))

    _run(run())


@app.command()
@options_command
def delete(ledger_id: _Id, at: MetadataOptions, audit: AuditOptions) -> None:
    """Delete a ledger; bookies free its space when they next look.

    Example: rsm ledger delete 7
    """

    async def run() -> None:
        async with await LedgerClient.connect(at.metadata_uri) as client:
            await client.delete(ledger_id)

    with audited_command(audit.audit_file, "rsm ledger delete", f"ledger {ledger_id}", this_operator()):
        _run(run())


class _Output:
    """Entries to standard output, one write a batch."""

    def __init__(self, ledger_id: int, *, as_json: bool, length_prefixed: bool) -> None:
        self._ledger_id = ledger_id
        self._as_json = as_json
        self._length_prefixed = length_prefixed

    def write(self, entries: list[Entry]) -> None:
        if self._as_json:
            data = b"".join(json_line(self._ledger_id, entry.entry_id, entry.payload) for entry in entries)
        elif self._length_prefixed:
            data = b"".join(len(entry.payload).to_bytes(4, "big") + entry.payload for entry in entries)
        else:
            data = b"".join(entry.payload + b"\n" for entry in entries)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class _Progress:
    """A count on standard error once a second, if that is a terminal and it takes longer than that."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown_at = time.monotonic()

    def show(self, count: int) -> None:
        now = time.monotonic()
        if now - self._shown_at >= _PROGRESS_S and sys.stderr.isatty():
            self._shown_at = now
            _note(f"{count:,} {self._what}")


def _end_of(metadata: LedgerMetadata) -> dict[str, Any]:
    if not metadata.is_closed:
        return {"last_entry_id": None, "length": None}
    return {"last_entry_id": metadata.last_entry_id, "length": metadata.length}


def _tell_roll(run: LedgerRun, error: LedgerError, next_id: int, again: int) -> None:
    _note(
        f"ledger {run.ledger_id} is closed at entry {run.last_entry_id} ({error}); "
        f"going on in ledger {next_id}, {again} unconfirmed entries are appended again there"
    )


async def _stdin_payloads(*, length_prefixed: bool) -> AsyncIterator[list[bytes]]:
    loop = asyncio.get_running_loop()
    splitter = PayloadSplitter(length_prefixed=length_prefixed)
    while chunk := await loop.run_in_executor(None, os.read, sys.stdin.fileno(), _CHUNK_BYTES):
        payloads = splitter.feed(chunk)
        if payloads:
            yield payloads
    last = splitter.finish()
    if last:
        yield last


def _print_runs(runs: list[LedgerRun], *, as_json: bool) -> None:
    for run in runs:
        _print(msgspec.structs.asdict(run) if as_json else f"{run.ledger_id}\t{run.last_entry_id}")


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _print(value: dict[str, Any] | str) -> None:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a command; a reader of our output that has gone (`| head`) is a reason to stop, not an error."""
    try:
        asyncio.run(coroutine)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except LedgerError as error:
        if os.environ.get("RSM_DEBUG"):
            raise
        _note(f"rsm: {' '.join(str(error).split())}")
        raise typer.Exit(exit_code(error)) from None
