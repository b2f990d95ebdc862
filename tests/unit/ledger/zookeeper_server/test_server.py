"""Files that ZooKeeper's server reads, and what it refuses to serve."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import UsageError
from ledger.zookeeper_server.errors import ZooKeeperServerError
from ledger.zookeeper_server.server import write_files, zookeeper_command
from ledger.zookeeper_server.settings import ZooKeeperSettings

_THREE = ("1=10.0.0.1", "2=10.0.0.2", "3=10.0.0.3")


def _pems(folder: Path) -> dict[str, Any]:
    made = {}
    for name in ("cert", "key", "ca"):
        path = folder / f"{name}.pem"
        path.write_text(f"-----{name}-----\n")
        path.chmod(0o600)
        made[f"tls_{name}"] = str(path)
    return made


def test_one_server_is_bound_to_loopback_and_bounds_what_it_takes(tmp_path: Path) -> None:
    lines = write_files(ZooKeeperSettings(data_dir=str(tmp_path), port=2182)).read_text().splitlines()
    for line in (
        "clientPortAddress=127.0.0.1",
        "clientPort=2182",
        "4lw.commands.whitelist=srvr",  # the one by which readiness is asked
        "admin.enableServer=false",
        "maxClientCnxns=1000",
        f"dataDir={tmp_path / 'data'}",
    ):
        assert line in lines
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert not (tmp_path / "data" / "myid").exists()


def test_a_server_of_an_ensemble_has_its_number_and_no_plain_port(tmp_path: Path) -> None:
    settings = ZooKeeperSettings(
        data_dir=str(tmp_path / "zk"), bind="10.0.0.2", server_id=2, servers=_THREE, **_pems(tmp_path)
    )
    lines = write_files(settings).read_text().splitlines()
    assert {"server.1=10.0.0.1:2888:3888", "secureClientPort=2181", "sslQuorum=true"} <= set(lines)
    assert {"ssl.clientAuth=need", "ssl.quorum.clientAuth=need"} <= set(lines)
    assert not any(line.startswith("clientPort") for line in lines)
    assert (tmp_path / "zk" / "data" / "myid").read_text() == "2\n"
    store = tmp_path / "zk" / "key-store.pem"
    assert store.read_text() == "-----key-----\n-----cert-----\n"
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    write_files(settings)  # Again, over its own files.


def test_data_of_another_server_are_not_used(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data_dir": str(tmp_path), "servers": _THREE, "insecure": True}
    write_files(ZooKeeperSettings(server_id=1, **settings))
    with pytest.raises(ZooKeeperServerError, match="data of another server"):
        write_files(ZooKeeperSettings(server_id=2, **settings))


@pytest.mark.parametrize(
    "settings",
    [{"bind": "10.0.0.1"}, {"bind": "0.0.0.0"}, {"bind": "a.org"}, {"server_id": 1, "servers": ("1=127.0.0.1", "2=b")}],
)
def test_plain_text_beyond_loopback_is_refused_unless_it_is_asked_for(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="plain text"):
        write_files(ZooKeeperSettings(data_dir=str(tmp_path), **settings))
    write_files(ZooKeeperSettings(data_dir=str(tmp_path), insecure=True, **settings))


def test_part_of_what_tls_needs_is_refused(tmp_path: Path) -> None:
    pems = _pems(tmp_path)
    del pems["tls_ca"]
    with pytest.raises(UsageError, match="go together"):
        write_files(ZooKeeperSettings(data_dir=str(tmp_path), **pems))


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    pems = _pems(tmp_path)
    Path(pems["tls_key"]).chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        write_files(ZooKeeperSettings(data_dir=str(tmp_path), **pems))


def test_no_value_adds_a_line_to_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="printable"):
        write_files(ZooKeeperSettings(data_dir=str(tmp_path), bind="a\nadmin.enableServer=true", insecure=True))


def test_the_command_names_every_jar_and_the_memory(tmp_path: Path) -> None:
    command = zookeeper_command(ZooKeeperSettings(data_dir=str(tmp_path), heap_mib=300))
    assert "-Xmx300m" in command
    assert command[-1] == str(tmp_path / "zoo.cfg")
    assert any(Path(jar).name.startswith("zookeeper-3.") for jar in command[command.index("-cp") + 1].split(":"))
