"""JSON lines between the conductor and its processes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any


def say(message: Mapping[str, Any]) -> None:
    """Write one line to standard output."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def listen(on_message: Callable[[dict[str, Any]], None]) -> asyncio.Task[None]:
    """Call `on_message` on the loop for each line of standard input; the task ends with the input."""
    return asyncio.get_running_loop().create_task(_read(on_message))


async def _read(on_message: Callable[[dict[str, Any]], None]) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        on_message(json.loads(line))
