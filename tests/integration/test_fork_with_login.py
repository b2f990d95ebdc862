"""Logs whose nodes in ZooKeeper are those of a log-in: forked, renamed and deleted by it, and by nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.errors import MetadataDeniedError
from ledger.ports import NodeChange
from rsm_spark.map.client.client import MapClient
from tests.integration.test_backup import served
from tests.integration.test_log_fork import ForkCommand, new_key

pytestmark = pytest.mark.asyncio

_LOGIN = "RSM_ZK_AUTH_FILE"


async def test_a_log_of_a_log_in_is_forked_renamed_and_deleted_by_it_alone(
    cluster: DevCluster, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, log, root = cluster.metadata_uri, unique_name, f"/{unique_name}-root"
    at = ("--rsm-root", root)
    for name in ("owner", "other"):
        (tmp_path / name).write_text(f"digest:{name}:secret\n")
    monkeypatch.setenv(_LOGIN, str(tmp_path / "owner"))
    commands = ForkCommand(uri, tmp_path)
    key = await new_key(commands, tmp_path)
    async with served(uri, log, tmp_path / "live", *key, *at):
        async with await MapClient.connect(log, uri, rsm_root=root) as client:
            revisions = [await client.put(b"k%d" % (number % 50), b"v") for number in range(500)]
        made = await commands.fork(log, f"{log}-fork", *key, *at)
        assert made["shared"] > 0
        assert made["revision"] >= revisions[-1]
        for stranger in (None, tmp_path / "other"):
            if stranger is None:
                monkeypatch.delenv(_LOGIN)
            else:
                monkeypatch.setenv(_LOGIN, str(stranger))
            for what, *more in (("fork", "--as", "mine"), ("rename", "mine"), ("delete", "--yes"), ("info",)):
                said = await commands.log_refused(what, f"{log}-fork", *more, *at)
                assert _LOGIN in said, said
            async with await LedgerClient.connect(uri) as client:
                taken = NodeChange(f"{root}/logs/{log}-fork")
                with pytest.raises(MetadataDeniedError, match="does not let us change"):
                    await client.store.change([NodeChange(f"/{unique_name}-mine", b"", None), taken])
                assert await client.store.exists(f"/{unique_name}-mine") is None
        monkeypatch.setenv(_LOGIN, str(tmp_path / "owner"))
        assert [one["log"] for one in (await commands.log("info", log, *at))["used_by"]] == [f"{log}-fork"]
        await commands.log("rename", f"{log}-fork", f"{log}-forked", *at)
        async with served(uri, f"{log}-forked", tmp_path / "forked", *key, *at):
            async with await MapClient.connect(f"{log}-forked", uri, rsm_root=root) as fork:
                assert len([row async for row in fork.scan()]) == 50
    deleted = await commands.log("delete", log, "--yes", *at)
    assert deleted["kept"]
    assert (deleted["unread"], deleted["unread_notes"]) == ([], [])
    gone = await commands.log("delete", f"{log}-forked", "--yes", *at)
    assert set(deleted["kept"]) <= set(gone["ledger_ids"])
    await _check_unused(uri, root)


async def _check_unused(uri: str, root: str) -> None:
    async with await LedgerClient.connect(uri) as client:
        for place in ("logs", "services", "deleting", "sharing"):
            assert await client.store.children(f"{root}/{place}") == []
