"""One `KazooClient` from its start to its end, with what kazoo leaves to luck.

* kazoo wakes its connection thread by a byte in a blocking pair of sockets, for each call, on the caller's thread.
  While it is not connected nobody reads them: after some 278 calls the caller would stand still. Here that end of the
  pair never blocks. A byte that finds no room is not needed: the pair then holds more bytes than calls are let through.
* Any exception that kazoo does not know ends its connection thread, and nothing ever starts another one. Here the end
  of each of its threads is told.
* A thread that stands still, in a look-up of a name for example, is known by the attempts that it does not make.
* With TLS kazoo trusts the system's authorities beside the one that it was given, and checks no names unless told to.
  Here connections are encrypted by the context that bookies' clients have, made anew when a file has changed.
* Why a server was not connected to, kazoo only logs. Here the last reason is kept for whoever waits.
* With a session of two seconds, kazoo leaves a server whose answer to a ping takes half a second, and with it the
  replies to all that is under way. A server answers pings behind the writes that wait for its disk: where that is slow,
  no write would ever have a reply. Here a server that says nothing is left later, and asked for more signs of life.

Only documented parts of kazoo are built upon: the handler that makes sockets and threads for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Connect
from kazoo.retry import KazooRetry

from ledger.ports import NodeChange
from ledger.tls import ClientContexts, describe_tls_error
from ledger.zookeeper.tls_file import TLS_FILE_VARIABLE

_LOGGER = logging.getLogger(__name__)
_ALONE_S_MIN = 5.0
"""Silence for which a server is not left where there is no other: a new connection to it brings nothing."""


class WakeUpSocket(socket.socket):
    """The end of kazoo's wake-up pair that callers write to: it never blocks."""

    def send(self, data: Any, flags: int = 0) -> int:
        """Send; what finds no room is dropped, since the reader has been woken up by what is there."""
        try:
            return super().send(data, flags)
        except BlockingIOError:
            return len(data)


class WatchedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Makes kazoo's sockets and threads, and says when one of its threads has ended.

    Args:
        on_end: Called on the thread that ends, with the reason.
        tls: Gives the context for encrypted connections; None = they are plain.

    Attributes:
        progress_s: `time.monotonic` of the last attempt to connect.
        refusal: Why the last attempt to connect failed, "" since one was answered.
        connection: Kazoo's connection; None = not known.
        silence_s_max: A server is not left before it has said nothing for so long.

    """

    def __init__(self, on_end: Callable[[str], None], tls: ClientContexts | None = None) -> None:
        super().__init__()
        self._on_end = on_end
        self._tls = tls
        self._tried = ""
        self._heard_s = time.monotonic()
        self.connection: Any = None
        self.silence_s_max = 0.0
        self.progress_s = time.monotonic()
        self.refusal = ""

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """Return the reader's end and the writer's, which never blocks."""
        reader, writer = super().create_socket_pair()
        wake_up = WakeUpSocket(fileno=writer.detach())
        wake_up.settimeout(0)  # it never blocks
        return reader, wake_up

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], others: Sequence[Any], timeout: float | None = None
    ) -> Any:
        """Wait until something can be done; bytes that TLS has decrypted and nobody has read count too."""
        if any(isinstance(reader, ssl.SSLSocket) and reader.pending() for reader in readers):
            found = super().select(readers, writers, others, 0)
            decrypted = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
            self._heard_s = time.monotonic()
            return [*decrypted, *(one for one in found[0] if one not in decrypted)], found[1], found[2]
        found = super().select(readers, writers, others, timeout)
        self._judge_silence(found[0])
        return found

    def _judge_silence(self, ready: Sequence[Any]) -> None:
        """Have kazoo ask for another sign of life, instead of leaving the server, while it may be silent."""
        connection, now_s = self.connection, time.monotonic()
        if connection is None:
            return
        if getattr(connection, "_socket", None) in ready:
            self._heard_s = now_s
        elif not ready and now_s - self._heard_s < self.silence_s_max:
            connection.ping_outstanding.clear()

    def create_connection(self, address: tuple[str, int], hostname: str, **options: Any) -> Any:
        """Connect to a server, and take note that it was tried, and of what came of it."""
        self.progress_s = self._heard_s = time.monotonic()
        self._tried = f"{hostname}:{address[1]}"
        try:
            if self._tls is None:
                return super().create_connection(address, hostname, **options)
            return _encrypted(self._tls.newest(), address, hostname, options.get("timeout"))
        except OSError as error:
            self.take_note(error)
            raise

    def take_note(self, error: BaseException | None) -> None:
        """Keep why the server that was tried last is not connected; None = it has answered."""
        self.refusal = "" if error is None else f"{self._tried}: {self._said(error)}"

    def _said(self, error: BaseException) -> str:
        cause = error if isinstance(error, OSError) else error.__context__
        if isinstance(cause, ssl.SSLError):
            return describe_tls_error(cause, peer="ZooKeeper")
        if not isinstance(error, OSError):
            # It took the connection, and did not take what it was asked first.
            hint = (
                f"is it a port for TLS? Then {TLS_FILE_VARIABLE} must name a file of certificates"
                if self._tls is None
                else "it may demand a certificate of its clients (set `cert` and `key`), or be a port without TLS"
            )
            return f"it began no session ({error}); {hint}"
        return str(error.strerror or error)

    def spawn(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Run this on a thread of its own, and tell of its end."""

        def watched() -> None:
            reason = "it returned"
            try:
                work(*arguments, **options)
            except BaseException as error:
                reason = f"{type(error).__name__}: {error}"
                raise
            finally:
                self._on_end(reason)

        def quiet() -> None:
            with contextlib.suppress(BaseException):  # It has been told.
                watched()

        return super().spawn(quiet)


