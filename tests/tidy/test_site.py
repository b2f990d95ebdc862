"""The site of the documents is made without a warning, which a link or a name that leads nowhere would be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_site_has_every_page_and_the_reference(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command: list[str | Path] = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    command += ["-c", _ROOT / "tools" / "site", "-d", tmp_path / "trees", _ROOT, site]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    pages = [path.relative_to(_ROOT) for path in [*_ROOT.glob("*.md"), *(_ROOT / "docs").rglob("*.md")]]
    pages += [path.relative_to(_ROOT) for path in (_ROOT / "notebooks").glob("*.ipynb")]
    assert len(pages) > 30
    assert [page for page in pages if not (site / page.with_suffix(".html")).exists()] == []
    assert (site / "index.html").exists()
    text = (site / "notebooks" / "service.html").read_text(encoding="utf-8")
    assert [part for part in ("A replica", "Seats", "A1 is ann", "<th>owner</th>") if part not in text] == []
    names = {
        "ledger": ("ledger.LedgerClient", "ledger.WriteHandle", "ledger.LedgerError"),
        "rsm_spark": (
            "rsm_spark.StateMachine",
            "rsm_spark.ServiceClient",
            "rsm_spark.serve",
            "rsm_spark.map.MapClient",
        ),
        "broker": ("broker.client.BrokerClient", "broker.client.NewTask", "broker.worker.Worker", "broker.worker.task"),
        "connectors": ("connectors.session.spark_session",),
    }
    for page, expected in names.items():
        text = (site / "docs" / "api" / f"{page}.html").read_text(encoding="utf-8")
        assert [name for name in expected if f'id="{name}"' not in text] == []
