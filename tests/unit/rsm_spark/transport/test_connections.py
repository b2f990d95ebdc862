"""Connections of a port, looked at from outside: who is cut, and who stays."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from rsm_spark.transport.connections import Connections


class Port:
    """A listening socket whose connections are accepted and left alone, as another library has them."""

    def __init__(self, connections: Connections) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.number = self.listening.getsockname()[1]
        self.accepted: list[socket.socket] = []
        self.callers: list[socket.socket] = []
        self.connections = connections
        connections.serve(self.number)

    def call(self, host: str = "127.0.0.1") -> socket.socket:
        caller = socket.create_connection(("127.0.0.1", self.number), source_address=(host, 0))
        self.callers.append(caller)
        self.accepted.append(self.listening.accept()[0])
        return caller

    def admit(self, caller: socket.socket, owner: str | None = None) -> bool:
        host, port = caller.getsockname()
        return self.connections.admitted(f"ipv4:{host}:{port}", owner)

    def close(self) -> None:
        for one in (self.listening, *self.accepted, *self.callers):
            one.close()


def _is_cut(caller: socket.socket) -> bool:
    caller.setblocking(False)  # noqa: FBT003
    with contextlib.suppress(BlockingIOError):
        return caller.recv(1) == b""
    return False


@contextlib.contextmanager
def _port(connections_max: int = 100, stranger_bytes_max: int = 1_000) -> Iterator[Port]:
    port = Port(Connections(connections_max, stranger_bytes_max=stranger_bytes_max))
    try:
        yield port
        port.connections.seats.validate()
    finally:
        port.close()


@pytest.mark.parametrize("is_seen_first", [False, True])
def test_a_stranger_is_cut_after_a_while_and_who_was_let_through_stays(*, is_seen_first: bool) -> None:
    with _port() as port:
        stranger, caller = port.call(), port.call()
        if is_seen_first:
            port.connections.look(0.0)
        port.admit(caller)
        port.connections.look(0.5)
        assert port.connections.seats.taken == 2
        port.connections.look(9.0)
        assert not _is_cut(stranger)
        port.connections.look(11.0)
        assert _is_cut(stranger)
        assert not _is_cut(caller)
        assert port.connections.seats.taken == 1


def test_a_stranger_that_sends_much_is_cut_at_once_and_who_was_let_through_may() -> None:
    with _port() as port:
        stranger, caller = port.call(), port.call()
        port.admit(caller)
        port.connections.look(0.0)
        stranger.sendall(bytes(900))
        caller.sendall(bytes(5_000))
        port.connections.look(0.1)
        assert not _is_cut(stranger)
        stranger.sendall(bytes(900))
        port.connections.look(0.2)
        assert _is_cut(stranger)
        assert not _is_cut(caller)


def test_where_there_is_no_room_the_oldest_stranger_of_the_address_with_most_is_cut() -> None:
    with _port(connections_max=16) as port:  # 14 seats, 8 of one address.
        lone = port.call("127.0.0.3")
        port.connections.look(0.0)
        many = [port.call("127.0.0.2") for _ in range(10)]
        port.connections.look(0.1)
        assert sum(map(_is_cut, many)) == 2
        others = [port.call("127.0.0.4") for _ in range(7)]
        port.connections.look(0.2)
        assert sum(map(_is_cut, many)) == 4
        assert not any(map(_is_cut, [lone, *others]))


def test_strangers_have_little_time_where_most_seats_are_taken() -> None:
    with _port(connections_max=16) as port:
        strangers = [port.call(f"127.0.0.{n}") for n in range(2, 12)]
        assert port.connections.look(0.0) < 1
        port.connections.look(1.5)
        assert all(map(_is_cut, strangers))


def test_a_file_that_became_another_connection_is_met_anew() -> None:
    with _port() as port:
        first = port.call()
        port.admit(first)
        port.connections.look(0.0)
        port.accepted.pop().close()
        second = port.call()
        port.connections.look(1.0)
        assert port.connections.seats.taken == 1
        port.connections.look(12.0)
        assert _is_cut(second)
        assert port.connections.seats.taken == 0


def test_connections_of_other_ports_are_left_alone() -> None:
    with _port() as port, _port() as other:
        stranger = other.call()
        port.connections.look(0.0)
        port.connections.look(100.0)
        assert port.connections.seats.taken == 0
        assert not _is_cut(stranger)


@pytest.mark.parametrize("is_seen_first", [False, True])
def test_one_principal_has_a_quarter_of_the_seats_and_others_of_its_address_have_room(*, is_seen_first: bool) -> None:
    with _port(connections_max=40) as port:
        greedy = [port.call() for _ in range(14)]
        other = port.call()
        if is_seen_first:
            port.connections.look(0.0)
        let = [port.admit(caller, "acme") for caller in greedy]
        assert port.admit(other, "bolt")
        assert port.admit(port.call())  # Of the cluster itself.
        port.connections.look(0.1)
        if is_seen_first:
            assert let == [True] * 10 + [False] * 4
        assert sum(not _is_cut(caller) for caller in greedy) == (14 if is_seen_first else 10)
        port.connections.look(11.0)
        assert [_is_cut(caller) for caller in greedy] == [False] * 10 + [True] * 4
        assert not _is_cut(other)
        greedy[0].close()
        port.accepted[0].close()
        port.connections.look(11.5)
        late = port.call()
        port.connections.look(12.0)
        assert port.admit(late, "acme")


def test_a_connection_is_of_who_called_first_over_it_however_often_it_is_asked() -> None:
    with _port(connections_max=8) as port:
        callers = [port.call() for _ in range(2)]
        port.connections.look(0.0)
        for _ in range(3):
            assert all(port.admit(caller, str(b"acme", "ascii")) for caller in callers)
        assert port.admit(callers[0], "bolt")
        port.connections.look(0.1)
        late = port.call()
        port.connections.look(0.2)
        assert not port.admit(late, "acme")
        assert port.admit(late, "bolt")
