"""`rsm log check-upgrade` on a real log, by a version that can follow, one that cannot, and one that cannot fold."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.core.commands import AnswerStatus, Command, OpenSession
from rsm_spark.core.machine import Decision, Field, FieldType, MachineDescription, TableDescription
from rsm_spark.core.table_machine import TableMachine, upsert
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.snapshots import MemorySnapshots

pytestmark = pytest.mark.asyncio

SESSION = b"s" * 16
_COUNT = 20
_NEXT = """
from rsm_spark import Decision, Field, FieldType, MachineDescription, TableDescription, TableMachine, upsert

INT, STR = FieldType.INT, FieldType.STR


def described(version, *columns):
    table = TableDescription("accounts", (Field("name", STR),), columns)
    return MachineDescription("bank", version, (table,), (upsert(16, "set", table),))


class Next(TableMachine):
    description = described(2, Field("cents", INT, was=("balance",)), Field("email", STR, nullable=True))


class Other(TableMachine):
    description = described(2, Field("balance", STR))


class Strict(Next):
    def apply(self, record_type, fields, revision):
        assert fields[1] < 15, "fifteen is too much"
        return super().apply(record_type, fields, revision)


nothing = 5
"""


class Bank(TableMachine):
    """Adds one to ann's account."""

    _TABLE = TableDescription("accounts", (Field("name", FieldType.STR),), (Field("balance", FieldType.INT),))
    description = MachineDescription("bank", 1, (_TABLE,), (upsert(16, "set", _TABLE),))

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        (balance,) = self.get("accounts", "ann") or (0,)
        return Decision([(16, ("ann", balance + 1))], b"")


async def _write(cluster: DevCluster, log: str) -> None:
    async with await LedgerClient.connect(cluster.metadata_uri) as client:
        replica = Replica(
            Bank(), log=log, replica_id="a", client=client, snapshots=MemorySnapshots(),
            settings=ReplicaSettings(snapshot_s=0, snapshot_bytes=0),
        )  # fmt: skip
        async with replica:
            async with asyncio.timeout(60):
                while replica.role is not ReplicaRole.LEADER:
                    await asyncio.sleep(0.01)
            await replica.submit([OpenSession(SESSION)])
            for sequence in range(1, _COUNT + 1):
                (answer,) = await replica.submit([Command(SESSION, sequence, sequence - 1, b"")])
                assert answer.status is AnswerStatus.OK


async def _check(cluster: DevCluster, log: str, machine: str, folder: Path, *options: str) -> tuple[int, Any, str]:
    """Run the command; return its exit code, the JSON that it printed, what it said otherwise."""
    command = [sys.executable, "-m", "rsm_spark", "log", "check-upgrade", machine, "--log", log, "--json"]
    command += ["--metadata-uri", cluster.metadata_uri, *options]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=folder, capture_output=True, check=False, text=True, timeout=120
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


async def test_the_next_version_folds_the_log_before_it_is_rolled(cluster: DevCluster, tmp_path: Path) -> None:
    log = f"bank-{os.urandom(4).hex()}"
    await _write(cluster, log)
    (tmp_path / "next_bank.py").write_text(_NEXT)
    async with await LedgerClient.connect(cluster.metadata_uri) as client:
        before = await ChainStore(client.store, log).read()

        code, found, said = await _check(cluster, log, "next_bank:Next", tmp_path)
        assert (code, said) == (0, "")
        assert (found["log_version"], found["code_version"], found["snapshot_revision"]) == (1, 2, 0)
        assert found["revision"] >= _COUNT
        assert found["changes"] == [
            "table accounts: column balance is renamed to cents",
            "table accounts: column email (str) is added: rows of before read None",
        ]

        elsewhere = await _check(cluster, log, "next_bank:Next", Path("/"), "--module-path", str(tmp_path))
        assert elsewhere == (code, found, said)
        code, _, said = await _check(cluster, log, "next_bank:Next", tmp_path, "--module-path", "nowhere")
        assert (code, "there is no folder nowhere to look for next_bank in" in said) == (2, True)

        code, _, said = await _check(cluster, log, "next_bank:Other", tmp_path)
        assert code == 1
        assert "column 'balance' was int and is now str" in said

        code, _, said = await _check(cluster, log, "next_bank:Strict", tmp_path)
        assert code == 1
        assert "cannot fold the entry of revisions" in said
        assert "AssertionError: fifteen is too much" in said
        assert "Traceback" not in said

        code, _, said = await _check(cluster, log, "next_bank:nothing", tmp_path)
        assert code == 2
        assert "is no state machine, but a int" in said

        assert await ChainStore(client.store, log).read() == before, "nothing was written"
        missing = f"none-{os.urandom(4).hex()}"
        code, _, said = await _check(cluster, missing, "next_bank:Next", tmp_path)
        assert code == 4
        assert missing in said
        assert missing not in await client.store.children("/rsm/logs"), "a name that is none is no log now"
