"""Files and command of ZooKeeper's server, from its settings.

1. All is written anew at each start: `zoo.cfg`, log4j's file, `myid`, and the PEM file that Java reads its key from.
2. Beyond loopback a server demands TLS of clients and servers, and certificates of both; or it is told `insecure`.
3. Of the four-letter words `srvr` alone is answered, by which readiness is asked. There is no admin server.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path

from ledger.errors import UsageError
from ledger.private_files import FILE_MODE, make_private, refuse_loose
from ledger.zookeeper_server.errors import ZooKeeperServerError
from ledger.zookeeper_server.jars import find_jars
from ledger.zookeeper_server.java import find_java
from ledger.zookeeper_server.settings import EnsembleServer, ZooKeeperSettings

_CONFIG = "zoo.cfg"
_LOG_CONFIG = "log4j2.properties"
_KEY_STORE = "key-store.pem"
_LOG_CONFIG_TEXT = """\
status=error
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1} %m%n
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
"""
# For development: three seconds less of start, and 60 MiB less of memory.
_SMALL_JVM = ("-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_JVM = ("-XX:+ExitOnOutOfMemoryError",)


def write_files(settings: ZooKeeperSettings) -> Path:
    """Write what the server reads; the data beside it are left as they are.

    Returns:
        The configuration.

    Raises:
        UsageError: Settings that make no sense together, or that would serve strangers.
        ZooKeeperServerError: The folder cannot be used, or holds the data of another server of the ensemble.

    """
    ensemble = settings.ensemble()
    _refuse_open(settings, ensemble)
    folder = Path(settings.data_dir)
    try:
        make_private(folder)
        make_private(folder / "data")
        if settings.tls_cert is not None:
            _write_key_store(folder / _KEY_STORE, settings.tls_cert, settings.tls_key)
        if ensemble:
            _write_number(folder / "data" / "myid", settings.server_id)
        (folder / _LOG_CONFIG).write_text(_LOG_CONFIG_TEXT, encoding="utf-8")
        config = folder / _CONFIG
        lines = _config_lines(settings, folder, ensemble)
        config.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in lines), encoding="utf-8")
    except OSError as error:
        raise ZooKeeperServerError(f"{error.filename or folder}: {error.strerror or error}") from error
    return config


def zookeeper_command(settings: ZooKeeperSettings) -> list[str]:
    """Return the command that runs the server whose files `write_files` wrote.

    Raises:
        ZooKeeperServerError: There is no Java, or no JARs.

    """
    folder = Path(settings.data_dir)
    jars = find_jars(None if settings.jars is None else Path(settings.jars))
    return [
        find_java(),
        f"-Xmx{settings.heap_mib}m",
        *(_SMALL_JVM if settings.is_small else _JVM),
        "-Dzookeeper.jmx.log4j.disable=true",
        f"-Dlog4j2.configurationFile={folder / _LOG_CONFIG}",
        "-cp",
        ":".join(map(str, jars)),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(folder / _CONFIG),
    ]


def _config_lines(
    settings: ZooKeeperSettings, folder: Path, ensemble: list[EnsembleServer]
) -> Iterator[tuple[str, object]]:
    port = "clientPort" if settings.tls_cert is None else "secureClientPort"
    yield "tickTime", 500
    yield "initLimit", 120  # A minute to fetch the state from the leader.
    yield "syncLimit", 10
    yield "dataDir", folder / "data"
    yield port, settings.port
    yield f"{port}Address", settings.bind
    yield "admin.enableServer", "false"
    yield "maxClientCnxns", settings.connections
    yield "4lw.commands.whitelist", "srvr"
    yield "standaloneEnabled", "false" if ensemble else "true"
    yield "reconfigEnabled", "false"
    yield "extendedTypesEnabled", "true"
    yield "preAllocSize", 4096 if settings.is_small else 65536
    yield "autopurge.snapRetainCount", 3
    yield "autopurge.purgeInterval", 1
    for server in ensemble:
        yield f"server.{server.server_id}", f"{server.host}:{server.quorum_port}:{server.election_port}"
    if settings.tls_cert is not None:
        yield "serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory"
        yield "authProvider.x509", "org.apache.zookeeper.server.auth.X509AuthenticationProvider"
        yield "sslQuorum", "true" if ensemble else "false"
        for prefix in ("ssl", "ssl.quorum"):
            yield f"{prefix}.keyStore.location", folder / _KEY_STORE
            yield f"{prefix}.keyStore.type", "PEM"
            yield f"{prefix}.trustStore.location", settings.tls_ca
            yield f"{prefix}.trustStore.type", "PEM"
            yield f"{prefix}.clientAuth", "need"
        if settings.any_host:
            yield "ssl.quorum.hostnameVerification", "false"


def _refuse_open(settings: ZooKeeperSettings, ensemble: list[EnsembleServer]) -> None:
    files = (settings.tls_cert, settings.tls_key, settings.tls_ca)
    if any(files) and not all(files):
        raise UsageError("--tls-cert, --tls-key and --tls-ca go together: give all three of them, or none")
    hosts = [settings.bind, *(server.host.strip("[]") for server in ensemble)]
    open_host = next((host for host in hosts if not _is_loopback(host)), None)
    if open_host is not None and settings.tls_cert is None and not settings.insecure:
        raise UsageError(
            f"ZooKeeper would serve {open_host} in plain text, and everybody there could take a log away: give "
            "--tls-cert, --tls-key and --tls-ca, or --insecure if a firewall keeps strangers out"
        )


def _is_loopback(host: str) -> bool:
    # That of `ledger.tls` would bring asyncio to every `rsm up`.
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _write_key_store(path: Path, cert: str, key: str | None) -> None:
    refuse_loose(key or cert, "TLS: the key")
    text = (
        f"{Path(key or cert).read_text(encoding='ascii').strip()}\n{Path(cert).read_text(encoding='ascii').strip()}\n"
    )
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w") as file:
        file.write(text)
    new.replace(path)


def _write_number(path: Path, server_id: int) -> None:
    found = path.read_text(encoding="ascii").strip() if path.exists() else ""
    if found not in ("", str(server_id)):
        raise ZooKeeperServerError(
            f"{path} says {found!r}, and --server-id {server_id}: these are the data of another server of the "
            "ensemble; give this one a folder of its own"
        )
    path.write_text(f"{server_id}\n", encoding="ascii")


def _escaped(value: object) -> str:
    """Return a value as a file of Java's properties holds it."""
    text = str(value)
    if any(not one.isprintable() for one in text):
        raise UsageError(
            f"ZooKeeper's configuration cannot hold {text!r}: a path or an address has printable characters"
        )
    return text.replace("\\", "\\\\")
