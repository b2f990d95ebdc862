"""TLS with certificates on both ends: Java's client on our bookies, ours on Java's, one ensemble of both."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ledger import LedgerClient
from ledger.client.settings import ClientSettings
from ledger.errors import LedgerError
from ledger.tls import TlsSettings
from tests.compat.bookies import Bookies
from tests.compat.java_client import UNAUTHORIZED, JavaClient, payload_of
from tests.unit.ledger.bookie.test_tls import Authority

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


class _Secured(NamedTuple):
    bookies: Bookies
    client: dict[str, str]
    """Files of a client: cert, key, ca."""


@pytest.fixture(scope="module")
def secured(java_bookkeeper: Callable[..., Bookies], tmp_path_factory: pytest.TempPathFactory) -> _Secured:
    folder: Path = tmp_path_factory.mktemp("tls")
    authority = Authority(folder, "authority")
    bookie = authority.sign("bookie", host="IP:127.0.0.1,DNS:localhost")
    ours = ["--tls-cert", bookie["cert"], "--tls-key", bookie["key"], "--tls-ca", authority.ca, "--tls-required"]
    java = [
        "tlsProvider=JDK",
        "tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsClientAuthentication=true",
        "tlsKeyStoreType=PEM",
        f"tlsKeyStore={bookie['key']}",
        f"tlsCertificatePath={bookie['cert']}",
        "tlsTrustStoreType=PEM",
        f"tlsTrustStore={authority.ca}",
    ]
    cluster = java_bookkeeper("java", "ours", "ours", our_arguments=ours, java_lines=java)
    return _Secured(cluster, {**authority.sign("client"), "ca": authority.ca})


@pytest.mark.parametrize("protocol", ["v3", "v2"])
def test_both_write_and_read_over_tls(java_client: JavaClient, secured: _Secured, protocol: str) -> None:
    tls = {f"tls_{name}": file for name, file in secured.client.items()}
    settings = ClientSettings(tls=TlsSettings(**secured.client), protocol=protocol)  # type: ignore[arg-type]
    uri = secured.bookies.uri

    async def scenario() -> None:
        async with await LedgerClient.connect(uri, settings=settings) as client:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3, password=b"pw")
            await writer.append_many([payload_of(i) for i in range(300)])
            recovered = await java_client.ask(
                "read", uri=uri, ledger=writer.ledger_id, recover=True, password="pw", **tls
            )
            assert (recovered["count"], recovered["bad"], recovered["closed"]) == (300, 0, True)
            made = await java_client.ask("create", uri=uri, ack_quorum=3, password="pw", **tls)
            await java_client.ask("append", uri=uri, ledger=made["ledger"], n=300, **tls)
            reader = await client.open(made["ledger"], password=b"pw")
            assert [entry.payload for entry in await reader.read(0, 299)] == [payload_of(i) for i in range(300)]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_client_without_tls_writes_nothing_to_our_bookies(java_client: JavaClient, secured: _Secured) -> None:
    """Two of three bookies are ours, so one of two is; Java's go on serving clients that do not ask for TLS."""
    uri = secured.bookies.uri
    ledger = java_client.call("create", uri=uri, ack_quorum=3)["ledger"]
    assert java_client.call("append", uri=uri, ledger=ledger, n=1)["failed_code"] == UNAUTHORIZED

    async def scenario() -> None:
        async with await LedgerClient.connect(uri, settings=ClientSettings(quorum_timeout_s=3)) as client:
            writer = await client.create(ensemble_size=2, write_quorum=2, ack_quorum=2)
            with pytest.raises(LedgerError, match="demands TLS or a log-in"):
                await writer.append(b"x")
            writer.abandon()

    asyncio.run(asyncio.wait_for(scenario(), 60))
