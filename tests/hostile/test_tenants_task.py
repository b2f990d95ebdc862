"""A tenant's task that reaches for the worker's files, by real processes: broker, worker with a token, and a victim."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from broker.client import AsyncBrokerClient
from broker.worker.jail.jails import JailSettings, machine_jail
from ledger.dev import DevCluster
from tests.hostile import jailed_code
from tests.hostile.victim import Victim, Work
from tests.integration.broker_processes import brokers
from tests.integration.worker_processes import WorkerProcess, started

pytestmark = pytest.mark.asyncio
GREETINGS = "def greet(context, payload):\n    return b'hello ' + payload\n"
SECRET = "f00d" * 16
_CALLS = 20


@pytest.mark.skipif(
    bool(machine_jail(JailSettings().uid_base).support.missing), reason="this kernel can make no jail: see rsm doctor"
)
async def test_a_tenants_token_does_not_become_the_clusters(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    token = tmp_path / "cluster.token"
    token.write_text(SECRET)
    token.chmod(0o600)
    (tmp_path / "greetings.py").write_text(GREETINGS)
    (tmp_path / "enemy.py").write_text(Path(jailed_code.__file__).read_text())
    shared = ("--metadata-uri", cluster.metadata_uri, "--log", unique_name, "--token-file", str(token))
    worker_options = ("--tasks", "tests.integration.function_tasks", "--types", "echo,x", "--threads", "4")
    with (
        brokers(tmp_path, "b", options=shared) as (broker,),
        started(tmp_path, "w", *shared, *worker_options, "--code-dir", str(tmp_path / "code")) as worker,
    ):
        await worker.wait_ready()
        async with (
            await AsyncBrokerClient.connect([broker.url], tenant="evil") as evil,
            await AsyncBrokerClient.connect([broker.url], tenant="acme") as acme,
        ):
            # The administrator's: one harmless pool, and one that a tenant has talked him into.
            await evil.deploy_code(tmp_path / "greetings.py", entries=["greetings:greet"], name="greetings")
            names = [f"enemy:{name}" for name in jailed_code.__all__]
            await evil.deploy_code(tmp_path / "enemy.py", entries=names, name="enemy")

            async def call() -> None:
                task_id = await acme.submit("x", b"acme", code="greetings", mode="greetings:greet")
                assert await acme.result(task_id, timeout_s=60) == b"hello acme"

            await call()
            work, victim = Work(), Victim(call, servers=[broker.process.pid, worker.process.pid])
            quiet = await victim.run(_CALLS)
            attack = asyncio.create_task(_attack(evil, worker, tmp_path, work))
            work.ends_with(attack)
            attacked = await victim.run(_CALLS, beside=work, units=5)
            found = await attack
            attacked.assert_goes_on_like(quiet, units_per_call=1)
    assert not (tmp_path / "owned").exists()
    for what, said in found.items():
        assert SECRET not in said, what
    assert "is not declared by code 'greetings'; it declares greetings:greet" in found["pydoc:pipepager"]
    assert "is not declared by code 'greetings'" in found["importlib._bootstrap_external:FileLoader.get_data"]
    looked = json.loads(found["enemy:look"])
    assert not {what: outcome for what, outcome in looked.items() if outcome.startswith("GOT")}


async def _attack(evil: AsyncBrokerClient, worker: WorkerProcess, folder: Path, work: Work) -> dict[str, str]:
    """Try what once worked, and what a pool's own code may try; return what each task ended with."""
    token = folder / "cluster.token"
    wanted = {
        "reads": [str(token), str(folder / "b"), f"/proc/{worker.process.pid}/environ"],
        "writes": [str(folder / "owned")],
        "pids": [worker.process.pid],
        "ports": [],
    }
    tasks = {
        "pydoc:pipepager": ("greetings", f"touch {folder}/owned".encode()),
        "importlib._bootstrap_external:FileLoader.get_data": ("greetings", str(token).encode()),
        "greetings:__loader__.get_data": ("greetings", str(token).encode()),
        "enemy:look": ("enemy", json.dumps(wanted).encode()),
        "enemy:fork_bomb": ("enemy", b""),
    }
    ended = {}
    for mode, (code, payload) in tasks.items():
        task_id = await evil.submit("x", payload, code=code, mode=mode, max_attempts=1)
        shown = await evil.wait(task_id, timeout_s=60)
        ended[mode] = shown.result_bytes.decode(errors="replace") if shown.status == "finished" else shown.error
        work.add()
    return ended
