"""Settings of the HTTP API of a server: its address, and bounds on whoever asks."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

import msgspec

from ledger.errors import UsageError
from ledger.options import NAMES, Option

_ANY_ADDRESSES = frozenset({"0.0.0.0", "::"})
_PORT_MAX = 65_535
_ADVERTISED = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Address and bounds of an HTTP API.

    Attributes:
        principals: Who may do what, over gRPC too; instead of `tokens_file`.
        rate_burst: Requests of one tenant at once.
        requests_max: Of one token at once, those that wait for a task's end and streams of events included.
        body_bytes_max: Of one request.
        bodies_bytes_max: Of all requests that are not whole yet, together.
        events_max: Streams of events open at once.
        handshake_s: In which a client has to do its part of TLS.
        read_head_s: In which the first byte has to come, and then the head of a request has to come.
        read_body_s: In which all of it has to come.
        read_body_bytes_per_s: A body that comes as fast as this has longer; 0 = it has not.
        idle_s: After which a connection that asks nothing is closed.
        heartbeat_s: Of a stream of events that has nothing to tell.
        write_s: In which a client has to take something of what it asked for.
        drain_s: Given to requests that run when the server stops.

    Raises:
        UsageError: The addresses make no sense.

    """

    bind: Annotated[str, Option("Address to serve HTTP on.", name="http_bind")] = "127.0.0.1"
    port: Annotated[int, Option("Port of the HTTP API; 0 = any that is free.", name="http_port", ge=0, le=65535)] = 0
    advertise: Annotated[
        str,
        Option(
            "Address that HTTP clients are told.", name="http_advertise", metavar="HOST:PORT", shown="where it listens"
        ),
    ] = ""
    tls_cert: Annotated[str | None, Option("Certificate to serve HTTP with.", name="http_tls_cert", metavar="PEM")] = (
        None
    )
    tls_key: Annotated[str | None, Option("Its private key.", name="http_tls_key", metavar="PEM")] = None
    tls_client_ca: Annotated[
        str | None, Option("Serve HTTP only to callers it has signed.", name="http_tls_client_ca", metavar="PEM")
    ] = None
    tokens_file: Annotated[
        str | None,
        Option(
            "Tokens for HTTP; without it and --principals whoever reaches the HTTP port is an operator.", metavar="TOML"
        ),
    ] = None
    principals: str | None = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        Option("More names under which HTTP is asked, behind a proxy: a.org,b.org.", unit=NAMES, metavar="NAMES"),
    ] = ()
    rate_per_s: Annotated[float, Option("HTTP requests a second of one tenant; 0 = no limit.", name="rate", ge=0)] = (
        5_000.0
    )
    rate_burst: int = 10_000
    rate_bytes_per_s: Annotated[
        float, Option("Bytes of bodies that one tenant sends a second; 0 = no limit.", name="rate_bytes", ge=0)
    ] = 128 * 1024 * 1024.0
    requests_max: int = 1_000
    body_bytes_max: int = 8 * 1024 * 1024
    bodies_bytes_max: int = 256 * 1024 * 1024
    connections_max: Annotated[
        int, Option("Most HTTP connections, if the limit of open files allows them.", name="http_connections", ge=1)
    ] = 4_000
    token_part: Annotated[
        float,
        Option(
            "Largest part of HTTP connections, bytes of unfinished bodies, and event streams that one token has.",
            name="http_token_part",
        ),
    ] = 0.25
    address_part: Annotated[
        float, Option("Largest part of the same that one address has.", name="http_address_part")
    ] = 0.5
    proxies: Annotated[
        tuple[str, ...],
        Option(
            "Addresses of reverse proxies. They have no limit per address.",
            name="http_proxies",
            unit=NAMES,
            metavar="ADDRESSES",
        ),
    ] = ()
    events_max: int = 500
    handshake_s: float = 10.0
    read_head_s: float = 10.0
    read_body_s: float = 60.0
    read_body_bytes_per_s: int = 0
    idle_s: float = 75.0
    heartbeat_s: float = 15.0
    write_s: float = 60.0
    drain_s: float = 5.0

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
        for name, part in (("token", self.token_part), ("address", self.address_part)):
            if not 0 < part <= 1:
                raise UsageError(f"--http-{name}-part {part:g}: a part is more than 0, and 1 at most; a half is 0.5")
        for address in self.proxies:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise UsageError(f"--http-proxies: {address!r} is no address; a host's name is none") from None
        if self.principals is not None and self.tokens_file is not None:
            raise UsageError(
                "--tokens-file and --principals: give one. A file of principals takes [[token]] entries too"
            )
        if self.tls_key is not None and self.tls_cert is None:
            raise UsageError(f"TLS: there is a key ({self.tls_key}) and no certificate: give --http-tls-cert too")

    def of_token(self, whole: int) -> int:
        """Return what one token may have of so much."""
        return max(1, int(self.token_part * whole))

    def of_address(self, whole: int) -> int:
        """Return what one address may have of so much."""
        return max(1, int(self.address_part * whole))
