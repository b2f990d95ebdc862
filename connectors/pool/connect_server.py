"""Spark Connect in a driver's own session: sessions of programs on this machine, each of one run of a task.

The server listens on loopback and asks for a token that was made for this driver. Sessions are told apart by their
user, which names the run. When a run is over, its sessions are closed, and what they still compute is broken off; so
are sessions of users that are no run, which code may have opened besides.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from connectors.errors import OptionError, SessionSetupError

if TYPE_CHECKING:
    # Whoever has a server has loaded it.
    from pyspark.sql import SparkSession

ADDRESS_VARIABLE = "RSM_SPARK_CONNECT"
"""Variable with host and port of the server."""
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - a name, which Spark's client reads too

_LOGGER = logging.getLogger(__name__)
_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_PACKAGE = "org.apache.spark.sql.connect.service"
_CLOSE_S = 15.0
_TOKEN_SETTING = "spark.connect.authenticate.token"  # noqa: S105 - a name
_SUBMITTED_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""Variable that spark-submit sets: its JVM was there first."""


def connect_settings() -> dict[str, str]:
    """Return settings of a session that serves Spark Connect on loopback, with a token that is made here.

    The token of a JVM that is yet to be started goes into the environment: settings are on its command line, for
    everybody on the machine to see.
    """
    settings = {
        "spark.plugins": _PLUGIN,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    if os.environ.get(_SUBMITTED_VARIABLE):
        settings[_TOKEN_SETTING] = secrets.token_hex(32)
    elif not os.environ.get(TOKEN_VARIABLE):
        os.environ[TOKEN_VARIABLE] = secrets.token_hex(32)
    return settings


def session_user(task_id: int, assignment_id: int) -> str:
    """Return the user by whom the sessions of a run are known."""
    return f"task-{task_id}-{assignment_id}"


class ConnectServer:
    """See the module.

    Args:
        spark: A session with the settings of `connect_settings`.

    Attributes:
        giver: Function that a process of a run calls for its session, as "module:function".

    Raises:
        OptionError: The user's own settings keep the server away, or open to everybody.

    """

    giver = "connectors.pool.given_session:given_session"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._users: set[str] = set()
        conf = spark.sparkContext.getConf()
        if _PLUGIN not in (conf.get("spark.plugins") or "").split(","):
            raise OptionError(f"spark.plugins has to name {_PLUGIN} too: functions have their sessions of it")
        self._token = conf.get(_TOKEN_SETTING) or os.environ.get(TOKEN_VARIABLE, "")
        if not self._token:
            raise OptionError(f"{_TOKEN_SETTING} is empty: anybody on this machine could come in")

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of processes that ask `giver`."""
        return {ADDRESS_VARIABLE: f"localhost:{self.port}", TOKEN_VARIABLE: self._token}

    @property
    def port(self) -> int:
        """Port on loopback."""
        return int(self._service.localPort())

    @contextmanager
    def holding_port(self) -> Iterator[None]:
        """Hold the server's port on IPv6's loopback too, without serving it, as long as programs may ask for it.

        They ask for "localhost": to another name Spark's client shows no token without TLS. Where that name has two
        addresses, whoever had the other one's port would be asked first, and would be shown the token.

        Raises:
            SessionSetupError: Somebody has it.

        """
        port = self.port
        try:
            held = _held_port(port)
        except OSError as error:
            raise SessionSetupError(
                f"Spark Connect serves 127.0.0.1:{port}, and another process has [::1]:{port}, where programs that ask "
                "for localhost would show it their token: start it again, which takes another port"
            ) from error
        try:
            yield
        finally:
            if held is not None:
                held.close()

    def begin(self, task_id: int, assignment_id: int) -> None:
        """Hear of a run: its sessions stay until it is taken back."""
        self._users.add(session_user(task_id, assignment_id))

    def open_session(self, task_id: int, assignment_id: int, *, settings: Mapping[str, str]) -> str:
        """Open a session for a run before its process asks for it, and return its id.

        Args:
            task_id: Of the run.
            assignment_id: Of the run.
            settings: Of the session; one that is not a session's own is an error of Java's.

        """
        self.begin(task_id, assignment_id)
        session_id = str(uuid.UUID(bytes=os.urandom(16), version=4))
        key = self._package.SessionKey(session_user(task_id, assignment_id), session_id)
        jvm: Any = self._spark.sparkContext._jvm
        try:
            held = self._service.sessionManager().getOrCreateIsolatedSession(key, jvm.scala.Option.empty())
            conf = held.session().conf()
            for name, value in settings.items():
                conf.set(name, value)
        except BaseException:
            self.close_sessions(task_id, assignment_id)
            raise
        return session_id

    def close_sessions(self, task_id: int, assignment_id: int) -> None:
        """Close the sessions of a run, and those of users that are no run; what they still compute is broken off."""
        self._users.discard(session_user(task_id, assignment_id))
        sessions = self._service.sessionManager()
        listed = sessions.listActiveSessions()
        # Asked behind the list: whoever has a session there was a run before.
        users = self._users.copy()
        for place in range(listed.length()):
            one = listed.apply(place)
            if one.userId() not in users:
                sessions.closeSession(one.key(), False)  # noqa: FBT003 - Java's: nobody may come back to it

    async def take_back(self, task_id: int, assignment_id: int) -> None:
        """Close the sessions of a run; it raises nothing."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.to_thread(self.close_sessions, task_id, assignment_id)
        except Exception as error:  # noqa: BLE001 - the context is gone, and its sessions with it; or it hangs
            said = "sessions of task %d cannot be closed: %s: %s"
            _LOGGER.warning(said, task_id, type(error).__name__, error, extra={"task": task_id})

    @property
    def _service(self) -> Any:
        return getattr(getattr(self._package, "SparkConnectService$"), "MODULE$")

    @property
    def _package(self) -> Any:
        package: Any = self._spark.sparkContext._jvm
        for name in _PACKAGE.split("."):
            package = getattr(package, name)
        return package


def _held_port(port: int) -> socket.socket | None:
    """Take a port on IPv6's loopback; None = there is no such loopback."""
    try:
        held = socket.socket(socket.AF_INET6)
    except OSError:
        return None
    try:
        held.bind(("::1", port))
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            raise
        return None
    return held
