"""`rsm cluster set-placement` and `placement` on real bookies: new ledgers keep the rule, old ones are told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ledger import LedgerClient
from ledger.dev import DevCluster
from tests.integration.ledger_suite import on_cluster
from tests.integration.test_decommission import rsm

_FILE = """\
[rule]
zones_min = 2

[bookies]
"{0}" = "/north/a/1"
"{1}" = "/north/a/2"
"{2}" = "/north/b/1"
"""


def test_a_rule_is_set_kept_told_and_removed(start_cluster: Callable[..., DevCluster], tmp_path: Path) -> None:
    cluster = start_cluster(bookie_count=4)
    path = tmp_path / "placement.toml"
    path.write_text(_FILE.format(*cluster.bookies))
    code, out, _ = rsm(cluster, "placement")
    assert (code, "there is no rule" in out) == (0, True)
    code, out, said = rsm(cluster, "set-placement", str(path))
    assert (code, "copies of an entry in at least 2 zones" in out) == (0, True), said

    ensembles: list[tuple[str, ...]] = []

    async def write(client: LedgerClient) -> None:
        for _ in range(6):
            writer = await client.create(ensemble_size=2, write_quorum=2, ack_quorum=2)
            await writer.append(b"x")
            await writer.close()
            ensembles.append(writer.metadata.segments[0].bookies)

    on_cluster(cluster.metadata_uri, write)
    assert all(cluster.bookies[2] in ensemble for ensemble in ensembles)  # All others are in one zone, or nowhere.
    code, out, _ = rsm(cluster, "placement", "--json")
    report = json.loads(out)
    assert (code, report["ledger_count"], report["is_kept"]) == (0, 6, True)
    assert report["unplaced"] == [cluster.bookies[3]]

    path.write_text(path.read_text().replace("zones_min = 2", "regions_min = 2"))
    assert rsm(cluster, "set-placement", str(path))[0] == 0
    code, out, _ = rsm(cluster, "placement")
    assert code == 1
    assert "6 of 6 ledgers break the rule" in out
    doctor = [sys.executable, "-m", "rsm_spark", "doctor", "--json", "--metadata-uri", cluster.metadata_uri]
    found = subprocess.run(doctor, capture_output=True, text=True, check=False, timeout=180).stdout
    assert "6 of 6 ledgers break the rule" in found

    path.write_text('[bookies]\n"b" = "no path"\n')
    code, _, said = rsm(cluster, "set-placement", str(path))
    assert code == 2
    assert "need /region/zone/rack" in " ".join(said.split())
    assert rsm(cluster, "set-placement")[0] == 2
    assert rsm(cluster, "set-placement", "--none")[0] == 0
    assert "there is no rule" in rsm(cluster, "placement")[1]
