"""`node.toml`: which processes a machine runs.

    name = "a"
    http_port = 8700

    [environment]
    RSM_METADATA_URI = "zk+hierarchical://10.0.0.1:2181/ledgers"

    [[process]]
    kind = "zookeeper"

    [[process]]
    kind = "store"
    name = "orders"
    conf = "orders.toml"

Relative paths count from the folder of the file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import msgspec

from ledger.decoding import convert
from ledger.errors import UsageError
from ledger.http.settings import HttpDoorSettings
from rsm_spark.cli.config import PROCESSES, run_words

_GRACES_S: Final = {"bookie": 65, "worker": 75}
_GRACE_S: Final = 10
_NAME_LENGTH_MAX: Final = 100


class NodeProcess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process of the machine.

    Attributes:
        kind: "zookeeper", "bookie", "store", …: one of those that `rsm config` knows.
        name: Of the process; "" = its kind.
        conf: Its file; "" = its name with `.toml`.
        arguments: What is typed behind its command, beside `--conf`.
        environment: Variables of this process, over those of all.

    """

    kind: str
    name: str = ""
    conf: str = ""
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of `node.toml`.

    Attributes:
        process: The processes, in the order of their start.
        name: Of the machine, in lines and pages.
        environment: Variables of all processes, beside those that this one has.
        http_port: Of `/status` and the like; None = no port.
        http_bind: Address of that port; beyond loopback it needs certificate and token.
        allowed_hosts: More names under which it is asked.
        tls_cert: Certificate (PEM) of the port.
        tls_key: Its private key.
        token_file: Callers have to know its token.
        principals: File of principals: nobody else is answered.

    """

    process: tuple[NodeProcess, ...]
    name: str = ""
    environment: dict[str, str] = {}
    http_port: int | None = None
    http_bind: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    token_file: str | None = None
    principals: str | None = None

    def door(self) -> HttpDoorSettings:
        """Return the settings of the HTTP port."""
        return HttpDoorSettings(
            port=self.http_port,
            bind=self.http_bind,
            allowed_hosts=self.allowed_hosts,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            token_file=self.token_file,
            principals=self.principals,
        )


def read_node_file(path: Path) -> NodeSettings:
    """Read a machine's file; names and paths of its processes are filled in.

    Raises:
        UsageError: It cannot be read, or does not say what to run.

    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        settings = convert(values, NodeSettings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from error
    if not settings.process:
        raise UsageError(f"{path}: no [[process]]: there is nothing to run")
    folder = path.absolute().parent
    processes = tuple(_filled(one, folder, path) for one in settings.process)
    names = [one.name for one in processes]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}: two processes are called {name!r}: give them names of their own")
    files = {key: str(folder / value) for key in _FILES if (value := getattr(settings, key)) is not None}
    return msgspec.structs.replace(settings, process=processes, **files)


_FILES = ("tls_cert", "tls_key", "token_file", "principals")


def _filled(one: NodeProcess, folder: Path, path: Path) -> NodeProcess:
    if one.kind not in PROCESSES:
        raise UsageError(f"{path}: there is no process of kind {one.kind!r}: use one of {', '.join(PROCESSES)}")
    name = one.name or one.kind
    if not name.isprintable() or len(name) > _NAME_LENGTH_MAX:
        raise UsageError(f"{path}: {name[:_NAME_LENGTH_MAX]!r}: a name has at most 100 letters, all of them printable")
    conf = folder / (one.conf or f"{name}.toml")
    if not conf.is_file():
        raise UsageError(f"{path}: process {name!r}: there is no file {conf}")
    return msgspec.structs.replace(one, name=name, conf=str(conf))


def words_of(process: NodeProcess) -> list[str]:
    """Return the words behind `rsm` that run a process."""
    command = run_words(process.kind).removeprefix("rsm ").removesuffix(" MODULE:CLASS").split()
    return [*command, "--conf", process.conf, *process.arguments]


def grace_ms(process: NodeProcess) -> int:
    """Return how long a process may take to end after SIGTERM."""
    return 1000 * _GRACES_S.get(process.kind, _GRACE_S)
