"""etcd's own tests of its client and of its API, on replicas of the map.

Their package `framework/integration` starts etcd's servers; `go/etcd_suites/cluster.go` stands in its place and starts
replicas. Nothing else of their module is changed, and nothing of it lies here: it comes from Go's modules.

Skipped where Go or the modules cannot be had.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.dev import DevCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

_OURS = Path(__file__).parent / "go" / "etcd_suites"
_TREE = Path(__file__).parents[2]
_MODULE = "go.etcd.io/etcd/tests/v3@v3.7.3"
_PASSING: dict[str, list[str]] = json.loads((_OURS / "passing.json").read_text())
_BUILD_S = 1_500
_RUN_S = 900
_ENDED = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+) ", re.MULTILINE)


@pytest.fixture(scope="session")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of etcd's module of tests, with replicas in place of its servers."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no `go` on the path")
    got = subprocess.run(
        [go, "mod", "download", "-json", _MODULE],
        cwd=tmp_path_factory.mktemp("go"), capture_output=True, text=True, check=False, timeout=_BUILD_S,
    )  # fmt: skip
    if got.returncode:
        pytest.skip(f"etcd's tests cannot be had: {got.stdout[-300:]}")
    folder = tmp_path_factory.mktemp("etcd") / "tests"
    shutil.copytree(json.loads(got.stdout)["Dir"], folder, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    for name, place in (
        ("suites.mod", "go.mod"), ("suites.sum", "go.sum"), ("cluster.go", "framework/integration/cluster.go"),
    ):  # fmt: skip
        shutil.copyfile(_OURS / name, folder / place)
    return folder


@pytest.mark.parametrize("package", _PASSING)
def test_etcds_own_tests_pass_on_replicas(
    package: str, suites: Path, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    built = subprocess.run(
        ["go", "test", "-c", "-vet=off", "-mod=readonly", "-tags", "integration", "-o", program, f"./{package}"],
        cwd=suites, capture_output=True, text=True, check=False, timeout=_BUILD_S,
    )  # fmt: skip
    if built.returncode:
        assert "cannot use" not in built.stderr, built.stderr[-3_000:]
        assert "undefined" not in built.stderr, built.stderr[-3_000:]
        pytest.skip(f"etcd's tests cannot be built: {built.stderr[-300:]}")
    command = [
        sys.executable, "-m", "rsm_spark.map", "run", "--log", unique_name, "--metadata-uri", cluster.metadata_uri,
    ]  # fmt: skip
    wanted = _PASSING[package]
    found = tmp_path / "found"
    with found.open("wb") as told:
        process = subprocess.Popen(
            [program, "-test.v", f"-test.timeout={_RUN_S}s", f"-test.run=^({'|'.join(wanted)})$"],
            cwd=suites / package,
            env={
                **os.environ,
                "RSM_REPLICA": json.dumps(command), "RSM_FOLDER": str(tmp_path), "RSM_TREE": str(_TREE),
            },
            stdout=told, stderr=told, start_new_session=True,
        )  # fmt: skip
    try:
        process.wait(_RUN_S + 60)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # The replicas, which are its children, too.
        process.wait(20)
    text = found.read_text(errors="replace")
    ended = {name: how for how, name in _ENDED.findall(text)}
    others = {name: ended.get(name, "did not end") for name in wanted if ended.get(name) != "PASS"}
    assert not others, f"{others}\n{text[-4_000:]}"
