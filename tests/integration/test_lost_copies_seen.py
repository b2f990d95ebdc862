"""Lost copies are seen by whoever asks, with an auditor or without one: real bookies, one of which is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger import LedgerClient
from ledger.dev import DevCluster
from ledger.replication.copies_report import CopiesReport, report_copies
from rsm_spark.cli.copies import copies_facts, copies_lines
from rsm_spark.cli.doctor import Grade
from rsm_spark.cli.doctor_copies import look_at_copies
from tests.integration.ledger_suite import on_cluster
from tests.integration.test_auto_recovery import auto_recovery, status, until, write


def rsm(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "rsm_spark", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return ended.returncode, ended.stdout + ended.stderr


def findings(uri: str) -> dict[str, list[dict[str, Any]]]:
    """Return what the doctor says, by what it is about."""
    _, text = rsm("doctor", "--metadata-uri", uri, "--json")
    found: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        if line.startswith("{"):
            one = json.loads(line)
            found.setdefault(one["what"], []).append(one)
    return found


def test_a_killed_bookie_is_bad_for_the_doctor_though_nobody_audits(
    start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=3)
    uri = cluster.metadata_uri
    dead = cluster.bookies[2]

    async def before(client: LedgerClient) -> None:
        for _ in range(3):
            await write(client, 50)
        report = await report_copies(client.ledgers)
        assert report.is_whole
        assert [one.verdict for one in look_at_copies(report)] == [Grade.GOOD, Grade.NOTE]

    async def after(client: LedgerClient) -> None:
        async def is_gone() -> bool:
            return dead not in await client.ledgers.writable_bookies()

        await until(is_gone, "it is still registered")
        report = await report_copies(client.ledgers)
        _is_told(report, dead)

    on_cluster(uri, before)
    assert [one["verdict"] for one in findings(uri)["copies"]] == ["good"]
    cluster.kill_bookie(2)
    on_cluster(uri, after)
    found = findings(uri)
    assert [(one["verdict"], one["seen"]) for one in found[f"bookie {dead}"]] == [
        ("bad", "does not serve; 3 ledgers name it, and lack its copies")
    ]
    assert found["copies"][0]["verdict"] == found["auto-recovery"][0]["verdict"] == "bad"
    assert "3 of 3 ledgers lack some (150 entries)" in found["copies"][0]["seen"]
    assert "rsm autorecovery run" in found["auto-recovery"][0]["advice"]
    shown = rsm("status", "--metadata-uri", uri)[1]
    assert "3 of 3 ledgers lack some (150 entries)" in shown
    assert "nobody looks for lost copies" in shown
    said = status(uri)
    assert (said["auditor"], said["lacking_now"], said["lacking_entries"], said["ledgers"]) == (None, 3, 150, [])
    words = rsm("autorecovery", "status", "--metadata-uri", uri)[1]
    assert "nobody looks" in words

    with auto_recovery(uri, tmp_path / "log", "--lost-bookie-delay-s", "1"):
        on_cluster(uri, _is_marked)


def _is_told(report: CopiesReport, dead: str) -> None:
    assert report.missing == (dead,)
    assert [(one.ledger_id, one.bookie_ids, one.copies_min) for one in report.lacking] == [
        (one.ledger_id, (dead,), 2) for one in report.lacking
    ]
    facts = copies_facts(report)
    assert (facts["lacking"], facts["lacking_entries"], facts["unreadable"], facts["auditor"]) == (3, 150, 0, None)
    assert dead in copies_lines(report)[0]


async def _is_marked(client: LedgerClient) -> None:
    """An auditor marks them; there is no fourth bookie that could take the copies."""
    report = await report_copies(client.ledgers)

    async def is_marked() -> bool:
        nonlocal report
        report = await report_copies(client.ledgers)
        return len(report.marked) == len(report.lacking) == 3

    await until(is_marked, "the ledgers are not marked")
    assert report.auditor is not None
    assert report.since_ms is not None
    assert report.auditor in copies_lines(report)[1]
    assert " since 20" in copies_lines(report)[0]
    verdicts = {one.what: one.verdict for one in look_at_copies(report)}
    assert (verdicts["copies"], verdicts["auto-recovery"]) == (Grade.BAD, Grade.GOOD)
