"""`rsm zookeeper run`, `ready` and `jars`: ZooKeeper's server, alone or of an ensemble."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ledger.configuration import process_command
from ledger.options import Option
from ledger.zookeeper_server.jars import default_folder, fetch_jars
from ledger.zookeeper_server.probe import answers
from ledger.zookeeper_server.server import write_files, zookeeper_command
from ledger.zookeeper_server.settings import ZooKeeperSettings

if TYPE_CHECKING:
    # Only a server with certificates needs it.
    import ssl

_POLL_S = 0.2

app = typer.Typer(
    no_args_is_help=True,
    help="ZooKeeper's server: who leads, and which ledgers make a log.\n\n"
    "Example: rsm zookeeper run --data-dir /var/lib/rsm-spark/zookeeper",
)
_Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


class ZooKeeperOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All that `rsm zookeeper run` and `ready` take."""

    zookeeper: ZooKeeperSettings
    json: Annotated[bool, Option("Print one line of JSON.")] = False


@app.command()
@process_command("zookeeper")
def run(given: ZooKeeperOptions) -> None:
    """Run ZooKeeper's server until SIGTERM: this process becomes Java.

    Alone on this machine, or with --server-id and --servers as one of three (or five), which go on while most of them
    live. Its JARs are checked by hash at each start.

    Example: rsm zookeeper run --data-dir /srv/zk --bind 10.0.0.1 --server-id 1
    --servers 1=10.0.0.1,2=10.0.0.2,3=10.0.0.3 --tls-cert zk.pem --tls-key zk.key --tls-ca ca.pem
    """
    settings = given.zookeeper
    config = write_files(settings)
    command = zookeeper_command(settings)
    address = f"{settings.bind}:{settings.port}"
    if given.json:
        print(msgspec.json.encode({"address": address, "config": str(config), "pid": os.getpid()}).decode(), flush=True)
    else:
        secured = "TLS" if settings.tls_cert else "plain text"
        print(f"ZooKeeper starts for clients at {address} ({secured}), as {config} says", flush=True)
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


@app.command()
@process_command("zookeeper")
def ready(
    given: ZooKeeperOptions,
    wait_s: Annotated[float, typer.Option("--wait-s", min=0, help="Wait so long for it.")] = 0.0,
) -> None:
    """Tell whether the server serves sessions: exit code 0 or 1. One without most of its ensemble does not.

    It takes the options and the file of `rsm zookeeper run`.

    Example: rsm zookeeper ready --conf /etc/rsm-spark/zookeeper.toml --wait-s 60
    """
    settings = given.zookeeper
    serves = asker_of(settings)
    end_s = time.monotonic() + wait_s
    while not (is_ready := serves()) and time.monotonic() < end_s:
        time.sleep(_POLL_S)
    address = f"{settings.bind}:{settings.port}"
    if given.json:
        print(msgspec.json.encode({"ready": is_ready, "address": address}).decode())
    else:
        print(f"{address} {'serves' if is_ready else 'does not serve: not started, or most of its ensemble is away'}")
    raise typer.Exit(0 if is_ready else 1)


@app.command()
def jars(
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Folder with the JARs, or folder or URL of a Maven repository.",
            show_default="an installed pyspark, else the command mvn",
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder that gets them.", show_default="where `run` looks first")
    ] = None,
    json: _Json = False,
) -> None:
    """Bring ZooKeeper's JARs onto this machine, each checked by its hash.

    Examples:
        rsm zookeeper jars

        rsm zookeeper jars --from /mnt/repository --to /opt/zookeeper-jars

    """

    def say(words: str) -> None:
        if not json:
            print(words, file=sys.stderr, flush=True)

    folder = fetch_jars(to or default_folder(), source, say=say)
    print(msgspec.json.encode({"folder": str(folder)}).decode() if json else folder)


def asker_of(settings: ZooKeeperSettings) -> Callable[[], bool]:
    """Return what tells whether the server of these settings serves.

    Raises:
        UsageError: A certificate cannot be used.

    """
    context: ssl.SSLContext | None = None
    if settings.tls_cert is not None:
        from ledger.tls import TlsSettings, client_context  # noqa: PLC0415 - a plain server needs none

        files = TlsSettings(cert=settings.tls_cert, key=settings.tls_key, ca=settings.tls_ca, check_hostname=False)
        context = client_context(files)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.bind, settings.bind)
    return lambda: answers(host, settings.port, tls=context)
