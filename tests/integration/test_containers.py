"""The image, run by runc as the compose file and the chart say: it starts, serves, loses a container, and ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.containers import USER, ContainerImage, Containers, ContainerSpec, needs_containers
from tests.integration.machines import Machines
from tests.integration.pods import Pods, rendered

_ROOT = Path(__file__).resolve().parents[2]
_COMPOSE = _ROOT / "containers" / "compose.yaml"
_MACHINES = ("rsm-1", "rsm-2", "rsm-3")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def image() -> Iterator[ContainerImage]:
    needs_containers()
    with ContainerImage(os.environ.get("RSM_IMAGE", "rsm-spark")) as image:
        yield image


def _rsm(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rsm_spark", *words], check=True, capture_output=True, cwd=_ROOT)


def _hand_over(folder: Path) -> None:
    """Give a folder to the image's user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER)


def _spec(name: str, service: dict[str, Any], folder: Path, *words: str) -> ContainerSpec:
    """Return a service of the compose file as a container; `words` as behind `docker compose run`."""
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    mounts = []
    for volume in service["volumes"]:
        if volume["type"] == "bind":
            here = folder / volume["source"]
            assert here.is_dir()
        else:
            here = folder / f"volume-{volume['source']}"  # As Docker makes it: with the owner that the image says.
            here.mkdir(mode=0o700, exist_ok=True)
            os.chown(here, USER, USER)
        mounts.append((here, volume["target"], volume.get("read_only", False)))
    return ContainerSpec(name, words or service.get("command", ()), service.get("environment", {}), mounts)


def test_three_containers_of_the_compose_file_serve_lose_one_and_end(image: ContainerImage, tmp_path: Path) -> None:
    services = yaml.safe_load(_COMPOSE.read_text())["services"]
    assert set(services) == {*_MACHINES, "operator"}
    _rsm("init-cluster", *_MACHINES, "-o", str(tmp_path / "cluster"))
    for name in (*_MACHINES, "operator"):
        _hand_over(tmp_path / "cluster" / name)
    with (
        Machines(tmp_path, [*_MACHINES, "operator"]) as machines,
        Containers(machines, image, {name: name for name in (*_MACHINES, "operator")}) as containers,
    ):
        specs = {name: _spec(name, services[name], tmp_path, *image.config["Cmd"]) for name in _MACHINES}
        for spec in specs.values():
            containers.start(spec)
        kind, *health = services["rsm-1"]["healthcheck"]["test"]
        assert kind == "CMD"
        for name in _MACHINES:
            containers.wait_for(name, *health)
        kind, *own_health = image.config["Healthcheck"]["Test"]
        assert (kind, containers.execute("rsm-1", *own_health).returncode) == ("CMD", 0)

        def operate(*words: str) -> str:
            done = containers.run(_spec("operator", services["operator"], tmp_path, *words))
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        operate("map", "put", "--log", "map", "hello", "world")
        containers.kill("rsm-1")
        operate("map", "put", "--log", "map", "hello", "again")
        assert "again" in operate("map", "get", "--log", "map", "hello")
        containers.start(specs["rsm-1"])
        containers.wait_for("rsm-1", *health)
        assert "rsm-1" in operate("status", "--log", "map", "--json")
        _is_shut_in(containers, "rsm-2")
        assert [containers.stop(name) for name in _MACHINES] == [0, 0, 0]


def _is_shut_in(containers: Containers, name: str) -> None:
    """Nothing of the image can be written, and no right is left."""
    script = (
        "import os, pathlib, tempfile; tempfile.TemporaryFile(); pathlib.Path('here').touch();"
        "print(os.getuid(), [line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')]);"
        "pathlib.Path('/opt/rsm-spark/there').touch()"
    )
    done = containers.execute(name, "python3", "-c", script)
    assert done.stdout.strip() == f"{USER} {['0' * 16] * 5}"
    assert "Read-only file system: '/opt/rsm-spark/there'" in done.stderr


def test_pods_of_the_chart_serve_and_lose_one_of_each_kind(image: ContainerImage, tmp_path: Path) -> None:
    _rsm("init-release", "rsm", "--namespace", "logs", "-o", str(tmp_path / "release"))
    secrets = json.loads((tmp_path / "release" / "secrets.json").read_text())
    documents = rendered("rsm", "--namespace", "logs", "--set", "gateway.replicas=1,broker.replicas=1")
    pods = Pods(documents, secrets["items"], tmp_path)
    with (
        Machines(tmp_path, [*pods.names, "operator", "test"]) as machines,
        Containers(machines, image, pods.hosts()) as containers,
    ):
        for name in pods.names:
            containers.start(pods.spec(name))
        for name in pods.names:
            containers.wait_for(name, *pods.ready(name))
        lives = [containers.execute(name, *alive) for name in pods.names if (alive := pods.alive(name))]
        assert {said.returncode for said in lives} == {0}
        tested = containers.run(pods.test_spec("test"))
        assert tested.returncode == 0, tested.stdout + tested.stderr
        containers.start(pods.operator_spec("operator"))
        for name in ("rsm-zookeeper-1", "rsm-bookie-2", "rsm-store-1"):
            containers.kill(name)
        for number in range(3):
            put = containers.execute("operator", "rsm", "map", "put", "--log", "map", "key", str(number))
            assert put.returncode == 0, put.stderr
        for name in ("rsm-zookeeper-1", "rsm-bookie-2", "rsm-store-1"):
            containers.start(pods.spec(name))
            containers.wait_for(name, *pods.ready(name))
        got = containers.execute("operator", "rsm", "map", "get", "--log", "map", "key")
        assert (got.returncode, "2" in got.stdout) == (0, True), got.stderr
        url = f"https://{pods.host('rsm-store-2')}:7210/healthz"
        assert containers.execute("operator", "rsm", "probe", url).stdout == "200 ok\n"
        nameless = [word for name in ("TOKEN_FILE", "CERT", "KEY") for word in ("-u", f"RSM_PROBE_{name}")]
        stranger = containers.execute("operator", "env", *nameless, "rsm", "probe", url)
        assert (stranger.returncode, stranger.stdout[:4]) == (6, "401 ")
        assert [containers.stop(name) for name in pods.names if "store" in name] == [0, 0, 0]
