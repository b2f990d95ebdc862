"""Orders to a leader by somebody who has no right to them, beside an upgrade: nothing is raised, the service goes on.

Orders are nodes in ZooKeeper: who may write there may order. The log's nodes belong to the log-in of its replicas.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ledger.dev import DevCluster
from ledger.errors import MetadataError
from ledger.zookeeper.session import connect
from ledger.zookeeper.uri import MetadataUri
from rsm_spark import ServiceClient
from rsm_spark.core.chain import members_path
from rsm_spark.log.admin_requests import orders_path
from rsm_spark.log.member import Member, encode_member
from tests.hostile.victim import Victim, Work
from tests.integration.store_processes import StoreProcess, Stores, stores

pytestmark = pytest.mark.asyncio
ROOT = "/foreign-orders"
"""Of its own: under `/rsm` nobody else of this session could create a log any more."""
_LOGIN = "RSM_ZK_AUTH_FILE"
_CALLS, _STEPS = 100, 14


def _start(replicas: Stores, name: str, release: str, environment: dict[str, str]) -> None:
    replicas.alive[name] = StoreProcess(
        replicas.metadata_uri, replicas.log, replicas.folder, name, "--rsm-root", ROOT, "--keep-version",
        environment=environment, command=("rsm_spark", "serve", f"tests.integration.rolled_bank:{release}"),
    )  # fmt: skip


def _raise(replicas: Stores, environment: dict[str, str], *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "rsm_spark", "log", "raise-version", replicas.log, "--rsm-root", ROOT, *options]
    ended = subprocess.run(
        [*command, "--metadata-uri", replicas.metadata_uri, "--timeout", "15"],
        env=environment, capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout + ended.stderr


async def _attack(replicas: Stores, folder: Path, work: Work) -> None:
    """Order by the command, place orders by hand, pretend to be replicas: without a log-in, and with another one."""
    other = folder / "other-login"
    other.write_text("digest:stranger:guessed\n")
    for environment in (dict(os.environ), {**os.environ, _LOGIN: str(other)}):
        code, said = await asyncio.to_thread(_raise, replicas, environment, "--force")
        assert code == 5
        assert "does not let us" in said
        assert _LOGIN in said
        work.add()
    for auth in (None, ("digest", "stranger:guessed")):
        stranger = await connect(MetadataUri.of(replicas.metadata_uri).hosts, auth=auth)
        order = msgspec.json.encode({"order": {"type": "raise_version", "force": True}})
        member = encode_member(Member("zz", "f" * 32, "127.0.0.1:1", machine_version=9))
        for path, value in ((f"{orders_path(replicas.log, ROOT)}/order-", order),
                            (f"{members_path(replicas.log, ROOT)}/zz", member)):  # fmt: skip
            with pytest.raises(MetadataError, match="does not let us"):
                await stranger.create(path, value, ephemeral=True)
            work.add()
        for path in (orders_path(replicas.log, ROOT), members_path(replicas.log, ROOT)):
            for read in (stranger.get, stranger.children):
                with pytest.raises(MetadataError, match="does not let us"):
                    await read(path)
                work.add()
        await stranger.close()


async def test_a_stranger_raises_no_version_and_the_service_goes_on(
    cluster: DevCluster, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = tmp_path / "login"
    login.write_text("digest:bank:known to its replicas\n")
    monkeypatch.setenv(_LOGIN, str(login))
    owners = dict(os.environ)
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        _start(replicas, "a", "Bank1", owners)
        _start(replicas, "b", "Bank2", owners)
        leader = await replicas.leader()
        async with await ServiceClient.connect(unique_name, cluster.metadata_uri, rsm_root=ROOT) as client:
            number = 0

            async def call() -> None:
                nonlocal number
                number += 1
                assert int((await client.execute(b"ann %d" % number)).payload) == number

            monkeypatch.delenv(_LOGIN)  # From here on this process is the stranger's.
            pids = [one.process.pid for one in replicas.alive.values()]
            work, victim = Work(), Victim(call, servers=pids)
            quiet = await victim.run(_CALLS)
            attack = asyncio.get_running_loop().create_task(_attack(replicas, tmp_path, work))
            work.ends_with(attack)
            attacked = await victim.run(_CALLS, beside=work, units=_STEPS)
            await attack
            attacked.assert_goes_on_like(quiet, units_per_call=1)
            assert {one["log_version"] for one in await replicas.agree(0)} == {1}
            # Who has the right raises it, once a replica of the new release leads.
            if leader.replica_id == "a":
                assert replicas.gone("a").stop() == 0
                await replicas.leader()
            code, said = await asyncio.to_thread(_raise, replicas, owners, "--force")
            assert (code, "version 2" in said) == (0, True), said
            await call()
