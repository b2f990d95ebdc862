"""Serves an HTTP API on the event loop of its process: uvicorn, without its hold on process and signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, Self, TypeVar

import msgspec
import uvicorn

from ledger.errors import UsageError
from ledger.http.acceptor import Acceptor, listen
from ledger.http.api_settings import ApiSettings
from ledger.http.asgi import Receive, Scope, Send
from ledger.http.connection import HttpConnection, last_answer
from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots
from ledger.http.origins import HostCheck
from ledger.http.problems import HttpProblem, retry_after
from ledger.http.tokens import Tokens
from ledger.open_files import allow_files
from ledger.tls import TlsSettings, is_loopback, server_context

_LOGGER = logging.getLogger(__name__)
_SWEEP_S = 1.0
_PORTS = 2
"""Number of ports that share the files of a process; the workers' is the other one."""
_CANCEL_S = 1.0


class ApiEdge(Protocol):
    """Application of an API, as far as its server needs it: an ASGI application with seats for its connections."""

    @property
    def seats(self) -> ConnectionSlots:
        """Seats of its connections."""

    def close(self) -> None:
        """End what waits for a long time: the server stops."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""


_Edge = TypeVar("_Edge", bound=ApiEdge)


class ApiServer(Generic[_Edge]):
    """See the module. It listens from the moment it is made, and serves between `start` and `stop`.

    Args:
        settings: See `ApiSettings`.
        make_edge: Returns the ASGI application, of these settings, the names under which it is asked, and who may.
        rate_tasks_per_s: See `Tokens`.
        is_guarded: Who may ask is decided behind it, by what the edge has: neither tokens nor TLS are demanded here.
        ports: Number of ports that share the open files of the process.

    Attributes:
        address: "host:port" that clients are told.
        url: The same as a URL.
        edge: The ASGI application, for who has another server.

    Raises:
        UsageError: TLS or tokens are missing where they are needed, a file cannot be used, or the port is taken.

    """

    def __init__(
        self,
        settings: ApiSettings,
        make_edge: Callable[[ApiSettings, HostCheck, Tokens | None], _Edge],
        *,
        rate_tasks_per_s: float = 0.0,
        is_guarded: bool = False,
        ports: int = _PORTS,
    ) -> None:
        settings = msgspec.structs.replace(settings, connections_max=_connections_max(settings.connections_max, ports))
        self._settings = settings
        if not is_guarded:
            _check_exposure(settings)
        self._tls = _tls(settings)
        tokens = None
        file = settings.principals or settings.tokens_file
        if file is not None:
            tokens = Tokens(
                file, rate_per_s=settings.rate_per_s, rate_burst=settings.rate_burst,
                rate_tasks_per_s=rate_tasks_per_s, rate_bytes_per_s=settings.rate_bytes_per_s,
                now_s=time.monotonic(), is_strict=settings.principals is not None,
            )  # fmt: skip
        self._socket = _listen(settings.bind, settings.port)
        port = self._socket.getsockname()[1]
        self.address = _advertised(settings.advertise, settings.bind, port)
        self.url = f"{'https' if self._tls else 'http'}://{self.address}"
        names = [*settings.allowed_hosts]
        if settings.advertise and names:
            names.append(_host(self.address))
        hosts = HostCheck(settings.bind, names, is_encrypted=self._tls is not None)
        self.edge = make_edge(settings, hosts, tokens)
        sweep_s = min(_SWEEP_S, settings.read_head_s, settings.read_body_s, settings.idle_s, settings.write_s)
        self._server = _Server(self._config(), self._door, sweep_s)
        self._serving: asyncio.Task[None] | None = None

    def _door(self, server: uvicorn.Server) -> Acceptor:
        seats, settings = self.edge.seats, self._settings

        def make(seat: ConnectionSlot) -> HttpConnection:
            return HttpConnection(
                settings=settings, seats=seats, seat=seat, config=server.config, server_state=server.server_state,
                app_state={},
            )  # fmt: skip

        full = HttpProblem(
            503, "too-many-connections", "so many connections are open here, or from your address, that there is no "
            "room for one more: ask another server, or later", headers=retry_after(1),
        )  # fmt: skip
        return Acceptor(
            self._socket, seats, make, tls=self._tls, first_byte_s=min(settings.read_head_s, settings.idle_s),
            handshake_s=settings.handshake_s, full=last_answer(full),
        )  # fmt: skip

    def _config(self) -> uvicorn.Config:
        tls = self._tls
        return uvicorn.Config(
            self.edge,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # What it says below that, any client can make it say; a thousand times a second.
            log_level="error",
            access_log=False,
            # What a proxy says of its client is not believed.
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, round(self._settings.drain_s)),
            ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        )

    async def start(self) -> None:
        """Serve from now on."""
        assert self._serving is None, "a server starts once"
        self._serving = asyncio.get_running_loop().create_task(self._server.serve([self._socket]))
        started = asyncio.get_running_loop().create_task(self._server.ready.wait())
        await asyncio.wait([started, self._serving], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._serving.done():
            self._serving.result()

    async def stop(self) -> None:
        """Take no more, let what runs end (`drain_s` at most); long polls answer what is, streams of events end."""
        self.edge.close()
        if self._serving is None:
            self._socket.close()
            return
        self._server.leave()
        await asyncio.wait([self._serving])
        self._socket.close()

    @property
    def connection_count(self) -> int:
        """Number of open connections, from accept on."""
        return self.edge.seats.taken

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()


class _Server(uvicorn.Server):
    """uvicorn's server as a part of a process: signals are its owner's, and its clock ticks once a second."""

    def __init__(self, config: uvicorn.Config, door: Callable[[uvicorn.Server], Acceptor], sweep_s: float) -> None:
        super().__init__(config)
        self._door = door(self)
        self._sweep_s = sweep_s
        self.ready = asyncio.Event()
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """End serving."""
        self.should_exit = True
        self._leaving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        del sockets
        self._door.open()
        self.started = True
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let what runs end within the time for it, break off what is left."""
        del sockets
        await self._door.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            _, late = await asyncio.wait(list(state.tasks), timeout=self.config.timeout_graceful_shutdown)
            for task in late:
                task.cancel("the server stops")
            if late:
                await asyncio.wait(late, timeout=_CANCEL_S)
        for connection in list(state.connections):
            assert isinstance(connection, HttpConnection)
            connection.leave()

    async def main_loop(self) -> None:
        """Keep the date, and look after slow connections, once a second."""
        loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            now_s = loop.time()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, HttpConnection)
                connection.sweep(now_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._sweep_s):
                    await self._leaving.wait()


