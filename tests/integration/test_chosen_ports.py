"""Ports of a development cluster that were asked for: from the first start on, and for ever."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ledger.dev import DevCluster, ports
from ledger.dev.errors import ClusterTakenError, PortTakenError
from ledger.dev.state import read_state


def _two_free_ports() -> int:
    """Return a port that is free, with the next one."""
    while True:
        first = ports.choose_port(taken=())
        if ports.is_free(first + 1):
            return first


def test_ports_are_those_that_were_asked_for_from_the_first_start_on(tmp_path: Path) -> None:
    first = _two_free_ports()
    with socket.create_server(("127.0.0.1", first + 1)), pytest.raises(PortTakenError, match=f"{first + 1} is in use"):
        DevCluster(tmp_path, bookie_count=1, first_port=first).start()
    assert read_state(tmp_path) is None, "what could not begin has chosen nothing"
    with DevCluster(tmp_path, bookie_count=1, first_port=first) as cluster:
        assert (cluster.zookeeper, cluster.bookies) == (f"127.0.0.1:{first}", [f"127.0.0.1:{first + 1}"])
    with pytest.raises(ClusterTakenError, match="zookeeper is at .* for ever"):
        DevCluster(tmp_path, first_port=first + 7).start()
    with DevCluster(tmp_path) as again:
        assert again.zookeeper == f"127.0.0.1:{first}"
