"""Which ensembles are understood."""

from __future__ import annotations

import pytest

from ledger.errors import UsageError
from ledger.zookeeper_server.settings import EnsembleServer, ZooKeeperSettings


def _ensemble(server_id: int, *servers: str) -> list[EnsembleServer]:
    return ZooKeeperSettings(data_dir="/data", server_id=server_id, servers=servers).ensemble()


def test_servers_have_the_usual_ports_unless_they_are_named() -> None:
    assert _ensemble(2, "2=[::1]:12:13", "1=a.org") == [
        EnsembleServer(1, "a.org", 2888, 3888),
        EnsembleServer(2, "[::1]", 12, 13),
    ]
    assert _ensemble(0) == []


@pytest.mark.parametrize("text", ["a.org", "0=a.org", "256=a.org", "1=a.org:2888", "1=a.org:1:2\nx=y", "1="])
def test_what_is_no_server_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected NUMBER=HOST"):
        _ensemble(1, text)


@pytest.mark.parametrize(("server_id", "servers"), [(0, ("1=a",)), (1, ()), (3, ("1=a", "2=b"))])
def test_a_server_has_to_be_one_of_its_ensemble(server_id: int, servers: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="one of those of the servers"):
        _ensemble(server_id, *servers)


def test_a_number_is_given_once() -> None:
    with pytest.raises(UsageError, match="named twice"):
        _ensemble(1, "1=a", "1=b")
