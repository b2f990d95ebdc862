"""Who reaches the bookies' ports, and even knows the ledgers' password, gets nothing believed; the log goes on.

Each attack is done as it would be: no replica lives for a moment, and an entry is added behind the last one, with the
right digest, to every bookie. Beside the attacked log stands another one on the same bookies, whose service goes on.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from connectors.state.authorship import prove_authorship
from ledger.dev import DevCluster
from ledger.exit_codes import ExitCode
from ledger.wire.codes import Status
from rsm_spark.errors import LogError
from rsm_spark.map.client.client import MapClient
from tests.hostile.forger import Attacker, forged_put
from tests.integration.store_processes import Stores, stores

pytestmark = pytest.mark.asyncio

OPTIONS = ("--bookies", "3/3/2", "--checkpoint-records", "5")


def rsm(*arguments: str, code: int = 0) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "rsm_spark", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


async def _crashed(replicas: Stores, metadata_uri: str, count: int = 12) -> None:
    """Write something, let the idle leader tell how far it is confirmed, then crash all replicas."""
    async with await MapClient.connect(replicas.log, metadata_uri) as client:
        for number in range(count):
            await client.put(b"k1", b"v%d" % number)
    await asyncio.sleep(1.2)
    for name in list(replicas.alive):
        replicas.gone(name).kill()


async def _refused(replicas: Stores, name: str, *options: str) -> str:
    """Start a replica that has to stop by itself; return its last words."""
    store = replicas.start(name, *OPTIONS, *options)
    code = await asyncio.to_thread(store.process.wait, 60)
    replicas.gone(name)
    assert code in set(ExitCode), store.errors()
    return store.errors()


async def test_a_forged_entry_is_refused_set_aside_and_the_log_goes_on(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    key, public, evidence = tmp_path / "log.key", tmp_path / "log.pub", tmp_path / "evidence.bin"
    rsm("log", "key", "new", "--file", str(key))
    public.write_text(rsm("log", "key", "show-public", "--file", str(key)))
    options = (*OPTIONS, "--log-key", str(key))
    where = ("--metadata-uri", cluster.metadata_uri)
    uri = cluster.metadata_uri
    with stores(uri, unique_name, tmp_path) as replicas, stores(uri, f"{unique_name}-v", tmp_path / "v") as victims:
        (tmp_path / "v").mkdir()
        victims.start("victim", *OPTIONS)
        replicas.start("a", *options)
        await _crashed(replicas, uri)
        attacker = Attacker(cluster, unique_name)
        # A stranger, with the empty password that everybody knew: no bookie takes it.
        assert set(await attacker.add(forged_put, password=b"")) == {Status.EUA}
        # Who has the password too gets it stored, and no further.
        assert set(await attacker.add(forged_put)) == {Status.EOK}
        said = await _refused(replicas, "b", *options[len(OPTIONS) :])
        place = f"ledger {attacker.ledger_id} entry {attacker.entry_id}"
        assert place in said
        assert "seal is not that of key" in said
        async with await MapClient.connect(victims.log, uri) as client:
            await client.put(b"beside", b"served")
        at = ("--ledger", str(attacker.ledger_id), "--entry")
        own = rsm("log", "quarantine", unique_name, *at, str(attacker.entry_id - 1), "--reason", "no", *where,
                  "--log-key", str(key), code=1)  # fmt: skip
        assert "is the log's own" in own
        assert "--log-key" in rsm(
            "log", "quarantine", unique_name, *at, str(attacker.entry_id), "--reason", "forged", *where, code=1
        )
        said = rsm("log", "quarantine", unique_name, *at, str(attacker.entry_id), "--reason", "forged", *where,
                   "--log-key", str(key), "--evidence", str(evidence), "--json",
                   "--audit-file", str(tmp_path / "audit.jsonl"))  # fmt: skip
        assert json.loads(said.partition("\n")[0])["entry_id"] == attacker.entry_id  # Its log follows.
        assert b"HACKED" in evidence.read_bytes()
        assert evidence.stat().st_mode & 0o777 == 0o600
        replicas.start("a", *options)
        replicas.start("b", *options)
        async with await MapClient.connect(unique_name, uri) as client:
            assert (await client.get(b"k1")).value == b"v11"
            revision = await client.put(b"k2", b"after")
        await replicas.agree(revision)
        assert "HACKED" not in rsm("log", "cat", unique_name, *where)
        lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        assert [line["outcome"] for line in lines] == ["asked", "done"]
        (told,) = [json.loads(line) for line in rsm("audit", unique_name, *where, "--json").splitlines()]
        assert (told["principal"], told["action"]) == (lines[0]["principal"], "rsm log quarantine")
        assert told["target"] == f"log {unique_name}: {place}: forged"
        proof = json.loads(rsm("log", "verify", unique_name, "--public-key", str(public), *where, "--json"))
        assert proof["signatures"] >= 2
        assert 5 <= proof["proven_revision"] <= proof["last_revision"]
        assert (proof["quarantined"], proof["unknown_keys"]) == (1, [])
        by_job = await asyncio.to_thread(prove_authorship, unique_name, public, {"metadataUri": uri})
        assert by_job["proven_revision"] >= proof["proven_revision"]
        other = tmp_path / "other.key"
        rsm("log", "key", "new", "--file", str(other))
        (tmp_path / "other.pub").write_text(rsm("log", "key", "show-public", "--file", str(other)))
        said = rsm("log", "verify", unique_name, "--public-key", str(tmp_path / "other.pub"), *where, code=1)
        assert "nothing proves" in said
        with pytest.raises(LogError, match="no checkpoint is signed by the keys"):
            await asyncio.to_thread(prove_authorship, unique_name, tmp_path / "other.pub", {"metadataUri": uri})


async def test_a_poisoned_log_without_a_key_is_named_and_goes_on_once_the_entry_is_set_aside(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a", *OPTIONS)
        await _crashed(replicas, cluster.metadata_uri)
        attacker = Attacker(cluster, unique_name)
        assert set(await attacker.add(b"\xee" * 80)) == {Status.EOK}
        said = await _refused(replicas, "a")
        place = f"ledger {attacker.ledger_id} entry {attacker.entry_id}"
        assert f"{place}: entry of 80 bytes is shorter than an envelope" in said
        at = ("--ledger", str(attacker.ledger_id), "--entry", str(attacker.entry_id))
        where = ("--metadata-uri", cluster.metadata_uri, "--evidence", str(tmp_path / "evidence.bin"))
        rsm("log", "quarantine", unique_name, *at, "--reason", "poison", *where)
        assert "was set aside before" in rsm("log", "quarantine", unique_name, *at, "--reason", "poison", *where)
        assert (tmp_path / "evidence.bin").read_bytes() == b"\xee" * 80
        replicas.start("a", *OPTIONS)
        async with await MapClient.connect(unique_name, cluster.metadata_uri) as client:
            assert (await client.get(b"k1")).value == b"v11"
            await client.put(b"k2", b"after")
