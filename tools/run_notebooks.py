"""Runs the notebooks of the tutorials, each on a cluster of its own, and keeps what they show: `make notebooks`.

`run_notebooks.py [NAME…]` writes notebooks/NAME.ipynb anew. Two runs keep the same: what programs write to standard
error is left out, and so are times and the version of Python.
"""

# ruff: noqa: INP001 - a script

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

from ledger.dev import DevCluster

_ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = _ROOT / "notebooks"
TUTORIALS: Final = ("service", "sql", "tasks", "spark")
"""Names of the notebooks that are kept with what they show, as those of docs/tutorials."""
_CELL_S: Final = 600


def run(notebook: Any, folder: Path, variables: Mapping[str, str]) -> None:
    """Run a notebook from top to bottom, and note in it what its cells show.

    Args:
        notebook: As nbformat reads it.
        folder: Its working directory.
        variables: Of its environment, over those of this process.

    Raises:
        CellExecutionError: A cell has failed.

    """
    client = NotebookClient(
        notebook,
        timeout=_CELL_S,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    groups: list[int] = []

    def note_group(**_: Any) -> None:
        assert client.km is not None
        groups.append(client.km.provisioner.pgid)

    client.on_notebook_start = note_group
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        client.execute(env={**os.environ, "PYTHONPATH": str(_ROOT), "PATH": path, **variables})
    finally:
        for group in groups:  # Processes that a notebook has started and, as it failed, not ended.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata["language_info"] = {"name": "python"}


def main() -> None:
    """Run the notebooks that are named, or all, and write them."""
    for name in sys.argv[1:] or TUTORIALS:
        path = FOLDER / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        with tempfile.TemporaryDirectory() as place:
            cluster = DevCluster(Path(place) / "cluster")
            cluster.start()
            try:
                work = Path(place) / "work"
                work.mkdir()
                run(notebook, work, {"RSM_METADATA_URI": cluster.metadata_uri})
            finally:
                cluster.stop()
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
