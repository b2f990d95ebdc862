"""Bookies of both kinds that demand a log-in by BookKeeper's SASL plugin (DIGEST-MD5), and clients of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ledger import LedgerClient
from ledger.client.settings import ClientSettings
from ledger.errors import LedgerError
from ledger.login import LoginSettings
from tests.compat.bookies import Bookies
from tests.compat.java_client import UNAUTHORIZED, JavaClient, payload_of

pytestmark = pytest.mark.compat

_USER, _PASSWORD = "bookkeeper-hd", "correct horse, battery"
_QUICK = {"quorum_timeout_s": 4.0, "connect_timeout_s": 1.5}


class _Demanding(NamedTuple):
    bookies: Bookies
    java_login: dict[str, str]
    """Options of the Java client; its section `Wrong` has another password."""


def _write_jaas(folder: Path) -> Path:
    """Write what BookKeeper's virtual machines read log-ins from, for bookies and for clients."""
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    path = folder / "jaas.conf"
    path.write_text(
        f'Bookie {{ {module} user_{_USER}="{_PASSWORD}"; }};\n'
        f'BookKeeper {{ {module} username="{_USER}" password="{_PASSWORD}"; }};\n'
        f'Wrong {{ {module} username="{_USER}" password="other"; }};\n',
        encoding="ascii",
    )
    return path


@pytest.fixture(scope="module")
def demanding(java_bookkeeper: Callable[..., Bookies], tmp_path_factory: pytest.TempPathFactory) -> _Demanding:
    folder = tmp_path_factory.mktemp("login")
    jaas = _write_jaas(folder)
    users = folder / "users"
    users.write_text(f"digest:{_USER}:{_PASSWORD}\n", encoding="ascii")
    bookies = java_bookkeeper(
        "java",
        "ours",
        our_arguments=["--auth-file", str(users)],
        java_lines=["bookieAuthProviderFactoryClass=org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"],
        java_options=[f"-Djava.security.auth.login.config={jaas}"],
    )
    return _Demanding(bookies, {"login_file": str(jaas), "login_section": "BookKeeper"})


@pytest.mark.parametrize("protocol", ["v3", "v2"])
def test_our_client_logs_in_and_writes_and_reads(demanding: _Demanding, protocol: str) -> None:
    login = LoginSettings(user=_USER, password=_PASSWORD)

    async def scenario() -> None:
        settings = ClientSettings(login=login, protocol=protocol)  # type: ignore[arg-type]
        async with await LedgerClient.connect(demanding.bookies.uri, settings=settings) as client:
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
    demanding: _Demanding, protocol: str, login: LoginSettings | None, said: str
) -> None:
    async def scenario() -> None:
        settings = ClientSettings(login=login, protocol=protocol, **_QUICK)  # type: ignore[arg-type]
        async with await LedgerClient.connect(demanding.bookies.uri, settings=settings) as client:
            writer = await client.create(password=b"pw")
            with pytest.raises(LedgerError, match=said) as raised:
                await writer.append(b"x")
            assert _PASSWORD not in str(raised.value)
            writer.abandon()

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("v2", [False, True])
def test_javas_client_logs_in_and_writes_and_reads(java_client: JavaClient, demanding: _Demanding, v2: bool) -> None:
    common = {"uri": demanding.bookies.uri, "v2": v2, "password": "pw", **demanding.java_login}
    made = java_client.call("create", ensemble=2, write_quorum=2, ack_quorum=2, **common)["ledger"]
    assert java_client.call("append", ledger=made, n=300, **common)["failed"] is None
    java_client.call("close", ledger=made, **common)
    seen = java_client.call("read", ledger=made, **common)
    assert (seen["count"], seen["bad"]) == (300, 0)


@pytest.mark.parametrize("section", ["", "Wrong"])
def test_javas_client_stops_at_once_when_our_bookie_does_not_let_it_in(
    java_client: JavaClient, demanding: _Demanding, section: str
) -> None:
    common = {"uri": demanding.bookies.uri, "password": "pw", **demanding.java_login, "login_section": section}
    made = java_client.call("create", ensemble=2, write_quorum=2, ack_quorum=2, **common)["ledger"]
    assert java_client.call("append", ledger=made, n=1, **common)["failed_code"] == UNAUTHORIZED


@pytest.mark.parametrize("v2", [False, True])
def test_a_bookie_of_ours_that_demands_no_log_in_says_so_to_javas_client(
    java_client: JavaClient, java_bookkeeper: Callable[..., Bookies], demanding: _Demanding, v2: bool
) -> None:
    common = {"uri": java_bookkeeper("ours").uri, "v2": v2, "password": "pw", **demanding.java_login}
    made = java_client.call("create", ensemble=1, write_quorum=1, ack_quorum=1, **common)["ledger"]
    assert java_client.call("append", ledger=made, n=100, **common)["failed"] is None
