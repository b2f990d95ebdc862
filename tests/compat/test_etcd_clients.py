"""Foreign clients of etcd on replicas of the map, and etcd itself beside them: the same calls, the same answers.

Skipped where Go, Maven or their modules cannot be had.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from ledger.dev.ports import HOST, choose_port
from rsm_spark.map.etcd import etcd_pb2 as pb
from tests.compat.etcd_difference import Difference, shown_events
from tests.compat.go_programs import GoMissingError, build_go
from tests.integration.etcd_calls import EtcdCalls, EtcdFailure
from tests.integration.store_processes import Stores, stores
from tests.integration.test_etcd_api import start, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

_JETCD = Path(__file__).parent / "java" / "jetcd"
_PARTS = (
    "locks", "election", "stm", "leases", "kubernetes", "progress", "served-locks", "served-elections",
)  # fmt: skip
_STEPS = 400


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `node`, `ctl` and `clients`."""
    folder = tmp_path_factory.mktemp("go-etcd")
    try:
        for program in ("node", "ctl", "clients"):
            build_go("etcd", program, folder)
    except GoMissingError as error:
        pytest.skip(f"etcd's programs cannot be built: {error}")
    return folder


@pytest.fixture
def replicas(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[tuple[Stores, list[str]]]:
    """Two replicas, and where etcd's clients find them."""
    with stores(cluster.metadata_uri, unique_name, tmp_path) as found:
        addresses = [start(found, name) for name in "ab"]
        with EtcdCalls(addresses[0]) as calls:
            until(lambda: calls.get(b"a"))
        yield found, addresses


@pytest.fixture
def etcd(programs: Path, tmp_path: Path) -> Iterator[str]:
    """etcd itself; where its clients find it."""
    ports = [choose_port(taken=set())]
    ports.append(choose_port(taken=set(ports)))
    client, peer = (f"http://{HOST}:{port}" for port in ports)
    with (tmp_path / "etcd.log").open("wb") as log:
        process = subprocess.Popen(
            [
                programs / "node", "--data-dir", tmp_path / "etcd", "--listen-client-urls", client,
                "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", f"default={peer}", "--log-level", "error",
            ],
            stdout=log,
            stderr=log,
        )  # fmt: skip
    try:
        with EtcdCalls(f"{HOST}:{ports[0]}") as calls:
            until(lambda: calls.get(b"a"))
        yield f"{HOST}:{ports[0]}"
    finally:
        process.kill()
        process.wait(20)


@pytest.mark.parametrize("side", [0, 1], ids=["leader", "follower"])
def test_random_calls_are_answered_as_etcd_answers_them(
    side: int, replicas: tuple[Stores, list[str]], etcd: str
) -> None:
    _, addresses = replicas
    with EtcdCalls(etcd) as real, EtcdCalls(addresses[side]) as ours:
        difference = Difference(real, ours, random.Random(side))  # noqa: S311 - a seed to repeat it
        watches = [one.calls.watch() for one in difference.sides]
        for watch, one in zip(watches, difference.sides, strict=True):
            watch.create(b"\0", b"\0", start_revision=one.revisions[0] + 1, prev_kv=True)
        difference.run(_STEPS)
        assert min(difference.calls[name] for name in ("Put", "Range", "Txn", "DeleteRange", "LeaseGrant")) > 5
        told: list[list[Any]] = []
        for watch, one in zip(watches, difference.sides, strict=True):
            one.calls.put(b"zz/end", b"")
            events: list[Any] = []
            while not events or events[-1].kv.key != b"zz/end":
                response = watch.receive()
                assert not isinstance(response, EtcdFailure), response
                events += response.events
            told.append(shown_events(one, events[:-1]))
            watch.close()
        assert told[0] == told[1]
        assert len(told[0]) > _STEPS // 4


@pytest.mark.parametrize("part", _PARTS)
def test_etcds_own_client_works(part: str, replicas: tuple[Stores, list[str]], programs: Path) -> None:
    _, addresses = replicas
    done = subprocess.run(
        [programs / "clients", part, ",".join(addresses)], capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-3000:]


def test_the_same_program_is_content_with_etcd_itself(etcd: str, programs: Path) -> None:
    for part in _PARTS:
        done = subprocess.run(
            [programs / "clients", part, etcd], capture_output=True, text=True, check=False, timeout=200
        )
        assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-3000:]


