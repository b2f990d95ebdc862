"""Bookies of Apache BookKeeper that demand a log-in by its SASL plugin (DIGEST-MD5): our client with the right one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import LedgerClient
from ledger.client.settings import ClientSettings
from ledger.errors import LedgerError
from ledger.login import LoginSettings
from tests.compat.bookies import Bookies
from tests.compat.java_client import payload_of

pytestmark = pytest.mark.compat

_USER, _PASSWORD = "bookkeeper-hd", "correct horse, battery"
_QUICK = {"quorum_timeout_s": 4.0, "connect_timeout_s": 1.5}


def jaas_file(folder: Path) -> Path:
    """Write what BookKeeper's virtual machines read log-ins from, for bookies and for clients."""
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    path = folder / "jaas.conf"
    path.write_text(
        f'Bookie {{ {module} user_{_USER}="{_PASSWORD}"; }};\n'
        f'BookKeeper {{ {module} username="{_USER}" password="{_PASSWORD}"; }};\n',
        encoding="ascii",
    )
    return path


@pytest.fixture(scope="module")
def demanding(java_bookkeeper: Callable[..., Bookies], tmp_path_factory: pytest.TempPathFactory) -> Bookies:
    jaas = jaas_file(tmp_path_factory.mktemp("jaas"))
    return java_bookkeeper(
        "java",
        "java",
        java_lines=["bookieAuthProviderFactoryClass=org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"],
        java_options=[f"-Djava.security.auth.login.config={jaas}"],
    )


@pytest.mark.parametrize("protocol", ["v3", "v2"])
def test_our_client_logs_in_and_writes_and_reads(demanding: Bookies, protocol: str) -> None:
    login = LoginSettings(user=_USER, password=_PASSWORD)

    async def scenario() -> None:
        settings = ClientSettings(login=login, protocol=protocol)  # type: ignore[arg-type]
        async with await LedgerClient.connect(demanding.uri, settings=settings) as client:
            writer = await client.create(password=b"pw")
            await writer.append_many([payload_of(i) for i in range(300)])
            reader = await client.open(writer.ledger_id, password=b"pw")
            assert [entry.payload for entry in await reader.read(0, 299)] == [payload_of(i) for i in range(300)]

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("protocol", ["v3", "v2"])
@pytest.mark.parametrize(
    ("login", "said"),
    [
        (None, "log-in"),
        (LoginSettings(user=_USER, password="wrong"), "log-in as 'bookkeeper-hd'"),
        (LoginSettings(user="bookkeeper-nobody", password=_PASSWORD), "log-in as 'bookkeeper-nobody'"),
    ],
)
def test_without_the_right_log_in_the_error_says_so(
    demanding: Bookies, protocol: str, login: LoginSettings | None, said: str
) -> None:
    async def scenario() -> None:
        settings = ClientSettings(login=login, protocol=protocol, **_QUICK)  # type: ignore[arg-type]
        async with await LedgerClient.connect(demanding.uri, settings=settings) as client:
            writer = await client.create(password=b"pw")
            with pytest.raises(LedgerError, match=said) as raised:
                await writer.append(b"x")
            assert _PASSWORD not in str(raised.value)
            writer.abandon()

    asyncio.run(asyncio.wait_for(scenario(), 60))
