"""A replica with certificate, token and a log-in to ZooKeeper, as a process: who gets in, and what is never shown."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from ledger.errors import MetadataError
from ledger.zookeeper.session import connect
from ledger.zookeeper.uri import MetadataUri
from rsm_spark.core.chain import chain_path, members_path
from rsm_spark.errors import ConnectionLostError, NoLeaderError
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.client.results import MapValue
from rsm_spark.transport.channel import ReplicaChannel
from rsm_spark.transport.security import Security
from tests.integration.store_processes import StoreProcess
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = pytest.mark.asyncio

TOKEN = "token-that-is-never-shown-0123456789"
SECRET = "secret-that-is-never-shown"
ROOT = "/secured"
"""A root of its own: under `/rsm` nobody else of this session could create a log any more."""


class Secured:
    """One replica beyond loopback, and the files that its callers need."""

    def __init__(self, cluster: DevCluster, log: str, folder: Path) -> None:
        self.authority = Authority(folder, "authority")
        cert = self.authority.sign("replica")
        self.token_file, self.login_file = folder / "token", folder / "login"
        self.token_file.write_text(TOKEN)
        self.login_file.write_text(f"digest:replica:{SECRET}\n")
        self.log_file = folder / "a.log"
        self.security = Security(tls_ca=self.authority.ca, token_file=str(self.token_file))
        options = ["--bind", "0.0.0.0", "--advertise", "127.0.0.1", "--token-file", str(self.token_file)]
        options += [
            "--rsm-root",
            ROOT,
            "--tls-cert",
            cert["cert"],
            "--tls-key",
            cert["key"],
            "--tls-ca",
            self.authority.ca,
        ]
        environment = {**os.environ, "RSM_ZK_AUTH_FILE": str(self.login_file)}
        self.process = StoreProcess(
            cluster.metadata_uri, log, folder, "a", *options, "--log-level", "debug", environment=environment
        )


@contextmanager
def secured(cluster: DevCluster, log: str, folder: Path) -> Iterator[Secured]:
    replica = Secured(cluster, log, folder)
    try:
        yield replica
    finally:
        if replica.process.process.poll() is None:
            replica.process.kill()


async def test_only_who_has_log_in_certificate_and_token_uses_a_secured_replica(
    cluster: DevCluster, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    hosts = MetadataUri.of(uri).hosts
    with secured(cluster, log, tmp_path) as replica:
        monkeypatch.setenv("RSM_ZK_AUTH_FILE", str(replica.login_file))
        async with await MapClient.connect(log, uri, security=replica.security, rsm_root=ROOT) as client:
            revision = await client.put(b"k", b"v")
            assert await client.get(b"k") == MapValue(b"v", revision, revision, 1)
            assert client.address == replica.process.address

        # Without the token, or in plain text, nothing is served.
        for security in (Security(tls_ca=replica.authority.ca), Security()):
            async with ReplicaChannel(replica.process.address, log, security=security) as channel:
                with pytest.raises(ConnectionLostError):
                    await channel.status(5)

        # Another identity, and none at all, sees neither chain nor members, and changes nothing.
        monkeypatch.delenv("RSM_ZK_AUTH_FILE")
        for auth in (None, ("digest", "stranger:other")):
            stranger = await connect(hosts, auth=auth)
            for path in (chain_path(log, ROOT), members_path(log, ROOT)):
                with pytest.raises(MetadataError, match=r"does not let us .*RSM_ZK_AUTH_FILE"):
                    await stranger.get(path)
                with pytest.raises(MetadataError, match="does not let us"):
                    await stranger.set(path, b"x", -1)
            with pytest.raises(MetadataError, match="does not let us"):
                await stranger.create(f"{members_path(log, ROOT)}/intruder", b"x")
            await stranger.close()

        # A client without the log-in hears what it lacks; with the address of a replica it needs no ZooKeeper.
        async with await MapClient.connect(log, uri, security=replica.security, rsm_root=ROOT, timeout_s=1) as client:
            with pytest.raises(NoLeaderError, match="RSM_ZK_AUTH_FILE"):
                await client.get(b"k")
        address = replica.process.address
        async with await MapClient.connect(log, replica=address, security=replica.security, rsm_root=ROOT) as client:
            assert await client.get(b"k") == MapValue(b"v", revision, revision, 1)


async def test_secrets_are_in_no_log_and_no_command_line(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with secured(cluster, unique_name, tmp_path) as replica:
        async with ReplicaChannel(replica.process.address, unique_name, security=Security()) as channel:
            with pytest.raises(ConnectionLostError) as refused:
                await channel.status(5)
        shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(replica.process.process.pid)],
                               capture_output=True, text=True, check=True).stdout  # fmt: skip
        assert "--token-file" in shown
        status = await _status(replica, unique_name)
        assert replica.process.stop() == 0
        told = [shown, status, str(refused.value), replica.log_file.read_text(), str(replica.process.ready)]
        for secret in (TOKEN, SECRET, "PRIVATE KEY"):
            assert not any(secret in text for text in told)


async def _status(replica: Secured, log: str) -> str:
    async with ReplicaChannel(replica.process.address, log, security=replica.security) as channel:
        return (await channel.status(5)).decode()
