"""A client's connections in TLS, against a bookie's server: what fits, and each way in which it does not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import uvloop

from ledger.bookie.tls import TlsPolicy
from ledger.client.answers import Answered, AnswerQueue
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.core.metadata import DigestType
from ledger.errors import UsageError
from ledger.testing import SimDisk
from ledger.tls import TlsSettings, client_context, server_context
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest, ReadLacRequest
from tests.unit.ledger.bookie.bookie_bench import Bench
from tests.unit.ledger.bookie.test_tls import Authority

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
PAYLOAD = b"x" * 200_000
Scenario = Callable[[ConnectionPool, str], Awaitable[None]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("client-tls"), "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("client-tls"), "stranger")


@pytest.fixture(scope="module")
def bookie_cert(authority: Authority) -> dict[str, str]:
    return authority.sign("bookie")


def run(
    scenario: Scenario, policy: TlsPolicy, tls: TlsSettings | None, *, protocol: str = "v3", loop: str = "asyncio"
) -> None:
    """Run a scenario with a pool, and the id of a bookie that has this policy."""

    async def program() -> None:
        bench = Bench(SimDisk(random.Random(1)), journal={"file_bytes": 1 << 22}, tls=policy)
        await bench.start()
        port = await bench.server.listen("127.0.0.1", 0)

        async def resolve(bookie_id: str) -> tuple[str, int]:
            return "127.0.0.1", port

        settings = msgspec.structs.replace(ClientSettings(), protocol=protocol, tls=tls)
        pool = ConnectionPool(resolve, random.Random(1), settings)
        await scenario(pool, f"127.0.0.1:{port}")
        await pool.close()
        await bench.server.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(program())


def policy(cert: dict[str, str], *, ca: str | None = None, is_required: bool = False) -> TlsPolicy:
    return TlsPolicy(server_context(TlsSettings(**cert, ca=ca)), is_required=is_required)  # type: ignore[arg-type]


async def ask(pool: ConnectionPool, bookie_id: str) -> Answered:
    answers = AnswerQueue()
    pool.ask(bookie_id, ReadLacRequest(pool.take_txns(1), 7), (answers, None))
    (answered,) = await answers.next_batch()
    return answered


async def add_and_read(pool: ConnectionPool, bookie_id: str) -> None:
    answers = AnswerQueue()
    for entry_id in range(5):
        body = seal(7, entry_id, -1, len(PAYLOAD) * (entry_id + 1), PAYLOAD, Digest(DigestType.CRC32C))
        pool.ask(bookie_id, AddRequest(pool.take_txns(1), 7, entry_id, master_key(b""), body), (answers, entry_id))
    stored: list[Answered] = []
    while len(stored) < 5:
        stored += await answers.next_batch()
    assert all(answered.is_stored for answered in stored), stored
    pool.ask_entries(bookie_id, 7, range(5), answers)
    read: list[Answered] = []
    while len(read) < 5:
        read += await answers.next_batch()
    assert [bytes(answered.response.body[-len(PAYLOAD) :]) for answered in read] == [PAYLOAD] * 5  # type: ignore[union-attr,index]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_everything_goes_on_in_tls(protocol: str, loop: str, authority: Authority, bookie_cert: dict[str, str]) -> None:
    async def scenario(pool: ConnectionPool, bookie_id: str) -> None:
        await add_and_read(pool, bookie_id)
        assert (await ask(pool, bookie_id)).reason == "EOK"

    run(scenario, policy(bookie_cert, is_required=True), TlsSettings(ca=authority.ca), protocol=protocol, loop=loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_shows_its_certificate_where_one_is_demanded(
    loop: str, authority: Authority, bookie_cert: dict[str, str]
) -> None:
    async def scenario(pool: ConnectionPool, bookie_id: str) -> None:
        await add_and_read(pool, bookie_id)

    tls = TlsSettings(ca=authority.ca, **authority.sign("client"))
    run(scenario, policy(bookie_cert, ca=authority.ca), tls, loop=loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("expired", "has expired"),
        ("wrong authority", "authority that is not in `ca`"),
        ("wrong host", "does not name this address"),
        ("no client certificate", "demand a certificate of its clients"),
        ("client of a stranger", "an authority that it trusts"),
        ("switched off", "has TLS switched off"),
    ],
)
def test_what_does_not_fit_is_said(
    what: str, said: str, loop: str, authority: Authority, stranger: Authority, bookie_cert: dict[str, str]
) -> None:
    tls = TlsSettings(ca=authority.ca)
    bookie = policy(bookie_cert)
    if what == "expired":
        bookie = policy(authority.sign("old", days="-1"))
    elif what == "wrong authority":
        tls = TlsSettings(ca=stranger.ca)
    elif what == "wrong host":
        bookie = policy(authority.sign("elsewhere", host="IP:127.9.9.9"))
    elif what == "no client certificate":
        bookie = policy(bookie_cert, ca=authority.ca)
    elif what == "client of a stranger":
        bookie = policy(bookie_cert, ca=authority.ca)
        tls = TlsSettings(ca=authority.ca, **stranger.sign("client"))
    else:
        bookie = TlsPolicy(None)

    async def scenario(pool: ConnectionPool, bookie_id: str) -> None:
        answered = await ask(pool, bookie_id)
        assert said in answered.reason
        assert bookie_id in pool.suspects()

    run(scenario, bookie, tls, loop=loop)


def test_a_plain_client_is_turned_away_where_tls_is_required(bookie_cert: dict[str, str]) -> None:
    async def scenario(pool: ConnectionPool, bookie_id: str) -> None:
        answered = await ask(pool, bookie_id)
        assert answered.reason == "EUA"

    run(scenario, policy(bookie_cert, is_required=True), None)


def test_files_that_cannot_be_used_are_named_at_once(
    tmp_path: Path, authority: Authority, bookie_cert: dict[str, str]
) -> None:
    noise = tmp_path / "noise.pem"
    noise.write_text("this is no certificate")
    other = authority.sign("other")
    for settings, said in (
        (TlsSettings(ca=str(tmp_path / "nowhere.pem")), "nowhere.pem does not exist"),
        (TlsSettings(ca=str(noise)), "not PEM, or damaged"),
        (TlsSettings(cert=str(noise)), "not PEM, or damaged"),
        (TlsSettings(cert=bookie_cert["cert"], key=other["key"]), "the key is not that of the certificate"),
        (TlsSettings(cert=bookie_cert["cert"], key=str(tmp_path / "gone.key")), "gone.key does not exist"),
        (TlsSettings(key=other["key"]), "no certificate"),
    ):
        with pytest.raises(UsageError, match=said):
            client_context(settings)
    with pytest.raises(UsageError, match="a bookie needs a certificate"):
        server_context(TlsSettings())
