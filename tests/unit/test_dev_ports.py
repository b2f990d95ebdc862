"""Ports that can be had again."""

from __future__ import annotations

import socket
from pathlib import Path

from ledger.dev.ports import HOST, choose_port, is_free


def test_a_chosen_port_is_below_those_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(choose_port(taken=()) < max(first, 32_768) for _ in range(20))


def test_a_preferred_port_is_chosen_only_while_it_is_free() -> None:
    preferred = choose_port(taken=())
    assert choose_port(taken=(), preferred=preferred) == preferred
    assert choose_port(taken={preferred}, preferred=preferred) != preferred
    with socket.create_server((HOST, preferred)):
        assert not is_free(preferred)
        assert choose_port(taken=(), preferred=preferred) != preferred
