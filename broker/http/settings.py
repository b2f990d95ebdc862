"""How a broker serves HTTP."""

from __future__ import annotations

import re

import msgspec

from ledger.errors import UsageError

__all__ = ["HttpSettings"]

_ANY_ADDRESSES = frozenset({"0.0.0.0", "::"})
_PORT_MAX = 65_535
_ADVERTISED = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how much a broker serves.

    Attributes:
        bind: Address to listen on; beyond loopback only with a certificate and tokens.
        port: 0 = the system chooses.
        advertise: "host" or "host:port" that clients use; "" = where it listens. A certificate must name this host.
        tls_cert: PEM file of the certificate, followed by those that lead to its authority; None = no TLS.
        tls_key: Its private key.
        tls_client_ca: Authorities of clients' certificates: with it nobody is served without one.
        tokens_file: See `broker.http.tokens`; None = whoever reaches the port is the administrator.
        allowed_hosts: More names under which this server is asked, behind a proxy for instance.
        rate_per_s: Requests a second of one token, on average, where its entry says nothing else; 0 = no limit.
        rate_burst: Requests of one token at once.
        requests_max: Of one token at once, those that wait for a task's end and streams of events included.
        body_bytes_max: Of one request.
        bodies_bytes_max: Of all requests that are not whole yet, together.
        connections_max: More are turned away.
        events_max: Streams of events open at once.
        read_head_s: In which the head of a request has to come.
        read_body_s: In which all of it has to come.
        idle_s: After which a connection that asks nothing is closed.
        heartbeat_s: Of a stream of events that has nothing to tell.
        write_s: In which a client has to take something of what it asked for.
        drain_s: Given to requests that run when the server stops.
        lag_ms_max: A follower whose state may be older than this is not ready.

    Raises:
        UsageError: The addresses make no sense.

    """

    bind: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    tokens_file: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    rate_per_s: float = 5_000.0
    rate_burst: int = 10_000
    requests_max: int = 1_000
    body_bytes_max: int = 8 * 1024 * 1024
    bodies_bytes_max: int = 256 * 1024 * 1024
    connections_max: int = 4_000
    events_max: int = 500
    read_head_s: float = 10.0
    read_body_s: float = 60.0
    idle_s: float = 75.0
    heartbeat_s: float = 15.0
    write_s: float = 60.0
    drain_s: float = 5.0
    lag_ms_max: int = 10_000

    def __post_init__(self) -> None:
        """Refuse addresses that nobody can call."""
        if not 0 <= self.port <= _PORT_MAX:
            raise UsageError(f"--http-port {self.port}: a port is 0 to {_PORT_MAX}; 0 = the system chooses")
        if self.bind in _ANY_ADDRESSES and not self.advertise:
            raise UsageError(
                f"--http-bind {self.bind} names no machine: tell clients what to call, --http-advertise HOST"
            )
        if self.advertise and not _ADVERTISED.fullmatch(self.advertise):
            raise UsageError(f"--http-advertise {self.advertise!r}: expected HOST, or HOST:PORT")
        if self.tls_key is not None and self.tls_cert is None:
            raise UsageError(f"TLS: there is a key ({self.tls_key}) and no certificate: give --http-tls-cert too")
