"""A warm server: a process whose session of Spark serves Spark Connect to applications that a worker starts beside it.

One line of JSON each, on standard input what is asked, on standard output what is told:

    <- {"application_id": "local-1", "ui": "http://host:4040"}            once, when it serves
    -> {"number": 1, "open": [7, 12], "conf": {"spark.sql.shuffle.partitions": "8"}}
    <- {"number": 1, "remote": "sc://localhost:1/;…", "token": "…", "session_id": "…", "jobs": "…"}
    -> {"number": 2, "close": [7, 12]}
    <- {"number": 2}
    <- {"number": 2, "error": "…"}                                        in the place of either answer

A run is named by the numbers of task and assignment. The process ends with its standard input, and with its JVM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from connectors.pool.connect_server import TOKEN_VARIABLE, ConnectServer, connect_settings, session_user
from ledger.decoding import json_decoder

_SERVED = {
    # The worker closes sessions when their runs are over, however long they have asked nothing.
    "spark.connect.session.manager.defaultSessionTimeout": "-1",
    # What one application brings along is not there for another one.
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.ui.port": "0",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_CLOSED_AT_ONCE = 16
_ERROR_LENGTH_MAX = 500
_JOBS = "SparkConnect_OperationTag_User_"
"""Beginning of a tag that Spark Connect gives each job; the user follows."""


class AskedOfServer(msgspec.Struct, frozen=True):
    """Line that a warm server is sent: a session is opened, or those of a run are closed."""

    number: int
    open: tuple[int, int] | None = None
    conf: dict[str, str] = {}
    close: tuple[int, int] | None = None


def main() -> None:
    """Serve until standard input ends."""
    # What a JVM or code prints is no answer.
    answers = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)
    telling = threading.Lock()

    def tell(told: dict[str, Any]) -> None:
        with telling:
            answers.write(msgspec.json.encode(told) + b"\n")

    # Not above: the lines that are asked are read without Spark in tests.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder
    for name, value in (connect_settings() | _SERVED).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    context: Any = spark.sparkContext
    server = ConnectServer(spark)
    threading.Thread(target=_end_with, args=(context._gateway.proc.wait,), name="rsm-jvm", daemon=True).start()
    with server.holding_port(), ThreadPoolExecutor(_CLOSED_AT_ONCE, "rsm-close") as threads:
        tell({"application_id": context.applicationId, "ui": context.uiWebUrl or ""})
        for line in sys.stdin.buffer:
            asked = json_decoder(AskedOfServer).decode(line)
            if asked.close is None:
                tell(answer(server, asked))  # At once: what comes later closes it.
            else:
                threads.submit(_close, server, asked, tell)
        _end_with(lambda: None)


def _close(server: ConnectServer, asked: AskedOfServer, tell: Callable[[dict[str, Any]], None]) -> None:
    tell(answer(server, asked))


def answer(server: ConnectServer, asked: AskedOfServer) -> dict[str, Any]:
    """Do what a line asks, and return what is told."""
    told: dict[str, Any] = {"number": asked.number}
    try:
        if asked.open is not None:
            session_id = server.open_session(*asked.open, settings=asked.conf)
            user = session_user(*asked.open)
            address = f"sc://localhost:{server.port}/;user_id={user};session_id={session_id}"
            told |= {"remote": address, "token": server.environment[TOKEN_VARIABLE]}
            told |= {"session_id": session_id, "jobs": f"{_JOBS}{user}_Session_"}
        if asked.close is not None:
            server.close_sessions(*asked.close)
    except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for an answer
        said = getattr(error, "java_exception", None)
        text = str(said.getMessage()) if said is not None else f"{type(error).__name__}: {error}"
        told["error"] = text[:_ERROR_LENGTH_MAX]
    return told


def _end_with(wait: Callable[[], Any]) -> None:
    wait()
    os.kill(os.getpid(), signal.SIGKILL)
