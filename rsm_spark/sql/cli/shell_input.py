"""Lines for the shell: from a terminal, with history and completion, or from whatever standard input is."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final

from ledger.private_files import FILE_MODE, make_private, state_folder
from rsm_spark.sql.cli.shell import SqlShell

_WORD: Final = re.compile(r"[.\\]?\w*$")
_LINES_AHEAD: Final = 1_000


def history_file() -> Path:
    """Return the file of lines typed before, for their owner alone."""
    folder = state_folder()
    make_private(folder)
    path = folder / "sql-history"
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, FILE_MODE))
    return path


async def converse(shell: SqlShell, complain: Callable[[Exception], None]) -> None:
    """Run what is typed at a terminal, until ctrl-D; ctrl-C ends a statement, or forgets a line.

    Args:
        shell: Takes the lines.
        complain: Hears each error; the next line follows it.

    """
    # Only a terminal needs it, and it takes a tenth of a second to import.
    from prompt_toolkit import PromptSession  # noqa: PLC0415
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion  # noqa: PLC0415
    from prompt_toolkit.document import Document  # noqa: PLC0415
    from prompt_toolkit.history import FileHistory  # noqa: PLC0415

    class _ShellCompleter(Completer):  # type: ignore[misc]  # untyped to mypy, as all that is not ours
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - its name
            found = _WORD.search(document.text_before_cursor)
            begun = found[0] if found else ""
            for word in shell.completions(begun):
                yield Completion(word, start_position=-len(begun))

    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history_file())), completer=_ShellCompleter(), complete_while_typing=False
    )
    while not shell.is_over:
        try:
            await _until_interrupted(shell.learn_names())
            line = await session.prompt_async(shell.prompt)
            await _until_interrupted(shell.take(line))
        except KeyboardInterrupt:
            shell.forget_line()
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001 - `complain` raises what is no error of a statement
            shell.forget_line()
            complain(error)


async def _until_interrupted(work: Coroutine[Any, Any, None]) -> None:
    """Run something that ctrl-C ends, and not the program with it.

    Raises:
        KeyboardInterrupt: It was ended so.

    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await asyncio.wait([task])
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    if task.cancelled():
        raise KeyboardInterrupt
    task.result()


async def read_all(shell: SqlShell) -> None:
    """Run what standard input has, until its end or the first error.

    Raises:
        SqlError, RsmError, UsageError: Of that.

    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    ahead = threading.Semaphore(_LINES_AHEAD)

    def _read() -> None:
        for line in sys.stdin:
            ahead.acquire()
            loop.call_soon_threadsafe(lines.put_nowait, line.rstrip("\n"))
        loop.call_soon_threadsafe(lines.put_nowait, "\0")  # No line: there are no more.

    # A thread that waits for standard input cannot be ended: it must not hold up the end of the program.
    threading.Thread(target=_read, name="rsm-sql-input", daemon=True).start()
    while not shell.is_over and (line := await lines.get()) != "\0":
        ahead.release()
        await shell.take(line)
    await shell.end()
