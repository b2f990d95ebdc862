"""Settings of one server of ZooKeeper, alone or of an ensemble."""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

import msgspec

from ledger.errors import UsageError
from ledger.options import NAMES, Option
from ledger.path_units import PATH

PORT: Final = 2181
"""Port of ZooKeeper for clients, where they look by default."""
_QUORUM_PORT: Final = 2888
_ELECTION_PORT: Final = 3888
_SERVER = re.compile(r"(\d{1,3})=(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}):(\d{1,5}))?")
_SERVER_ID_MAX = 255


class EnsembleServer(NamedTuple):
    """One server of an ensemble, as all servers of it are told.

    Attributes:
        server_id: 1 to 255, for life.
        host: Name or address, an IPv6 one in brackets.
        quorum_port: The leader listens there for the others.
        election_port: Every server listens there for votes.

    """

    server_id: int
    host: str
    quorum_port: int = _QUORUM_PORT
    election_port: int = _ELECTION_PORT


class ZooKeeperSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a server. Times are ZooKeeper's ticks of 500 ms, so that sessions may last from 1 s to 10 s."""

    data_dir: Annotated[str, Option("Folder of its data, and of the files that are made for Java.", unit=PATH)]
    bind: Annotated[str, Option("Address for clients.")] = "127.0.0.1"
    port: Annotated[int, Option("Port for clients.", ge=1, le=65535)] = PORT
    server_id: Annotated[int, Option("Which of --servers this one is; 0 = it is alone.", ge=0, le=_SERVER_ID_MAX)] = 0
    servers: Annotated[
        tuple[str, ...],
        Option(
            "All servers of the ensemble, the same on each: 1=a.org,2=b.org,3=c.org. Ports are 2888 and 3888, "
            "unless said behind the host: 1=a.org:2888:3888.",
            unit=NAMES,
            metavar="SERVERS",
        ),
    ] = ()
    tls_cert: Annotated[
        str | None,
        Option("Certificate (PEM). All ports, for clients and for servers, are then for TLS alone.", unit=PATH),
    ] = None
    tls_key: Annotated[str | None, Option("Its private key (PEM, PKCS #8).", unit=PATH)] = None
    tls_ca: Annotated[
        str | None,
        Option("Authority (PEM). Clients and servers must show a certificate that it has signed.", unit=PATH),
    ] = None
    any_host: Annotated[
        bool,
        Option("Take a server's certificate of the authority for whatever host, where names are not those of the net."),
    ] = False
    insecure: Annotated[
        bool, Option("Serve in plain text, also beyond loopback. Whoever reaches it can take a log away.")
    ] = False
    heap_mib: Annotated[int, Option("Most MiB of memory for its data.", ge=32, le=65536)] = 512
    connections: Annotated[int, Option("Most connections of one address.", ge=1, le=100_000)] = 1000
    jars: Annotated[
        str | None,
        Option("Folder with its JARs.", unit=PATH, shown="that of `rsm zookeeper jars`, else pyspark's"),
    ] = None
    is_small: bool = False

    def ensemble(self) -> list[EnsembleServer]:
        """Return all servers of the ensemble; none if this one is alone.

        Raises:
            UsageError: A server is not understood, named twice, or this one is not among them.

        """
        found: dict[int, EnsembleServer] = {}
        for text in self.servers:
            match = _SERVER.fullmatch(text)
            if match is None or not 0 < int(match[1]) <= _SERVER_ID_MAX:
                raise UsageError(
                    f"--servers {text!r}: expected NUMBER=HOST or NUMBER=HOST:2888:3888, NUMBER from 1 to 255"
                )
            server = EnsembleServer(int(match[1]), match[2])
            if match[3] is not None:
                server = server._replace(quorum_port=int(match[3]), election_port=int(match[4]))
            if server.server_id in found:
                raise UsageError(f"--servers: {server.server_id} is named twice; each server has a number of its own")
            found[server.server_id] = server
        if bool(found) != bool(self.server_id) or (found and self.server_id not in found):
            raise UsageError(
                f"--server-id {self.server_id} with --servers {','.join(self.servers) or '(none)'}: the number must be "
                "one of those of the servers; a server that is alone needs neither"
            )
        return [found[number] for number in sorted(found)]
