"""The options of `rsm worker run`; each is a key of its file and a variable too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.worker.settings import THREADS_MAX
from ledger.configuration import configured
from ledger.errors import UsageError

__all__ = [
    "Brokers",
    "CancelS",
    "CodeDir",
    "Command",
    "Conf",
    "DrainS",
    "ExcludedGroups",
    "ExecutorKind",
    "Groups",
    "LoadS",
    "Location",
    "Log",
    "MemoryMb",
    "Resources",
    "Tasks",
    "TenantShare",
    "Threads",
    "TlsCa",
    "TlsCert",
    "TlsKey",
    "TokenFile",
    "Types",
    "WorkerId",
    "amounts",
    "numbers",
]

Brokers = Annotated[
    str,
    typer.Option(
        "--brokers",
        metavar="HOST:PORT,…",
        help="Any of the brokers; the leader is found from there.",
        show_default="the leader, by ZooKeeper",
    ),
]
Log = Annotated[str, typer.Option("--log", help="Name of the broker's log, by which ZooKeeper names the leader.")]
WorkerId = Annotated[
    str, typer.Option("--worker-id", help="Stable name of this worker.", show_default="host and process id")
]
Location = Annotated[str, typer.Option(help="Where it runs, for people.", show_default="host and process id")]
Tasks = Annotated[
    str,
    typer.Option(
        "--tasks",
        metavar="MODULE[:ATTRIBUTE],…",
        help="Modules whose @task functions it runs; or one function, for every type.",
    ),
]
ExecutorKind = Annotated[str, typer.Option("--executor", help="thread, process, subprocess, asyncio.")]
Command = Annotated[
    str,
    typer.Option(
        "--command", metavar="TEMPLATE", help="What --executor subprocess runs: {type}, {task_id} … are filled in."
    ),
]
Threads = Annotated[int, typer.Option("--threads", min=1, max=THREADS_MAX, help="Tasks at once.")]
Types = Annotated[
    str,
    typer.Option(
        metavar="TYPE[=N],…",
        help="Task types, and how many of each at once; * stands for each type that is not named.",
        show_default="all that it has functions for",
    ),
]
Groups = Annotated[str, typer.Option(metavar="N,…", help="Groups served, best first; 0 = all that are not named.")]
ExcludedGroups = Annotated[str, typer.Option(metavar="N,…", help="Groups that 0 does not stand for.")]
Resources = Annotated[str, typer.Option(metavar="NAME=N,…", help="Amounts of resources at once on this worker.")]
TenantShare = Annotated[
    int, typer.Option(min=0, max=100, help="Most of a type's threads that one tenant may have, in percent; 0 = all.")
]
DrainS = Annotated[float, typer.Option(min=0, help="After SIGTERM, what runs may take so long to end.")]
CancelS = Annotated[
    float, typer.Option(min=0, help="A cancelled run may take so long to end before its process is killed.")
]
LoadS = Annotated[float, typer.Option(min=0.1, help="Longest import of task code in a child process.")]
MemoryMb = Annotated[int, typer.Option(min=0, help="Address space of a child process, in MiB; 0 = no bound.")]
CodeDir = Annotated[
    Path | None,
    typer.Option(help="Where archives of code pools are unpacked.", show_default="the folder for temporary files"),
]
TlsCert = Annotated[
    str | None,
    typer.Option(
        metavar="PEM", envvar=["RSM_WORKER__TLS_CERT", "RSM_STORE__TLS_CERT"], help="Certificate shown to brokers."
    ),
]
TlsKey = Annotated[
    str | None,
    typer.Option(metavar="PEM", envvar=["RSM_WORKER__TLS_KEY", "RSM_STORE__TLS_KEY"], help="Its private key."),
]
TlsCa = Annotated[
    str | None,
    typer.Option(
        metavar="PEM", envvar=["RSM_WORKER__TLS_CA", "RSM_STORE__TLS_CA"], help="Who signs the brokers' certificates."
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", envvar=["RSM_WORKER__TOKEN_FILE", "RSM_STORE__TOKEN_FILE"], help="Holds the cluster's token."
    ),
]
Conf = Annotated[Path | None, configured("worker")]


def amounts(text: str, option: str, default: int | None = None) -> dict[str, int]:
    """Read "name=4,other=1".

    Args:
        text: As it was typed.
        option: For the error.
        default: Of a name without an amount; None = it needs one.

    Raises:
        UsageError: It is something else, or names one twice.

    """
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = part.rpartition("=") if "=" in part else (part, "", "")
        amount = int(number) if number.isdecimal() else default
        if not name or (equals and not number.isdecimal()) or amount is None:
            raise UsageError(f"{option} {text!r}: expected name=number, with commas between them; {part!r} is none")
        if name in found:
            raise UsageError(f"{option} {text!r}: {name!r} is named twice")
        found[name] = amount
    return found


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Read "1,2,0".

    Raises:
        UsageError: It is something else.

    """
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"{option} {text!r}: expected numbers with commas between them, for example 1,0") from None