def _connections_max(wanted: int, ports: int = _PORTS) -> int:
    """Return how many connections are taken: never so many that the process could open no other file."""
    bound = allow_files(wanted, ports=ports)
    if bound < wanted:
        _LOGGER.info("HTTP takes %d connections, not %d: the process may open too few files (ulimit -n)", bound, wanted)
    return bound


def _check_exposure(settings: ApiSettings) -> None:
    if is_loopback(settings.bind):
        return
    missing = [
        name
        for name, value in (("a certificate (--http-tls-cert, --http-tls-key)", settings.tls_cert),
                            ("tokens (--tokens-file, or --principals)", settings.principals or settings.tokens_file))
        if value is None
    ]  # fmt: skip
    if missing:
        raise UsageError(
            f"cannot serve HTTP on {settings.bind} without {' and '.join(missing)}: beyond loopback a server needs TLS "
            "and tokens. Give them, or use --http-bind 127.0.0.1"
        )


def _tls(settings: ApiSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None:
        return None
    files = TlsSettings(cert=settings.tls_cert, key=settings.tls_key, ca=settings.tls_client_ca)
    return server_context(files, alpn=("http/1.1",))


def _listen(bind: str, port: int) -> socket.socket:
    try:
        return listen(bind, port)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot serve HTTP on {bind}:{port}: {why}; --http-port 0 finds a free port") from error


def _advertised(advertise: str, bind: str, port: int) -> str:
    if not advertise:
        return f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
    return advertise if _host(advertise) != advertise else f"{advertise}:{port}"


def _host(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() and (":" not in host or host.endswith("]")) else address
