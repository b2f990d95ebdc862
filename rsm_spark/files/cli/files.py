"""`rsm files`: a file store from the command line."""

from __future__ import annotations

import contextlib
import getpass
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

import msgspec
import typer

from ledger.configuration import options_command
from ledger.errors import UsageError
from ledger.options import Option
from rsm_spark.cli.terminal import LogsOptions, print_json, print_result, printable, run, size_words
from rsm_spark.client.kept_session import KeptSession
from rsm_spark.files.cli.serve import serve
from rsm_spark.files.client import FileClient
from rsm_spark.files.commands import (
    ANY,
    DeleteEntry,
    EntriesSum,
    EntryShown,
    FileDone,
    MakeDirectory,
    RenameEntry,
    RenameRule,
    SetQuota,
)
from rsm_spark.files.errors import FileFault, file_error
from rsm_spark.files.limits import FILE_BYTES_MAX, PART_BYTES_MAX
from rsm_spark.files.settings import DEFAULT_LOG
from rsm_spark.files.writing import write_file

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Serve a replicated file store behind WebHDFS; list, read, write and move files.",
    pretty_exceptions_enable=False,
)
app.command()(serve)

_Result = TypeVar("_Result")
_PathArgument = Annotated[str, typer.Argument(help="Path in the store, from /.")]


class FilesOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of a command for one file store."""

    log: Annotated[str, Option("Name of the file store's log.", variables=("RSM_LOG",))] = DEFAULT_LOG
    timeout_s: Annotated[float, Option("Seconds to wait for a leader.", name="timeout", ge=0.01)] = 15.0

    def ask(self, question: Callable[[FileClient], Awaitable[_Result]]) -> _Result:
        """Return what a client answers, which shares a session with other commands; ctrl-C ends the command."""

        async def _ask() -> _Result:
            async with self._connected() as client:
                client.keep_session(KeptSession.of_user(self.log, self.metadata_uri, self.rsm_root))
                return await question(client)

        return run(_ask())

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[FileClient]:
        client = await FileClient.connect(self.log, self.metadata_uri, rsm_root=self.rsm_root, timeout_s=self.timeout_s)
        async with client:
            yield client


@app.command()
@options_command
def ls(path: _PathArgument = "/", *, at: FilesOptions) -> None:
    """List a directory: kind and permission, owner, bytes, time of change, name.

    Examples:
        rsm files ls /checkpoints

        rsm files ls / --json

    """

    async def _list(client: FileClient) -> None:
        async for entry in client.entries(path):
            print_result(at.json, _described(entry), _line(entry, path))

    at.ask(_list)


def _described(found: EntryShown | EntriesSum) -> dict[str, object]:
    # Scripts of before know the bytes as `size`.
    return {**msgspec.structs.asdict(found), "size_bytes": found.size}


def _line(entry: EntryShown, path: str) -> str:
    kind = "d" if entry.is_directory else "-"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.modified_ms / 1000))
    name = printable(entry.name or path)
    return f"{kind}{entry.permission:04o}  {printable(entry.owner):<12}  {entry.size:>10}  {when}  {name}"


@app.command()
@options_command
def cat(path: _PathArgument, *, at: FilesOptions) -> None:
    """Write the content of a file to standard output.

    Examples:
        rsm files cat /checkpoints/query/metadata

    """

    async def _cat(client: FileClient) -> None:
        async for piece in client.pieces(path):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

    at.ask(_cat)


@app.command()
@options_command
def get(
    path: _PathArgument,
    to: Annotated[Path, typer.Argument(help="File to write; it must not be there.")],
    *,
    at: FilesOptions,
) -> None:
    """Copy a file from the store to this machine.

    Examples:
        rsm files get /reports/today.csv today.csv

    """

    async def _get(client: FileClient) -> int:
        await client.show(path)
        size = 0
        try:
            with to.open("xb") as file:
                async for piece in client.pieces(path):
                    size += file.write(piece)
        except OSError as error:
            raise UsageError(f"{to}: {error.strerror}") from error
        return size

    size = at.ask(_get)
    print_result(at.json, {"path": path, "to": str(to), "bytes": size}, f"{size} bytes")


@app.command()
@options_command
def put(
    source: Annotated[str, typer.Argument(help="File of this machine; '-' reads standard input.")],
    path: _PathArgument,
    *,
    at: FilesOptions,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Copy a file of this machine to the store, at once and whole.

    Examples:
        rsm files put today.csv /reports/today.csv

        echo done | rsm files put - /reports/marker --overwrite

    """

    async def _put(client: FileClient) -> int:
        async with aclosing(_pieces(file)) as pieces:
            return await write_file(client.execute, path, pieces, getpass.getuser(), 0o644, overwrite=overwrite)

    try:
        if source != "-" and Path(source).stat().st_size > FILE_BYTES_MAX:
            raise UsageError(
                f"{source}: it has more than {FILE_BYTES_MAX >> 20} MiB, which lie in a ledger: send it to a server "
                f"that runs with --ledger-files, curl -L -T FILE -X PUT 'http://HOST:PORT/webhdfs/v1{path}?op=CREATE'"
            )
        with contextlib.nullcontext(sys.stdin.buffer) if source == "-" else Path(source).open("rb") as file:
            size = at.ask(_put)
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error
    print_result(at.json, {"path": path, "bytes": size}, f"{size} bytes")


