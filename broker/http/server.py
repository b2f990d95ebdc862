"""Serves API and dashboard on the event loop of the broker: uvicorn, without its hold on process and signals."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any, Self

import uvicorn

from broker.http.app import create_app
from broker.http.connection import HttpConnection
from broker.http.origins import HostCheck
from broker.http.ports import Broker
from broker.http.settings import HttpSettings
from broker.http.tokens import Tokens
from ledger.errors import UsageError
from ledger.tls import TlsSettings, server_context
from rsm_spark.grpc.security import is_loopback

__all__ = ["HttpServer"]

_log = logging.getLogger(__name__)
_BACKLOG = 1_024
_SWEEP_S = 1.0
_CANCEL_S = 1.0
_HANDSHAKE_S = 10.0
_FILES_KEPT = 256
"""Of those that the process may have open: for ZooKeeper, bookies, workers, snapshots."""


class HttpServer:
    """See the module. It listens from the moment it is made, and serves between `start` and `stop`.

    Args:
        broker: What is asked.
        settings: See `HttpSettings`.

    Attributes:
        address: "host:port" that clients are told.
        url: The same as a URL.
        edge: The ASGI application, for who has another server.

    Raises:
        UsageError: TLS or tokens are missing where they are needed, a file cannot be used, or the port is taken.

    """

    def __init__(self, broker: Broker, settings: HttpSettings) -> None:
        self._settings = settings
        _check_exposure(settings)
        self._tls = _tls(settings)
        tokens = None
        if settings.tokens_file is not None:
            tokens = Tokens(
                settings.tokens_file, rate_per_s=settings.rate_per_s, rate_burst=settings.rate_burst,
                now_s=time.monotonic(),
            )  # fmt: skip
        self._socket = _listen(settings.bind, settings.port)
        port = self._socket.getsockname()[1]
        self.address = _advertised(settings.advertise, settings.bind, port)
        self.url = f"{'https' if self._tls else 'http'}://{self.address}"
        names = [*settings.allowed_hosts]
        if settings.advertise and names:
            names.append(_host(self.address))
        hosts = HostCheck(settings.bind, names, is_encrypted=self._tls is not None)
        self.edge = create_app(broker, settings, hosts, tokens)
        sweep_s = min(_SWEEP_S, settings.read_head_s, settings.read_body_s, settings.idle_s, settings.write_s)
        self._server = _Server(self._config(), sweep_s)
        self._serving: asyncio.Task[None] | None = None

    def _config(self) -> uvicorn.Config:
        tls = self._tls
        connection: Any = functools.partial(
            HttpConnection, settings=self._settings, connections_max=_connections_max(self._settings.connections_max)
        )
        return uvicorn.Config(
            self.edge,
            http=connection,
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
            backlog=_BACKLOG,
            timeout_graceful_shutdown=max(1, round(self._settings.drain_s)),
            ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        )

    async def start(self) -> None:
        """Serve."""
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
        """Return the connections open."""
        return len(self._server.server_state.connections)

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()


class _Server(uvicorn.Server):
    """uvicorn's server as a part of a process: signals are its owner's, and its clock ticks once a second."""

    def __init__(self, config: uvicorn.Config, sweep_s: float) -> None:
        super().__init__(config)
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
        """Begin to serve; a client gets little time for its part of TLS, since it costs a file before it is known."""
        config = self.config
        make: Any = config.http_protocol_class
        assert sockets is not None
        server = await asyncio.get_running_loop().create_server(
            lambda: make(config=config, server_state=self.server_state, app_state={}),
            sock=sockets[0],
            ssl=config.ssl,
            ssl_handshake_timeout=_HANDSHAKE_S if config.ssl is not None else None,
            backlog=config.backlog,
        )
        self.servers = [server]
        self.started = True
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let what runs end within the time for it, break off what is left."""
        del sockets
        for server in self.servers:
            server.close()
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


def _connections_max(wanted: int) -> int:
    """Return how many connections are taken: never so many that the process could open no other file."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY or wanted <= allowed - _FILES_KEPT:
        return wanted
    bound = max(1, allowed - _FILES_KEPT)
    _log.info("HTTP takes %d connections, not %d: the process may open %d files (ulimit -n)", bound, wanted, allowed)
    return bound


def _check_exposure(settings: HttpSettings) -> None:
    if is_loopback(settings.bind):
        return
    missing = [
        name
        for name, value in (("a certificate (--http-tls-cert, --http-tls-key)", settings.tls_cert),
                            ("tokens (--tokens-file)", settings.tokens_file))
        if value is None
    ]  # fmt: skip
    if missing:
        raise UsageError(
            f"cannot serve HTTP on {settings.bind} without {' and '.join(missing)}: beyond loopback a broker needs TLS "
            "and tokens. Give them, or use --http-bind 127.0.0.1"
        )


def _tls(settings: HttpSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None:
        return None
    context = server_context(TlsSettings(cert=settings.tls_cert, key=settings.tls_key, ca=settings.tls_client_ca))
    context.set_alpn_protocols(["http/1.1"])
    return context


def _listen(bind: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            listening.setblocking(False)  # noqa: FBT003
        except BaseException:
            listening.close()
            raise
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot serve HTTP on {bind}:{port}: {why}; --http-port 0 finds a free port") from error
    return listening


def _advertised(advertise: str, bind: str, port: int) -> str:
    if not advertise:
        return f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
    return advertise if _host(advertise) != advertise else f"{advertise}:{port}"


def _host(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() and (":" not in host or host.endswith("]")) else address