def test_etcdctl_works(replicas: tuple[Stores, list[str]], programs: Path) -> None:
    _, addresses = replicas

    def ctl(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [programs / "ctl", "--endpoints", ",".join(addresses), *arguments],
            input=stdin, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert ctl("put", "ctl/a", "1") == "OK\n"
    assert ctl("put", "ctl/a", "2", "--prev-kv") == "OK\nctl/a\n1\n"
    assert ctl("get", "ctl/", "--prefix") == "ctl/a\n2\n"
    txn = 'value("ctl/a") = "2"\n\nput ctl/b 3\nget ctl/a\n\n\n\n'
    assert ctl("txn", stdin=txn) == "SUCCESS\n\nOK\n\nctl/a\n2\n"
    lease = ctl("lease", "grant", "60").split()[1]
    assert ctl("put", "ctl/l", "x", f"--lease={lease}") == "OK\n"
    assert "attached keys([ctl/l])" in ctl("lease", "timetolive", lease, "--keys")
    assert ctl("lease", "keep-alive", lease, "--once").endswith("TTL(60)\n")
    assert "revoked" in ctl("lease", "revoke", lease)
    assert ctl("del", "ctl/", "--prefix") == "2\n"
    status = json.loads(ctl("endpoint", "status", "-w", "json"))
    assert {one["Status"]["leader"] for one in status} == {status[0]["Status"]["leader"]}
    assert ctl("endpoint", "health", "-w", "json").count('"health":true') == 2
    assert ctl("member", "list").count("started") == 2
    assert "locked" in ctl("lock", "ctl-lock", "echo", "locked")
    assert "etcdserver: permission" not in ctl("alarm", "list")
    assert "Finished defragmenting" in ctl("defrag")
    assert "compacted revision" in ctl("compact", str(status[0]["Status"]["header"]["revision"]))


def test_jetcd_works(replicas: tuple[Stores, list[str]], tmp_path: Path) -> None:
    maven, java = shutil.which("mvn"), shutil.which("java")
    if maven is None or java is None or shutil.which("javac") is None:
        pytest.skip("there is no Maven, or no JDK")
    paths = tmp_path / "class-path"
    got = subprocess.run(
        [maven, "-q", "-B", "-f", _JETCD / "pom.xml", "dependency:build-classpath", f"-Dmdep.outputFile={paths}"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if got.returncode != 0:
        pytest.skip(f"Maven cannot get jetcd: {got.stdout[-300:]}")
    jars = paths.read_text()
    subprocess.run(["javac", "-cp", jars, "-d", tmp_path, _JETCD / "Jetcd.java"], check=True, timeout=120)
    endpoints = [f"http://{address}" for address in replicas[1]]
    done = subprocess.run(
        [java, "-cp", f"{tmp_path}:{jars}", "Jetcd", *endpoints],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr[-3000:]


def test_a_lease_of_a_client_that_is_gone_takes_its_keys_with_it(replicas: tuple[Stores, list[str]]) -> None:
    _, addresses = replicas
    with EtcdCalls(addresses[0]) as one, EtcdCalls(addresses[1]) as other:
        granted = one.call("LeaseGrant", pb.LeaseGrantRequest(ttl=2, id=99))
        assert (granted.id, granted.ttl) == (99, 2)
        first = one.put(b"x", b"1", lease=99).header.revision
        assert one.keep_alive([99, 98])[0].ttl == 2
        watch = other.watch()
        watch.create(b"x", start_revision=first + 1, prev_kv=True)
        assert watch.receive().created
        (event,) = watch.events(1)
        assert (event.type, event.prev_kv.lease) == (pb.Event.DELETE, 99)
        watch.close()
