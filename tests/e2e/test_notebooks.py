"""The notebooks run from top to bottom, and what they show is right."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import nbformat
import pytest

from connectors.history.apply import HistoryWriter
from connectors.history.tables import HistoryTables
from ledger.dev import DevCluster
from tests.unit.connectors.history.recorded_broker import acted
from tools.run_notebooks import FOLDER, TUTORIALS, run

ROOT = Path(__file__).parents[2]
_WITHOUT_OUTPUTS = ("broker_history", "ledger_source")
"""They show what somebody has of his own."""


def executed(name: str, folder: Path, variables: dict[str, str], check: str) -> tuple[Any, Any]:
    """Run a notebook, and after it a cell of ours; return the notebook and what that cell printed as JSON."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(check))
    run(notebook, folder, variables)
    (output,) = [one for one in notebook.cells[-1].outputs if one.output_type == "stream" and one.name == "stdout"]
    return notebook, json.loads(output.text)


def runs_as_kept(name: str, cluster: DevCluster, folder: Path) -> None:
    """Run a tutorial's notebook, and compare it with the one that is kept."""
    kept = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    run(notebook, folder, {"RSM_METADATA_URI": cluster.metadata_uri})
    assert notebook.cells == kept.cells, "make notebooks"


def pictures(notebook: Any) -> int:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_sound_and_kept_as_it_ran_or_without_outputs(path: Path) -> None:
    assert path.stem in {*TUTORIALS, *_WITHOUT_OUTPUTS}
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].cell_type == "markdown", "it says what it is about"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if path.stem in TUTORIALS:
        assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "make notebooks"
        shown = json.dumps([cell.outputs for cell in code])
        assert not [one for one in (str(Path.home()), "/tmp", str(ROOT), '"error"') if one in shown]
    else:
        assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * len(code), "clear the outputs"
        for cell in code:
            ast.parse(cell.source)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata["kernelspec"]["name"] == "python3"


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", [name for name in TUTORIALS if name != "spark"])
def test_a_tutorials_notebook_shows_again_what_it_is_kept_with(
    name: str, start_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    runs_as_kept(name, start_cluster(), tmp_path)


_HISTORY_CHECK = """
import json

told = {
    "waits": [[tenant, *values] for (tenant, _), *values in waits_by_tenant.itertuples()],
    "throughput": {kind: int(count) for kind, count in throughput.sum().items()},
    "fleet": {f"{worker} {incarnation}": [float(row.attempts), float(row.lost)]
              for (worker, incarnation), row in fleet.iterrows()},
    "utilisation": fleet["utilisation"].tolist(),
}
print(json.dumps(told))
"""


@pytest.mark.timeout(700)
def test_the_history_notebook_answers_its_three_questions(tmp_path: Path) -> None:
    broker = acted(3)
    tables = HistoryTables(str(tmp_path / "lake"), log="jobs", log_id="ab" * 16)
    tables.create(0)
    HistoryWriter(tables).apply(broker.facts())
    notebook, told = executed("broker_history.ipynb", tmp_path, {"RSM_HISTORY": str(tmp_path / "lake")}, _HISTORY_CHECK)
    assert pictures(notebook) == 3
    check_waits(tables, told["waits"])
    attempts = tables.open("attempts").rows("assignment_id", list(broker.runs))
    assert told["throughput"] == Counter(f"{row.type}: {row.outcome}" for row in attempts if row.ended_at)
    lost = {"worker_died", "stalled", "outcome_unknown"}
    held: dict[str, list[float]] = {
        f"{row.worker_id} {row.incarnation}": [0.0, 0.0]
        for row in tables.open("workers").rows_of("worker_id", ["w1", "w2"])
    }
    for row in attempts:
        counts = held[f"{row.worker_id} {row.incarnation}"]
        counts[0] += 1
        counts[1] += row.outcome in lost
    assert told["fleet"] == held
    assert all(share >= 0 for share in told["utilisation"])


def check_waits(tables: HistoryTables, told: list[list[Any]]) -> None:
    found: dict[tuple[str, int], list[int]] = {}
    for row in tables.open("waits").rows("assignment_id", range(1, 100_000)):
        found.setdefault((row.tenant, row.assigned_at // 60_000), []).append(row.wait_ms)
    assert [one[0] for one in told] == [tenant for tenant, _ in sorted(found)]
    for (_, p50, p99), (_, waits) in zip(told, sorted(found.items()), strict=True):
        assert p50 == pytest.approx(median(waits))
        assert median(waits) <= p99 <= max(waits)
