"""A command of the user's that runs while something is held."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence

import typer

_NOT_EXECUTABLE = 126
_NOT_FOUND = 127


async def run_child(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end, with additional variables; cancelled, end it first by SIGTERM. Return its exit code."""
    try:
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **environment})
    except FileNotFoundError:
        typer.echo(f"rsm: {command[0]}: there is no such command", err=True)
        return _NOT_FOUND
    except OSError as error:
        typer.echo(f"rsm: {command[0]}: {error.strerror}", err=True)
        return _NOT_EXECUTABLE
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    return code if code >= 0 else 128 - code