async def _pieces(file: BinaryIO) -> AsyncGenerator[bytes]:
    # Nothing else runs in this process: it may wait for the disk, or for whoever writes to the pipe.
    while piece := file.read(PART_BYTES_MAX):
        yield piece


@app.command()
@options_command
def mkdir(path: _PathArgument, *, at: FilesOptions) -> None:
    """Make a directory and those above it; one that is there is no error.

    Examples:
        rsm files mkdir /checkpoints/query

    """
    at.ask(lambda client: client.execute(MakeDirectory(path, getpass.getuser(), 0o755)))
    print_result(at.json, {"path": path}, "done")


@app.command()
@options_command
def mv(
    source: _PathArgument,
    destination: Annotated[str, typer.Argument(help="Its new path; the directory above is there.")],
    *,
    at: FilesOptions,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Rename a file, or a directory with all below it, at once.

    Examples:
        rsm files mv /reports/new.csv /reports/today.csv --overwrite

    """
    rule = RenameRule.OVERWRITE if overwrite else RenameRule.NEW
    at.ask(lambda client: client.execute(RenameEntry(source, destination, rule)))
    print_result(at.json, {"source": source, "destination": destination}, "done")


@app.command()
@options_command
def rm(
    path: _PathArgument,
    *,
    at: FilesOptions,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="With all below it.")] = False,
) -> None:
    """Delete a file, or a directory; exit code 4 if there is none.

    Examples:
        rsm files rm /reports/today.csv

        rsm files rm --recursive /checkpoints/query

    """

    async def _remove(client: FileClient) -> None:
        if await client.execute(DeleteEntry(path, recursive)) != FileDone():
            raise file_error(FileFault.NOT_FOUND, f"{path} does not exist")

    at.ask(_remove)
    print_result(at.json, {"path": path}, "done")


@app.command()
@options_command
def du(path: _PathArgument = "/", *, at: FilesOptions) -> None:
    """Sum up what lies at a path and below, and show its quotas.

    Examples:
        rsm files du /checkpoints --json

    """
    found = at.ask(lambda client: client.sum_up(path))
    quotas = "" if found.names_max == ANY else f", quota {found.names_max:,} names"
    quotas += "" if found.bytes_max == ANY else f", quota {size_words(found.bytes_max)}"
    print_result(
        at.json,
        {"path": path, **_described(found)},
        f"{size_words(found.size)} in {found.files:,} files and {found.directories:,} directories{quotas}",
    )


@app.command()
@options_command
def quota(
    path: _PathArgument,
    *,
    at: FilesOptions,
    names: Annotated[
        int | None, typer.Option("--names", help="Most files and directories below it; -1 = any number.")
    ] = None,
    size: Annotated[int | None, typer.Option("--bytes", help="Most bytes of all files below it; -1 = any.")] = None,
) -> None:
    """Bound what lies below a directory. Only operators may.

    Examples:
        rsm files quota /team-a --names 100000 --bytes 1000000000

    """
    if names is None and size is None:
        raise UsageError("say a bound: --names N, --bytes N, or both; -1 takes one away")
    at.ask(lambda client: client.execute(SetQuota(path, names, size)))
    found = at.ask(lambda client: client.sum_up(path))
    document = {"path": path, "names_max": found.names_max, "bytes_max": found.bytes_max}
    if at.json:
        print_json(document)
    else:
        typer.echo(f"at most {found.names_max} names and {found.bytes_max} bytes below {path}; -1 = any")
