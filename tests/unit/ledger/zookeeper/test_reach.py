"""That nobody listens at the address of ZooKeeper is told soon; a slow server is waited for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from ledger.errors import MetadataUnavailableError
from ledger.zookeeper import session
from ledger.zookeeper.reach import why_unreached
from ledger.zookeeper.session import connect

pytestmark = pytest.mark.asyncio

_FOR_EVER_S = 3600.0


@pytest.fixture
def closed() -> Iterator[str]:
    """Return an address that refuses connections, and is nobody else's meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Return an address that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


async def test_who_refuses_is_named_and_one_that_listens_is_enough(closed: str, silent: str) -> None:
    assert await why_unreached([closed], _FOR_EVER_S) == f"{closed}: Connection refused"
    assert await why_unreached([closed, silent], _FOR_EVER_S) == ""
    unknown = "no-such-machine.invalid:2181"
    reasons = (await why_unreached([unknown, closed], _FOR_EVER_S)).split("; ")
    assert reasons[0].startswith(f"{unknown}: ")
    assert reasons[1] == f"{closed}: Connection refused"
    assert len(reasons) == 2


async def test_silence_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_address: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(asyncio, "open_connection", never)
    assert await why_unreached(["10.0.0.1:2181"], 0.0) == "10.0.0.1:2181: nothing came back for 0.0 s"


async def test_a_session_with_nobody_is_given_up_long_before_the_limit_for_one(closed: str) -> None:
    with pytest.raises(MetadataUnavailableError, match=rf"{closed} \({closed}: Connection refused\): check the meta"):
        await connect([closed], connect_timeout_s=_FOR_EVER_S, reach_timeout_s=0.3)


async def test_a_server_that_listens_is_given_the_whole_limit(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def reached(_hosts: object, _limit_s: float) -> str:
        return ""

    monkeypatch.setattr(session, "why_unreached", reached)
    with pytest.raises(MetadataUnavailableError, match=r"for 1 s"):
        await connect([silent], connect_timeout_s=1.0, reach_timeout_s=0.0)
