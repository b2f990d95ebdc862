"""`pip install rsm-spark` in an empty environment: clients and workers run without Arrow and Spark; extras by role."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tomllib
from collections.abc import Callable
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from tests.e2e.installed import build_sdist, build_wheel, install, install_sdist, placed
from tests.integration.broker_processes import brokers
from tests.integration.store_processes import StoreProcess

_ROOT = Path(__file__).resolve().parents[2]
_ABSENT = ("pyarrow", "pyspark", "pandas", "deltalake", "lmdb", "apsw", "cryptography", "uvicorn", "hypothesis", "pip")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The Python of an environment without any extra."""
    return install(wheel, tmp_path_factory.mktemp("small") / "venv")


@pytest.fixture
def rsm(small: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: str, metadata_uri: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**_environment(), "RSM_METADATA_URI": metadata_uri}
        command = [str(small), "-m", "rsm_spark", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)

    return run


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_the_smallest_one_has_no_arrow_and_no_spark_and_says_its_version(small: Path, rsm) -> None:
    script = f"import importlib.util; print([name for name in {_ABSENT!r} if importlib.util.find_spec(name)])"
    shown = subprocess.run([str(small), "-c", script], capture_output=True, text=True, check=True, env=_environment())
    assert shown.stdout.strip() == "[]"
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert rsm("--version").stdout == f"rsm-spark {version}\n"
    for words in (
        [],
        ["map"],
        ["task"],
        ["log"],
        ["worker", "run"],
        ["ledger"],
        ["status"],
        ["doctor"],
        ["node"],
        ["zookeeper"],
    ):
        helped = rsm(*words, "--help")
        assert helped.returncode == 0, helped.stderr


def test_pip_installs_from_the_sources_what_is_in_the_wheel(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    python = install_sdist(build_sdist(tmp_path), wheel, folder)
    expected = {path: contents for contents, path in placed(wheel, folder)}
    # Pip lists in RECORD what it makes itself, too.
    assert [path for path, held in expected.items() if path.name != "RECORD" and path.read_bytes() != held] == []
    (own,) = Distribution.discover(name="rsm-spark", path=[str(one) for one in (folder / "lib").glob("*/*")])
    installed = {Path(os.path.normpath(str(own.locate_file(file)))) for file in own.files or ()}
    scripts = set(tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["scripts"])
    made_by_pip = {"INSTALLER", "REQUESTED", "direct_url.json", *scripts}
    assert {path.name for path in installed - expected.keys()} == made_by_pip
    for script in scripts:
        command = [str(python.with_name(script)), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=_environment())
        assert (said.returncode, said.stdout) == (0, f"rsm-spark {own.version}\n"), said.stderr


def test_what_needs_an_extra_names_it(rsm, tmp_path: Path) -> None:
    said = rsm("init-cluster", "a", "b", "c", "-o", str(tmp_path / "cluster"))
    assert (said.returncode, said.stderr) == (
        1,
        "rsm: rsm init-cluster needs cryptography: pip install 'rsm-spark[server]'\n",
    )
    said = rsm("bookie", "run", "--data-dir", str(tmp_path / "bookie"), "--port", "3999")
    assert said.returncode == 1
    assert "pip install 'rsm-spark[server]'" in said.stderr


def test_the_doctor_names_the_extras_that_are_not_there(cluster: DevCluster, rsm) -> None:
    for words in ([], ["--here"]):
        looked = rsm("doctor", "--json", *words, metadata_uri=cluster.metadata_uri)
        findings = {one["what"]: one for one in map(json.loads, looked.stdout.splitlines())}
        assert looked.returncode == any(one["verdict"] == "bad" for one in findings.values()), looked.stderr
        assert findings["library lmdb"]["advice"] == "pip install 'rsm-spark[server]'"
        store = findings["configuration of rsm store run"]
        assert store["verdict"] == "note"
        assert store["advice"].endswith("pip install 'rsm-spark[server]'")
        assert ("ZooKeeper" in findings) is not bool(words)


def test_its_client_calls_a_replica_and_its_worker_serves_a_broker(
    cluster: DevCluster, unique_name: str, small: Path, rsm, tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    store = StoreProcess(uri, unique_name, tmp_path, "a")
    try:
        put = rsm("map", "put", "--log", unique_name, "k", "v", metadata_uri=uri)
        assert put.returncode == 0, put.stderr
        got = rsm("map", "get", "--log", unique_name, "k", metadata_uri=uri)
        assert (got.returncode, "v" in got.stdout) == (0, True), got.stderr
    finally:
        store.kill()

    (tmp_path / "greetings.py").write_text((_ROOT / "examples" / "greetings.py").read_text())
    log = f"{unique_name}-tasks"
    with brokers(tmp_path, "b", options=("--log", log, "--metadata-uri", uri)) as (broker,):
        command = [str(small), "-m", "rsm_spark", "worker", "run", "--tasks", "greetings", "--log", log, "--json"]
        environment = {**_environment(), "RSM_METADATA_URI": uri, "PYTHONPATH": str(tmp_path)}
        with (tmp_path / "worker.log").open("wb") as errors:
            worker = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path, env=environment
            )
        try:
            line = worker.stdout.readline()
            assert line, (tmp_path / "worker.log").read_text()[-2_000:]
            assert json.loads(line)["ready"]
            words = ("greet", "Ada", "--tenant", "acme", "--url", broker.url, "--wait", "--for", "120")
            done = rsm("task", "submit", *words, metadata_uri=uri)
            assert done.returncode == 0, done.stderr
            assert "hello Ada, from acme" in done.stdout
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("server", ["bookie", "run", "--help"]),
        ("server", ["store", "run", "--help"]),
        ("server", ["init-cluster", "a", "b", "c", "-o", "cluster"]),
        ("broker", ["broker", "run", "--help"]),
        ("gateway", ["log", "serve", "--help"]),
        ("sql", ["sql", "serve", "--help"]),
    ],
)
def test_an_extra_brings_what_its_role_needs(wheel: Path, tmp_path: Path, extra: str, words: list[str]) -> None:
    python = install(wheel, tmp_path / "venv", extra)
    command = [str(python), "-m", "rsm_spark", *words]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=_environment())
    assert said.returncode == 0, said.stderr
