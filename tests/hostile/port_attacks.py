"""Attacks on a port by its sockets: bytes without end, and more connections than there is room for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from ledger.open_files import allow_files
from tests.hostile.victim import Work

__all__ = ["AT_ONCE", "flooding", "greeting", "sitting"]


@contextlib.contextmanager
def flooding(
    address: tuple[str, int], first: Callable[[], bytes], more: Callable[[int], bytes], work: Work
) -> Iterator[None]:
    """Send without end from two threads, and connect again when the connection is cut.

    Args:
        address: Of the port.
        first: Returns what a connection says first.
        more: Returns what follows, by how often something has followed.
        work: Counts connections that began and blocks that were taken.

    """
    over = threading.Event()

    def attack() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=2) as sender:
                sender.sendall(first())
                work.add()
                count = 0
                while not over.is_set():
                    sender.sendall(more(count))
                    work.add()
                    count += 1

    attackers = [threading.Thread(target=attack, daemon=True) for _ in range(2)]
    for one in attackers:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in attackers:
            one.join(60)


AT_ONCE = 20
"""Connections of `sitting` for each of its units."""


@contextlib.contextmanager
def sitting(
    address: tuple[str, int], count: int, said: bytes, work: Work, probe: Callable[[], object], *, source: str = ""
) -> Iterator[None]:
    """Hold so many connections that said so much, and open others as fast as the server takes them.

    Args:
        address: Of the port.
        count: Of connections.
        said: By each of them.
        work: A unit is `AT_ONCE` connections and the probe behind them.
        probe: Waits until the server has answered somebody else.
        source: Address of this machine that they come from; "" = as the system chooses.

    """
    assert allow_files(count + 200) == count + 200, "this test needs files: ulimit -n"
    held: list[socket.socket] = []
    over = threading.Event()

    def sit() -> None:
        opened = socket.socket()
        opened.settimeout(60)
        held.append(opened)
        with contextlib.suppress(OSError):
            if source:
                opened.bind((source, 0))
            opened.connect(address)
            opened.sendall(said)
        if len(held) >= count:
            held.pop(0).close()

    def attack() -> None:
        while not over.is_set():
            for _ in range(AT_ONCE):
                sit()
            with contextlib.suppress(OSError):
                probe()
            work.add()

    attacker = threading.Thread(target=attack, daemon=True)
    attacker.start()
    try:
        work.wait_for(count // AT_ONCE)
        yield
    finally:
        over.set()
        attacker.join(60)
        for one in held:
            one.close()


def greeting(address: tuple[str, int], said: bytes) -> Callable[[], None]:
    """Return a probe that says this until something is said to it: it is pushed out as its neighbours are."""

    def probe() -> None:
        for _ in range(1_000):
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=60) as one:
                one.sendall(said)
                if one.recv(1):
                    return

    return probe
