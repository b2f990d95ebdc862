"""An option of a process is added in one file: in a copy, it is a flag, a key, a variable, in the help and in conf/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SCRIPT = """
import sys
from pathlib import Path
from typer.main import get_command
from typer.testing import CliRunner
import {module} as cli

found = []
{catch}
command = cli.app
runner = CliRunner()
needed = {needed!r}
Path("conf.toml").write_text("shelf_s = 2.5\\n")
for arguments, environment in (
    (["--shelf-s", "3.5"], {{}}),
    ([], {{"RSM_{upper}__SHELF_S": "4.5"}}),
    (["--conf", "conf.toml"], {{}}),
    ([], {{}}),
):
    result = runner.invoke(command, ["run", *needed, *arguments], env=environment)
    assert result.exit_code == 0, (result.output, result.exception)
assert found == [3500, 4500, 2500, 1500], found
shown = runner.invoke(command, ["run", "--help"], env={{"COLUMNS": "200"}}).output
assert "--shelf-s" in shown and "How long it lies." in shown and "RSM_{upper}__SHELF_S" in shown, shown
from rsm_spark.cli.config import example_file
assert "# How long it lies.\\n#shelf_s = 1.5\\n" in example_file("{process}")
print("added")
"""
_FIELD = '    shelf_ms: Annotated[int, Option("How long it lies.", name="shelf_s", unit=SECONDS, ge=0)] = 1_500\n'
_CASES = {
    "bookie": (
        "ledger.bookie.cli", "ledger/bookie/settings.py", "\n    @property\n    def journal_root(",
        "cli._serve = lambda settings, is_json: found.append(settings.shelf_ms)",
        ["--port", "3181", "--data-dir", "d"],
    ),
    "store": (
        "rsm_spark.map.cli.store", "rsm_spark/runtime/settings.py", "\n    def __post_init__(",
        "cli.run_replica = lambda given, settings, *rest: found.append(settings.replica.shelf_ms)",
        ["--log", "a", "--data-dir", "d"],
    ),
    "broker": (
        "broker.server.cli", "ledger/http/api_settings.py", "\n    def __post_init__(",
        "cli.run_replica = lambda given, settings, *rest: found.append(settings.http.shelf_ms)",
        ["--data-dir", "d"],
    ),
    "worker": (
        "broker.worker.cli", "broker/worker/settings.py", "\n    def check(",
        "cli.run_worker = lambda settings, *rest, **more: found.append(settings.shelf_ms)",
        ["--executor", "subprocess", "--command", "true", "--types", "*"],
    ),
    "autorecovery": (
        "ledger.replication.cli", "ledger/replication/settings.py", None,
        (
            "from ledger.replication import app\n"
            "async def note(uri, settings, announce, **more): found.append(settings.shelf_ms)\n"
            "app.run_auto_recovery = note"
        ),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("process", _CASES)
def test_an_option_is_added_in_one_file(process: str, tmp_path: Path) -> None:
    module, changed, before, catch, needed = _CASES[process]
    package = tmp_path / "copy"
    skipped = shutil.ignore_patterns("testing")
    for name in ("ledger", "rsm_spark", "broker"):
        shutil.copytree(_ROOT / name, package / name, ignore=skipped)
    text = (package / changed).read_text()
    place = len(text) if before is None else text.index(before)
    text = text[:place] + _FIELD + text[place:]
    text = text.replace(
        "from ledger.options import ", "from ledger.options import SECONDS\nfrom ledger.options import ", 1
    )
    (package / changed).write_text(text)
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT.format(module=module, catch=catch, needed=needed, upper=process.upper(), process=process))
    done = subprocess.run(
        [sys.executable, "-P", str(script)], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(package)},
    )  # fmt: skip
    assert done.stdout.endswith("added\n"), done.stdout + done.stderr
