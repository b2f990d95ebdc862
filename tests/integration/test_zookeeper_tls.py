"""ZooKeeper by TLS, on a real server whose secure port demands certificates of its clients."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledger.client.client import LedgerClient
from ledger.dev.ports import HOST, choose_port
from ledger.dev.process import end_all, send_signal, spawn
from ledger.errors import MetadataUnavailableError, UsageError
from ledger.ports import SessionState
from ledger.tls import TlsSettings
from ledger.zookeeper.session import ZooKeeperSession, connect
from ledger.zookeeper.tls_file import TLS_FILE_VARIABLE
from ledger.zookeeper_server.probe import answers
from ledger.zookeeper_server.server import write_files, zookeeper_command
from ledger.zookeeper_server.settings import ZooKeeperSettings
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = pytest.mark.asyncio
CALLS = 500
VALUE_BYTES = 20_000
_START_S = 60.0
_REFUSED_S = 2.0
_SECURE = """\
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPort={port}
secureClientPortAddress={host}
ssl.keyStore.location={key_store}
ssl.keyStore.type=PEM
ssl.trustStore.location={ca}
ssl.trustStore.type=PEM
ssl.clientAuth=need
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
"""


class Secured(NamedTuple):
    """Where it listens, and certificates of the authority that it trusts."""

    plain: str
    secure: str
    folder: Path
    authority: Authority
    client: dict[str, Any]

    def tls(self) -> TlsSettings:
        return TlsSettings(ca=self.authority.ca, **self.client)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("zookeeper-tls")
    authority = Authority(folder, "authority")
    server, client = authority.sign("server"), authority.sign("client")
    key_store = folder / "key-store.pem"
    key_store.write_text(Path(server["key"]).read_text() + Path(server["cert"]).read_text())
    plain = choose_port(taken=())
    secure = choose_port(taken=(plain,))
    settings = ZooKeeperSettings(data_dir=str(folder), port=plain, heap_mib=96, is_small=True)
    with write_files(settings).open("a") as config:
        config.write(_SECURE.format(port=secure, host=HOST, key_store=key_store, ca=authority.ca))
    log = folder / "zookeeper.log"
    process = spawn(zookeeper_command(settings), log=log, env={})
    try:
        deadline = time.monotonic() + _START_S
        while not answers(HOST, plain):
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.05)
        yield Secured(f"{HOST}:{plain}", f"{HOST}:{secure}", folder, authority, client)
    finally:
        send_signal(process, signal.SIGCONT)
        end_all([process], grace_s=5)


async def _refused(address: str, tls: TlsSettings | None) -> str:
    with pytest.raises(MetadataUnavailableError) as raised:
        await connect([address], connect_timeout_s=_REFUSED_S, tls=tls)
    return str(raised.value)


async def test_a_session_works_and_keeps_up_with_many_answers_at_once(secured: Secured) -> None:
    store = await connect([secured.secure], session_timeout_ms=4_000, tls=secured.tls())
    other = await connect([secured.plain], session_timeout_ms=4_000)
    await store.create("/kept", b"0")
    fired = asyncio.Event()
    assert (await store.get("/kept", watch=fired.set)).value == b"0"
    await other.set("/kept", b"x" * VALUE_BYTES, 0)
    async with asyncio.timeout(60):
        await fired.wait()
    for _ in range(CALLS // 100):
        async with asyncio.timeout(60):
            found = await asyncio.gather(*(store.get("/kept") for _ in range(100)))
        assert {len(one.value) for one in found} == {VALUE_BYTES}
    await store.close()
    await other.close()


async def test_the_file_that_the_environment_or_the_caller_names_is_used(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = secured.folder / "client.toml"
    files = {"ca": secured.authority.ca, **secured.client}
    file.write_text("".join(f'{key} = "{Path(path).name}"\n' for key, path in files.items()))
    uri = f"zk+hierarchical://{secured.secure}/ledgers"
    async with await LedgerClient.connect(uri, zk_tls_file=str(file)) as client:
        await client.store.sync("/")
    monkeypatch.setenv(TLS_FILE_VARIABLE, str(file))
    async with await LedgerClient.connect(uri) as client:
        await client.store.sync("/")
    monkeypatch.setenv(TLS_FILE_VARIABLE, "/nowhere.toml")
    with pytest.raises(UsageError, match="nowhere"):
        await LedgerClient.connect(uri)


async def test_a_server_of_another_authority_is_refused_and_hears_nothing(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    said = await _refused(secured.secure, TlsSettings(ca=stranger.ca, **secured.client))
    assert f"{secured.secure}: TLS: ZooKeeper's certificate is signed by an authority that is not in `ca`" in said


async def test_a_certificate_of_another_host_is_refused_unless_names_do_not_count(secured: Secured) -> None:
    address = f"localhost:{secured.secure.rpartition(':')[2]}"  # The certificate names 127.0.0.1.
    assert "ZooKeeper's certificate does not name this host" in await _refused(address, secured.tls())
    lax = TlsSettings(ca=secured.authority.ca, check_hostname=False, **secured.client)
    store = await connect([address], tls=lax)
    await store.close()


async def test_a_client_without_the_certificate_that_is_demanded_hears_so(secured: Secured) -> None:
    said = await _refused(secured.secure, TlsSettings(ca=secured.authority.ca))
    assert "ZooKeeper demands a certificate of its clients" in said


async def test_plain_text_to_a_port_for_tls_and_the_other_way_round(secured: Secured) -> None:
    assert TLS_FILE_VARIABLE in await _refused(secured.secure, None)
    assert f"{secured.plain}: TLS: " in await _refused(secured.plain, secured.tls())


async def test_certificates_are_read_again_while_the_session_goes_on(secured: Secured, tmp_path: Path) -> None:
    cert, key = tmp_path / "shown.pem", tmp_path / "shown.key"
    store = ZooKeeperSession(
        [secured.secure],
        asyncio.get_running_loop(),
        10_000,
        tls=TlsSettings(ca=secured.authority.ca, cert=_copied(secured.client, cert, key), key=str(key)),
    )
    await store.start(10)
    session_id = store.session_id
    cert.write_text("damaged")  # What was read before is shown on.
    await _cut(store)
    await _until(lambda: store.session_state is SessionState.CONNECTED)
    _copied(Authority(tmp_path, "stranger").sign("client"), cert, key)
    await _cut(store)
    await _until(lambda: "TLS: ZooKeeper does not accept this client's certificate" in store._link.refusal)
    _copied(secured.authority.sign("renewed"), cert, key)
    await _until(lambda: store.session_state is SessionState.CONNECTED)
    await store.get("/")
    assert (store.session_id, store._link.refusal) == (session_id, "")
    await store.close()


def _copied(signed: dict[str, str], cert: Path, key: Path) -> str:
    shutil.copy(signed["cert"], cert)
    shutil.copy(signed["key"], key)
    return str(cert)


async def _cut(store: ZooKeeperSession) -> None:
    store._link.client._connection._socket.shutdown(socket.SHUT_RDWR)
    await _until(lambda: store.session_state is not SessionState.CONNECTED)


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.005)
