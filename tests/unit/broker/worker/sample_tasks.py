"""Tasks of the tests: functions that end well, badly, late or never."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from broker.worker import Registry, TaskContext

plain = Registry()
coroutines = Registry()


@plain.task("echo")
def echo(context: TaskContext, payload: bytes) -> bytes:
    return payload


@plain.task("describe")
def describe(context: TaskContext, payload: bytes) -> str:
    return f"{context.tenant}/{context.type}/{context.task_id}/{context.attempt}/{context.resources}"


@plain.task("fail")
def fail(context: TaskContext, payload: bytes) -> bytes:
    raise ValueError(payload.decode())


@plain.task("number")
def number(context: TaskContext, payload: bytes) -> int:
    return 7


@plain.task("large")
def large(context: TaskContext, payload: bytes) -> bytes:
    return b"x" * int(payload)


@plain.task("exit")
def leave(context: TaskContext, payload: bytes) -> None:
    sys.exit(int(payload))


@plain.task("crash")
def crash(context: TaskContext, payload: bytes) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@plain.task("obedient")
def obedient(context: TaskContext, payload: bytes) -> None:
    """Tell where it runs, and end when it is told to."""
    context.progress(0.5, f"{os.getpid()}")
    assert context.cancelled.wait(60)
    context.check()


@plain.task("hang")
def hang(context: TaskContext, payload: bytes) -> None:
    """Tell where it runs, and hear nothing."""
    context.progress(0.25, f"{os.getpid()}")
    time.sleep(600)


@plain.task("family")
def family(context: TaskContext, payload: bytes) -> None:
    """Start another process, tell its id, and hang."""
    with subprocess.Popen(["sleep", "600"]) as child:
        context.progress(0.5, f"{child.pid}")
        time.sleep(600)


@plain.task("chatty")
def chatty(context: TaskContext, payload: bytes) -> None:
    """Tell very much, the last of it before a long silence."""
    for number in range(20_000):
        context.progress(number / 20_000, f"{number}")
    context.progress(1.0, "last")
    context.cancelled.wait(60)


@plain.task("touch")
def touch(context: TaskContext, payload: bytes) -> None:
    with Path(payload.decode()).open("a") as file:
        file.write(f"{context.assignment_id}\n")


@coroutines.task("echo")
async def async_echo(context: TaskContext, payload: bytes) -> bytes:
    await asyncio.sleep(0)
    return payload


@coroutines.task("fail")
async def async_fail(context: TaskContext, payload: bytes) -> bytes:
    raise ValueError(payload.decode())


@coroutines.task("number")
async def async_number(context: TaskContext, payload: bytes) -> int:
    return 7


@coroutines.task("large")
async def async_large(context: TaskContext, payload: bytes) -> bytes:
    return b"x" * int(payload)


@coroutines.task("obedient")
async def async_obedient(context: TaskContext, payload: bytes) -> None:
    context.progress(0.5, "here")
    await asyncio.sleep(600)


@coroutines.task("stubborn")
async def async_stubborn(context: TaskContext, payload: bytes) -> None:
    context.progress(0.5, "here")
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            if (context.stop_reason or "") == "leaving":
                raise


@coroutines.task("describe")
def mixed_in(context: TaskContext, payload: bytes) -> str:
    return describe(context, payload)
