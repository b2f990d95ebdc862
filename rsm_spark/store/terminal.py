"""How the command line of logs and maps shows bytes, and how it is told where to look."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import msgspec
import typer

__all__ = [
    "TIMEOUT_S",
    "Json",
    "KeyArgument",
    "LogName",
    "MetadataUriOption",
    "ReplicaOption",
    "RsmRoot",
    "TimeoutOption",
    "key_bytes",
    "print_json",
    "run",
    "shown",
]

Result = TypeVar("Result")

LogName = Annotated[str, typer.Option("--log", envvar="RSM_LOG", help="Name of the log.")]
MetadataUriOption = Annotated[
    str | None,
    typer.Option(
        "--metadata-uri",
        envvar="RSM_METADATA_URI",
        help="Where everything is found.",
        show_default="zk+hierarchical://127.0.0.1:2181/ledgers",
    ),
]
RsmRoot = Annotated[str, typer.Option("--rsm-root", help="Root of the logs in ZooKeeper.")]
KeyArgument = Annotated[str, typer.Argument(help="The key, as text.")]
TIMEOUT_S = 15.0
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.01, help="Seconds to wait for a leader.")]
ReplicaOption = Annotated[
    str | None,
    typer.Option("--replica", metavar="HOST:PORT", help="Read from this replica, at the revision that it has."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def key_bytes(text: str) -> bytes:
    """Return the bytes of an argument as they were typed."""
    return text.encode(errors="surrogateescape")


def shown(value: Any) -> Any:
    """Return a value as JSON shows it: bytes as text where they are UTF-8, else as ``{"base64": ...}``."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {shown(key) if isinstance(key, bytes) else key: shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return value


def print_json(value: Any) -> None:
    """Print one line of JSON; a reader that has gone ends the program quietly."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's work; ctrl-C ends it with exit code 130, a closed pipe quietly."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(0) from None
