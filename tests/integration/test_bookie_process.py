"""A real bookie process on a real disk: killed, stopped, started with what is not its own."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from ledger import ClientSettings, LedgerClient
from ledger.dev.ports import choose_port
from ledger.errors import LedgerError
from ledger.tls import TlsSettings, client_context
from ledger.wire.codes import Status
from ledger.wire.packets import ReadRequest, StartTlsRequest
from ledger.zookeeper import session
from ledger.zookeeper.uri import MetadataUri
from tests.integration.bookie_process import KEY, Bookie, Client, add


@pytest.fixture
def bookie(zookeeper, tmp_path, unique_name):
    made = Bookie(zookeeper, tmp_path / "bookie", root=f"/{unique_name}")
    yield made
    made.kill()


@pytest.mark.parametrize("kills", [4, pytest.param(25, marks=pytest.mark.slow)])
def test_acknowledged_entries_and_fences_survive_kill_9(bookie, kills) -> None:
    """Kills in the middle of a stream of adds; about every third life rolls a journal file."""
    rng = random.Random(1)
    acked: dict[tuple[int, int], None] = {}

    async def stream_until_killed(life: int) -> None:
        client = await Client.connect(bookie.port)
        ledger_id = 100 + life
        fenced = await client.ask(ReadRequest(0, 500 + life, -1, KEY, is_fencing=True))
        assert fenced[0].status == Status.ENOENTRY
        asyncio.get_running_loop().call_later(rng.uniform(0.05, 0.5), bookie.process.kill)
        entry_id = 0
        try:
            while True:
                client.send(*[add(ledger_id, entry_id + n, txn=entry_id + n) for n in range(200)])
                await client.writer.drain()
                entry_id += 200
                for _ in range(200):
                    response = await client.receive()
                    assert response.status == Status.EOK
                    acked[ledger_id, response.entry_id] = None
        except (OSError, asyncio.IncompleteReadError):
            pass

    async def check(life: int) -> None:
        client = await Client.connect(bookie.port)
        places = list(acked)
        for start in range(0, len(places), 500):
            part = places[start : start + 500]
            answers = await client.ask(*[ReadRequest(n, *place) for n, place in enumerate(part)])
            for place, answer in zip(part, answers, strict=True):
                assert (place, answer.status) == (place, Status.EOK)
                assert bytes(answer.body) == add(*place).body
        for n in range(life + 1):
            (answer,) = await client.ask(add(500 + n, 0))
            assert answer.status == Status.EFENCED
        client.writer.close()

    bookie.start()
    for life in range(kills):
        asyncio.run(stream_until_killed(life))
        bookie.kill()
        assert bookie.start()["limbo"] is False
        asyncio.run(check(life))
    assert len(acked) > 1_000


def test_a_bookie_says_whether_it_is_ready(bookie, tmp_path, monkeypatch) -> None:
    """To systemd too, which reads it at a socket."""

    def ask() -> tuple[int, str]:
        command = [sys.executable, "-m", "ledger.bookie", "ready", "--data-dir", str(bookie.folder)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return ended.returncode, ended.stdout.strip()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        bookie.start()
        assert systemd.recv(1000) == b"READY=1\nSTATUS=ready"
    assert ask() == (0, "ready")
    bookie.process.terminate()
    assert bookie.process.wait(60) == 0
    code, words = ask()
    assert (code, "does not serve" in words) == (1, True)
    bookie.start("--read-only")
    code, words = ask()
    assert (code, words.startswith("not ready: read-only")) == (1, True)


def test_a_damaged_index_is_rebuilt_and_a_killed_bookie_keeps_its_own(bookie) -> None:
    """A page of zeros ends whoever looks at it; so does a library, here by the signal that its assertions raise."""

    async def written(*entry_ids: int) -> None:
        client = await Client.connect(bookie.port)
        answers = await client.ask(*[add(1, n, n) for n in entry_ids])
        assert [answer.status for answer in answers] == [Status.EOK] * len(entry_ids)
        client.writer.close()

    async def held(count: int) -> None:
        client = await Client.connect(bookie.port)
        answers = await client.ask(*[ReadRequest(n, 1, n, None) for n in range(count)])
        assert [answer.status for answer in answers] == [Status.EOK] * count
        client.writer.close()

    index = bookie.folder / "ledgers" / "index" / "data.mdb"
    bookie.start()
    asyncio.run(written(*range(50)))
    bookie.kill()
    bookie.start()
    with index.open("rb") as made:  # Held open: a number of an inode is used again, a link count tells.
        bookie.kill()
        assert not bookie.start()["limbo"]
        assert os.fstat(made.fileno()).st_nlink == 1
        bookie.process.send_signal(signal.SIGABRT)
        bookie.process.wait()
        bookie.kill()
        assert not bookie.start()["limbo"]
        assert os.fstat(made.fileno()).st_nlink == 0
    asyncio.run(held(50))
    bookie.kill()
    for page in range(index.stat().st_size // 4096):
        content = bytearray(index.read_bytes())
        content[page * 4096 : (page + 1) * 4096] = bytes(4096)
        index.write_bytes(content)
        if page % 6 == 5:
            assert not bookie.start()["limbo"]
            asyncio.run(held(50))
            bookie.kill()


def test_sigterm_ends_it_in_good_order_and_nothing_is_lost(bookie) -> None:
    bookie.start()

    async def one() -> None:
        client = await Client.connect(bookie.port)
        (answer,) = await client.ask(add(1, 0))
        assert answer.status == Status.EOK

    asyncio.run(one())
    bookie.process.terminate()
    assert bookie.process.wait(60) == 0
    bookie.kill()

    async def two() -> None:
        client = await Client.connect(bookie.port)
        (answer,) = await client.ask(ReadRequest(0, 1, 0))
        assert answer.status == Status.EOK

    assert bookie.start()["replayed_entries"] == 2  # The entry and the ledger's key.
    asyncio.run(two())


def test_what_is_not_its_own_is_refused(bookie, tmp_path) -> None:
    bookie.start()
    assert "in use by another bookie process" in bookie.refused(port=choose_port(taken=()))
    bookie.kill()
    assert "the disk belongs to" in bookie.refused(port=choose_port(taken=()))
    (bookie.folder / "journal").rename(tmp_path / "lost")
    assert "is empty, but this bookie had data there" in bookie.refused()


def test_a_second_bookie_of_a_name_is_told_that_one_serves(bookie, tmp_path) -> None:
    bookie.start()
    assert "; it serves there now: end it first, or give" in bookie.refused("--data-dir", str(tmp_path / "other"))


def test_an_address_beyond_loopback_needs_a_word(bookie) -> None:
    assert "say --insecure" in bookie.refused("--bind", "0.0.0.0")


def test_a_journal_in_memory_is_refused(bookie) -> None:
    assert "a power cut empties" in bookie.refused("--journal-dir", f"/dev/shm/rsm-test-{bookie.port}")


def test_the_commands_tell_where_things_stand(bookie) -> None:
    notice = bookie.start("--no-fsync")
    assert (notice["ready"], notice["bookie_id"], notice["fsync"]) == (True, f"127.0.0.1:{bookie.port}", False)
    command = [sys.executable, "-m", "ledger.bookie", "info", "--data-dir", str(bookie.folder), "--json"]
    facts = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert (facts["running"], facts["fsync"], facts["limbo"]) == (True, False, [])
    assert (facts["tls"], facts["ledger_dirs"]) == ("off", [str(bookie.folder / "ledgers")])


def test_a_read_only_bookie_is_registered_as_one_and_serves_reads(bookie) -> None:
    bookie.start()

    async def add_one(expected: Status) -> None:
        client = await Client.connect(bookie.port)
        (answer,) = await client.ask(add(1, 0))
        assert answer.status == expected
        (answer,) = await client.ask(ReadRequest(0, 1, 0))
        assert answer.status == Status.EOK
        client.writer.close()

    asyncio.run(add_one(Status.EOK))
    bookie.kill()
    bookie.start("--read-only")
    asyncio.run(add_one(Status.EREADONLY))
    assert asyncio.run(_registered(bookie)) == (["readonly"], [f"127.0.0.1:{bookie.port}"])


async def _registered(bookie: Bookie) -> tuple[list[str], list[str]]:
    uri = MetadataUri.parse(bookie.uri)
    store = await session.connect(uri.hosts)
    try:
        root = f"{uri.ledgers_root}/available"
        return await store.children(root), await store.children(f"{root}/readonly")
    finally:
        await store.close()


def test_segments_spread_over_several_directories_that_stay_the_same(bookie, tmp_path) -> None:
    roots = [tmp_path / name for name in ("a", "b")]
    named = [word for root in roots for word in ("--ledger-dir", str(root))]
    notice = bookie.start("--no-fsync", *named)
    assert notice["ready"]
    bookie.kill()
    cookies = [(root / "current" / "VERSION").read_text() for root in roots]
    assert f'ledgerDirs: "2\\t{roots[0]}\\t{roots[1]}"' in cookies[0]
    assert cookies[0] == cookies[1]
    assert "the disk belongs to" in bookie.refused("--no-fsync", "--ledger-dir", str(roots[0]))
    assert "name each once" in bookie.refused("--no-fsync", *named, "--ledger-dir", str(roots[0]))
    assert bookie.start("--no-fsync", *named)["ready"]


def test_tls_is_demanded_beyond_loopback(bookie, tmp_path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-subj", "/CN=bookie", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    assert "needs a certificate" in bookie.refused("--tls-required")
    assert "does not exist" in bookie.refused("--tls-cert", str(tmp_path / "none.pem"), "--tls-key", str(key))
    files = ("--tls-cert", str(cert), "--tls-key", str(key))
    notice = bookie.start("--bind", "0.0.0.0", "--advertise", "127.0.0.1", *files)
    assert notice["tls"] == "required"

    async def talk() -> None:
        client = await Client.connect(bookie.port)
        (answer,) = await client.ask(add(1, 0))
        assert answer.status == Status.EUA
        (answer,) = await client.ask(StartTlsRequest(1))
        assert answer.status == Status.EOK
        context = client_context(TlsSettings(ca=str(cert)))
        await client.writer.start_tls(context, server_hostname="127.0.0.1")
        (answer,) = await client.ask(add(1, 0))
        assert answer.status == Status.EOK
        client.writer.close()

    asyncio.run(talk())


def test_a_log_in_is_demanded_where_users_are_named(bookie, tmp_path, monkeypatch) -> None:
    users, wrong = tmp_path / "users", tmp_path / "wrong"
    assert "cannot read the log-in" in bookie.refused("--auth-file", str(users))
    users.write_text("digest:hd:testpwd\ndigest:other:word\n")
    assert bookie.start("--auth-file", str(users))["login"] == "required"
    login = tmp_path / "login"
    quorum: dict[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
    login.write_text("digest:hd:testpwd\n")
    wrong.write_text("digest:hd:word\n")

    async def write(auth_file: str) -> None:
        monkeypatch.setenv("RSM_CLIENT__AUTH_FILE", auth_file)
        settings = msgspec.structs.replace(ClientSettings.from_environment(), quorum_timeout_s=3.0)
        async with await LedgerClient.connect(bookie.uri, settings=settings) as client:
            writer = await client.create(**quorum)
            try:
                await writer.append(b"x")
            finally:
                writer.abandon()

    asyncio.run(write(str(login)))
    with pytest.raises(LedgerError, match="log-in as 'hd': the bookie answers EUA|log-in as 'hd': it closed"):
        asyncio.run(write(str(wrong)))
    with pytest.raises(LedgerError, match="demands TLS or a log-in"):
        asyncio.run(write(""))
