"""`--watch`: the answer of a command again and again, the newest in place of the one before."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final, TypeVar

import typer

from ledger.errors import LedgerError, UsageError
from rsm_spark.errors import RsmError

EVERY_S: Final = 2.0
_CLEAR: Final = "\x1b[H\x1b[2J"

Connected = TypeVar("Connected")
WatchOption = Annotated[
    bool, typer.Option("--watch", help=f"Show it anew every {EVERY_S:g} s, until ctrl-C, which ends with exit code 0.")
]


def watch(
    connect: Callable[[], AbstractAsyncContextManager[Connected]],
    look: Callable[[Connected], Awaitable[Callable[[], None]]],
) -> None:
    """Look until ctrl-C; what cannot be seen now is told, and looked at again over a new connection.

    On a terminal an answer takes the place of the one before. Elsewhere they follow each other.

    Args:
        connect: To the cluster.
        look: Asks; what it returns prints the answer.

    Raises:
        UsageError: It is asked wrongly, and will never be seen.

    """
    try:
        asyncio.run(_watch(connect, look))
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        sys.stderr.close()


async def _watch(
    connect: Callable[[], AbstractAsyncContextManager[Connected]],
    look: Callable[[Connected], Awaitable[Callable[[], None]]],
) -> None:
    while True:
        try:
            async with connect() as connected:
                while True:
                    _show(await look(connected))
                    await asyncio.sleep(EVERY_S)
        except UsageError:
            raise
        except (LedgerError, RsmError) as error:
            _show(lambda error=error: typer.echo(f"rsm: {' '.join(str(error).split())}", err=True))  # type: ignore[misc]
        await asyncio.sleep(EVERY_S)


def _show(shows: Callable[[], None]) -> None:
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        sys.stdout.write(_CLEAR)
        sys.stdout.flush()
    shows()
    sys.stdout.flush()
