"""Command `rsm monitoring`: where rules and dashboards lie, or a copy of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ledger.errors import UsageError
from rsm_spark.cli.terminal import print_result

FOLDER = Path(__file__).parent
"""Folder of the files: `prometheus/` and `grafana/`."""


def monitoring(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Copy them into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show or copy the rules of Prometheus and the dashboards of Grafana.

    Examples:
        rsm monitoring

        rsm monitoring -o /etc/prometheus/rsm

    """
    files = monitoring_files()
    folder = FOLDER
    if out is not None:
        folder = out
        try:
            for name in files:
                target = out / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(FOLDER / name, target)
        except OSError as error:
            raise UsageError(f"{out}: the files cannot be copied there: {error}") from error
    found = [str(folder / name) for name in files]
    print_result(as_json, {"folder": str(folder), "files": files}, "\n".join(found))


def monitoring_files() -> list[str]:
    """Return the files, relative to `FOLDER`, by name."""
    found = (*FOLDER.glob("prometheus/*.yml"), *FOLDER.glob("grafana/*.json"))
    return sorted(str(path.relative_to(FOLDER)) for path in found)