class ChangingClient(KazooClient):  # type: ignore[misc]
    """Kazoo's client, with transactions as one call."""

    def change_async(self, changes: Sequence[tuple[NodeChange, Any]]) -> Any:
        """Send several changes, each with the ACL of a node that it creates, as one transaction."""
        transaction = self.transaction()
        for (path, value, version), acl in changes:
            if value is None:
                transaction.delete(path, version)
            elif version is None:
                transaction.create(path, value, acl)
            else:
                transaction.set_data(path, value, version)
        return transaction.commit_async()


class KazooLink:
    """A client, started once; after a fault another one takes its place.

    Args:
        hosts: Servers as "host:port".
        loop: The event loop that calls are made on.
        session_timeout_ms: Asked for.
        auth: (scheme, credential), if there is a log-in.
        tls: Gives the context for encrypted connections; None = they are plain.
        on_answer: Called on the loop whenever a call has ended in kazoo, whether anybody still waits for it or not.
        on_state: Called on a thread of kazoo's with kazoo's state.
        on_fault: Called on any thread when one of kazoo's threads has ended by itself.

    Attributes:
        granted_ms: Time-out that the server has granted; 0 before the first connection.

    """

    def __init__(
        self,
        hosts: Sequence[str],
        loop: asyncio.AbstractEventLoop,
        *,
        session_timeout_ms: int,
        auth: tuple[str, str] | None,
        tls: ClientContexts | None,
        on_answer: Callable[[KazooLink], None],
        on_state: Callable[[KazooLink, str], None],
        on_fault: Callable[[], None],
    ) -> None:
        self.granted_ms = 0
        self._loop = loop
        self._on_answer = on_answer
        self._on_state = on_state
        self._on_fault = on_fault
        self._ended = ""
        self._is_stopping = False
        self._answered_s = time.monotonic()
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        self._handler = WatchedHandler(self._thread_ended, tls)
        self.client = ChangingClient(
            hosts=",".join(hosts),
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            auth_data=[auth] if auth else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
            command_retry=KazooRetry(max_tries=0),
            logger=_quiet_log(),
        )
        self._hear_of_grants()

    @property
    def session_id(self) -> int:
        """Id of the present session, 0 while there is none."""
        identity = self.client.client_id
        return int(identity[0] or 0) if identity else 0

    @property
    def refusal(self) -> str:
        """Error of the last attempt to connect, with the server's name; "" since an attempt succeeded."""
        return self._handler.refusal

    def start(self) -> None:
        """Begin to connect, and go on for ever."""
        self.client.add_listener(self._state_on_thread)
        self.client.start_async()

    async def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Make a call of kazoo's and wait for its reply.

        Raises:
            Exception: Kazoo's own.

        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def done_on_thread(result: Any) -> None:
            self._answered_s = time.monotonic()
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self._settle, future, result)

        try:
            getattr(self.client, name)(*arguments).rawlink(done_on_thread)
        except BaseException:
            self._on_answer(self)
            raise
        self._unanswered[future] = None
        try:
            return await future
        finally:
            self._unanswered.pop(future, None)

    def fail_unanswered(self, reason: str) -> None:
        """Tell whoever waits for a reply that none will come."""
        for future in list(self._unanswered):
            if not future.done():
                future.set_exception(ConnectionClosedError(reason))

    def _settle(self, future: asyncio.Future[Any], result: Any) -> None:
        self._on_answer(self)
        if future.done():
            return  # timed out or cancelled: whoever asked has been told that the outcome is unknown
        if result.successful():
            future.set_result(result.value)
        else:
            future.set_exception(result.exception)

    def fault(self, now_s: float, *, stuck_s: float, is_waited_for: bool) -> str:
        """Say what is wrong with it; "" if nothing is.

        Args:
            now_s: `time.monotonic`.
            stuck_s: How long nothing may happen while something is waited for.
            is_waited_for: Whether calls have no reply yet.

        """
        if self._ended:
            return f"a thread of its client has ended ({self._ended})"
        quiet_s = now_s - max(self._answered_s, self._handler.progress_s)
        if quiet_s <= stuck_s:
            return ""
        if not self.client.connected:
            return f"its client has not tried to connect for {quiet_s:.0f} s"
        return f"its client has answered nothing for {quiet_s:.0f} s" if is_waited_for else ""

    def answered(self, now_s: float) -> None:
        """Take note of a sign of life."""
        self._answered_s = now_s

    async def stop(self, limit_s: float) -> None:
        """End the session, and wait for that up to a limit; what is not over by then goes on by itself.

        The thread is a daemon and not the event loop's: an interpreter that ends does not wait for it.
        """
        self._is_stopping = True
        self.client.remove_listener(self._state_on_thread)
        over: asyncio.Future[None] = self._loop.create_future()

        def stop_on_thread() -> None:
            with contextlib.suppress(Exception):
                self.client.stop()
            with contextlib.suppress(Exception):
                self.client.close()
            with contextlib.suppress(RuntimeError):  # The loop has been closed meanwhile.
                self._loop.call_soon_threadsafe(_set, over)

        threading.Thread(target=stop_on_thread, name="zookeeper-stop", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await over

    def _state_on_thread(self, state: str) -> None:
        self._answered_s = time.monotonic()
        self._on_state(self, state)

    def _thread_ended(self, reason: str) -> None:
        if not self._is_stopping:
            self._ended = self._ended or reason
            self._on_fault()

    def _hear_of_grants(self) -> None:
        """Take note of the time-out that the server grants, or of its refusal: kazoo keeps both to itself."""
        connection = getattr(self.client, "_connection", None)
        invoke = getattr(connection, "_invoke", None)
        if invoke is None or not hasattr(connection, "ping_outstanding"):
            return  # Another kazoo than those we know: the time-out granted stays unknown.
        self._handler.connection = connection

        def invoke_on_thread(timeout_s: float, request: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(request, Connect) and not request.session_id:
                # It is written down first. Kazoo gives each of several servers a part of the time that it may take.
                timeout_s = max(timeout_s, request.time_out / 1000)
            try:
                answer = invoke(timeout_s, request, *arguments, **options)
            except Exception as error:
                self._handler.take_note(error)
                raise
            self._handler.take_note(None)
            if isinstance(answer, tuple):
                self.granted_ms = getattr(answer[0], "time_out", self.granted_ms)
                self._handler.silence_s_max = silence_s_max(self.granted_ms / 1000, len(self.client.hosts))
            return answer

        connection._invoke = invoke_on_thread  # type: ignore[union-attr]


def silence_s_max(granted_s: float, server_count: int) -> float:
    """Return how long a server may say nothing before it is left.

    Args:
        granted_s: Time for which the session outlives its client's silence.
        server_count: That the client knows. If there are others, one of them must hear of it in time.

    """
    return granted_s / 2 if server_count > 1 else max(_ALONE_S_MIN, 2 * granted_s)


def _encrypted(
    context: ssl.SSLContext, address: tuple[str, int], hostname: str, timeout_s: float | None
) -> ssl.SSLSocket:
    """Connect and shake hands; the certificate is that of `hostname`, or this raises."""
    plain = socket.create_connection(address, timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(plain, server_hostname=hostname)
    except BaseException:
        plain.close()
        raise


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _quiet_log() -> logging.Logger:
    """Return a logger that keeps kazoo's line per failed attempt to itself: what matters is told by the session."""
    log = _LOGGER.getChild("kazoo")
    if log.level == logging.NOTSET:
        log.setLevel(logging.CRITICAL)
    return log
