"""Foreign clients of etcd on replicas of the map, and etcd itself beside them: the same calls, the same answers.

Skipped where Go, Maven or their modules cannot be had.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledger.dev import DevCluster
from ledger.dev.ports import HOST, choose_port
from rsm_spark.map.etcd import etcd_pb2 as pb
from tests.compat.etcd_difference import Difference, shown_events
from tests.compat.go_programs import GoMissingError, build_go
from tests.integration.etcd_calls import EtcdCalls, EtcdFailure
from tests.integration.store_processes import Stores, stores
from tests.integration.test_etcd_api import start, until
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

_JETCD = Path(__file__).parent / "java" / "jetcd"
_PARTS = (
    "locks", "election", "stm", "leases", "kubernetes", "progress", "served-locks", "served-elections",
)  # fmt: skip
_STEPS = 400


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `node`, `ctl`, `utl` and `clients`."""
    folder = tmp_path_factory.mktemp("go-etcd")
    try:
        for program in ("node", "ctl", "utl", "clients"):
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
    with etcd_on(programs, tmp_path / "etcd", _two_ports()) as address:
        yield address


def _two_ports() -> list[int]:
    ports = [choose_port(taken=set())]
    return [*ports, choose_port(taken=set(ports))]


@contextmanager
def etcd_on(programs: Path, folder: Path, ports: list[int]) -> Iterator[str]:
    """Run etcd itself on a folder, with ports for clients and for peers."""
    client, peer = (f"http://{HOST}:{port}" for port in ports)
    with folder.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [
                programs / "node", "--data-dir", folder, "--listen-client-urls", client,
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


def etcdctl(programs: Path, *options: str) -> Callable[..., str]:
    """Return what runs etcdctl; `fails` = what it must complain of."""

    def ctl(*arguments: str, stdin: str = "", fails: str = "") -> str:
        done = subprocess.run(
            [programs / "ctl", *options, *arguments],
            input=stdin, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert (done.returncode != 0) == bool(fails), done.stderr
        assert fails in done.stderr
        return done.stdout

    return ctl


def test_etcdctl_works(replicas: tuple[Stores, list[str]], programs: Path) -> None:
    _, addresses = replicas
    ctl = etcdctl(programs, "--endpoints", ",".join(addresses))
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
    assert ctl("alarm", "list") == ""
    with EtcdCalls(addresses[1]) as ours:
        raising = pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, member_id=9, alarm=pb.NOSPACE)
        assert ours.call("Alarm", raising).alarms
        assert ctl("alarm", "list").split() == ["memberID:9", "alarm:NOSPACE"]
        assert ours.put(b"ctl/a", b"3").text == "etcdserver: mvcc: database space exceeded"
        assert ctl("alarm", "disarm").split() == ["memberID:9", "alarm:NOSPACE"]
    assert ctl("put", "ctl/a", "3") == "OK\n"
    assert "Finished defragmenting" in ctl("defrag")
    assert "compacted revision" in ctl("compact", str(status[0]["Status"]["header"]["revision"]))


def test_etcd_begins_with_a_snapshot_of_the_map(
    replicas: tuple[Stores, list[str]], programs: Path, tmp_path: Path
) -> None:
    _, addresses = replicas
    ctl = etcdctl(programs, "--endpoints", addresses[1])
    with EtcdCalls(addresses[1]) as ours:
        for n in range(300):
            ours.put(b"s/%03d" % n, b"v" * (n * 40), lease=0)
        ours.call("LeaseGrant", pb.LeaseGrantRequest(id=77, ttl=600))
        for n in range(0, 300, 7):
            ours.put(b"s/%03d" % n, b"changed", lease=77)
        ours.delete(b"s/100", b"s/120")
        puts = [pb.RequestOp(request_put=pb.PutRequest(key=b"t/%d" % n)) for n in range(5)]
        ours.call("Txn", pb.TxnRequest(success=puts))
        ours.put(b"large", b"v" * 1_000_000)
        kept = ours.get(b"\0", b"\0")
        ours.delete(b"gone")
    snapshot = tmp_path / "snapshot.db"
    ctl("snapshot", "save", str(snapshot))
    ports = _two_ports()
    peer = f"http://{HOST}:{ports[1]}"

    def utl(*arguments: str | Path) -> str:
        done = subprocess.run(
            [programs / "utl", "snapshot", *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = json.loads(utl("status", snapshot, "-w", "json"))
    assert (shown["totalKey"], shown["revision"]) == (kept.count, max(kv.mod_revision for kv in kept.kvs))
    restored = tmp_path / "restored"
    utl("restore", snapshot, "--data-dir", restored, "--name", "default", "--initial-cluster", f"default={peer}",
        "--initial-advertise-peer-urls", peer)  # fmt: skip
    with etcd_on(programs, restored, ports) as address, EtcdCalls(address) as real:
        found = real.get(b"\0", b"\0")
        assert list(found.kvs) == list(kept.kvs)
        assert found.header.revision >= kept.header.revision
        told = real.call("LeaseTimeToLive", pb.LeaseTimeToLiveRequest(id=77, keys=True))
        assert (told.granted_ttl, len(told.keys)) == (600, sum(kv.lease == 77 for kv in kept.kvs))
        early = real.get(b"s/000", revision=kept.header.revision - 1)
        assert early == EtcdFailure("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
        assert real.put(b"s/000", b"later").header.revision == found.header.revision + 1
        real.call("LeaseRevoke", pb.LeaseRevokeRequest(id=77))
        assert real.get(b"s/007").count == 0


_PRINCIPALS = """
[[principal]]
name = "replicas"
role = "replica"
tokens = ["{replica}"]

[[principal]]
name = "owner"
role = "client"
access = "write"
prefix = "own/"
tokens = ["{owner}"]

[[principal]]
name = "app"
role = "client"
access = "write"
certificates = ["app.example.org"]
"""


def test_etcdctl_shows_a_password_or_a_certificate(
    cluster: DevCluster, unique_name: str, tmp_path: Path, programs: Path
) -> None:
    tokens = {name: f"{name}-token-0123456789abcdef" for name in ("replica", "owner")}
    hashed = {name: hashlib.sha256(shown.encode()).hexdigest() for name, shown in tokens.items()}
    token, principals = tmp_path / "token", tmp_path / "principals.toml"
    token.write_text(tokens["replica"])
    principals.write_text(_PRINCIPALS.format(**hashed))
    for path in (token, principals):
        path.chmod(0o600)
    authority = Authority(tmp_path, "authority")
    server, app, nobody = (authority.sign(name, host=host) for name, host in (
        ("replica", "IP:127.0.0.1"), ("app", "DNS:app.example.org"), ("nobody", "DNS:nobody.example.org"),
    ))  # fmt: skip
    options = ("--token-file", str(token), "--principals", str(principals), "--tls-cert", server["cert"], "--tls-key",
               server["key"], "--tls-ca", authority.ca)  # fmt: skip
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        address = start(replicas, "a", *options)
        owned = etcdctl(programs, "--endpoints", address, "--cacert", authority.ca)
        user = ("--user", f"owner:{tokens['owner']}")
        with EtcdCalls(
            address, tokens["owner"], grpc.ssl_channel_credentials(Path(authority.ca).read_bytes())
        ) as calls:
            until(lambda: calls.put(b"own/a", b"1"))
        assert owned(*user, "put", "own/b", "2") == "OK\n"
        assert owned(*user, "get", "own/", "--prefix") == "own/a\n1\nown/b\n2\n"
        owned(*user, "put", "other", "2", fails="permission denied")
        owned(*user, "lock", "own/lock", "true")
        owned("--user", "owner:wrong-password-0123456789", "get", "own/a", fails="authentication failed")
        owned("get", "own/a", fails="does not know the caller")
        etcdctl(programs, "--endpoints", address, "--command-timeout", "2s")("get", "own/a", fails="context deadline")
    # With an authority of clients each of them shows a certificate.
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        address = start(replicas, "a", *options, "--tls-client-ca", authority.ca)
        ctls = [
            etcdctl(programs, "--endpoints", address, "--cacert", authority.ca, "--cert", one["cert"], "--key",
                    one["key"], "--command-timeout", "20s")
            for one in (app, nobody)
        ]  # fmt: skip
        assert ctls[0]("put", "anything", "1") == "OK\n"
        assert ctls[0]("get", "own/", "--prefix", "--count-only", "-w", "fields").endswith('"Count" : 2\n')
        ctls[1]("get", "anything", fails="does not know the caller")
        assert ctls[1](*user, "get", "own/a") == "own/a\n1\n"
        etcdctl(programs, "--endpoints", address, "--cacert", authority.ca, "--command-timeout", "2s")(
            "get", "own/a", fails="context deadline"
        )


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
