"""`rsm cluster audit` on real bookies: who audits, what was found and when, and a look now that takes its time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ledger import LedgerClient
from ledger.dev import DevCluster
from tests.integration.ledger_suite import on_cluster
from tests.integration.test_auto_recovery import auto_recovery, write
from tests.integration.test_decommission import rsm

_LEDGERS = 3


def test_it_tells_what_was_found_and_looks_now(start_cluster: Callable[..., DevCluster], tmp_path: Path) -> None:
    cluster = start_cluster(bookie_count=4)

    async def fill(client: LedgerClient) -> None:
        for _ in range(_LEDGERS):
            await write(client, 20)

    on_cluster(cluster.metadata_uri, fill)
    code, out, _ = rsm(cluster, "audit")
    assert code == 1
    assert "nobody audits" in out
    code, _, said = rsm(cluster, "audit", "--copies")
    assert code == 2
    assert "say --now, too" in " ".join(said.split())
    code, _, said = rsm(cluster, "audit", "--now", "--for", "0.5")
    assert code == 6
    assert "the auditor goes on" in " ".join(said.split())

    with auto_recovery(cluster.metadata_uri, tmp_path / "log", "--lost-bookie-delay-s", "0") as (_, notice):
        file = tmp_path / "audit.jsonl"
        command = ["audit", "--now", "--copies", "--for", "120", "--json", "--audit-file", str(file)]
        code, out, _ = rsm(cluster, *command)
        assert code == 0, out
        state = json.loads(out)
        assert (state["auditor"], state["is_good"], state["enabled"]) == (notice["owner"], True, True)
        for kind in ("audit", "check"):
            last = state[kind]["last"]
            assert (last["by"], last["ledger_count"], last["seen_count"]) == (notice["owner"], _LEDGERS, _LEDGERS)
            assert last["began_ms"] <= last["ended_ms"]
        assert state["audit"]["last"]["request"] == 2  # The first one was waited for in vain.
        actions = [json.loads(line)["action"] for line in file.read_text().splitlines()]
        assert set(actions) == {"rsm cluster audit"}

        code, out, _ = rsm(cluster, "audit")
        assert code == 0
        assert out.count("all is as it should be") == 2

        subprocess.run(
            [sys.executable, "-m", "ledger.replication", "disable", "--metadata-uri", cluster.metadata_uri], check=True
        )
        code, _, said = rsm(cluster, "audit", "--now")
        assert code == 1
        assert "switched off for the cluster" in " ".join(said.split())
