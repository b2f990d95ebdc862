"""Attacks on a port by its sockets: bytes without end, and more connections than there is room for."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from ledger.open_files import allow_files

__all__ = ["flooding", "sitting"]


@contextlib.contextmanager
def flooding(address: tuple[str, int], first: Callable[[], bytes], more: Callable[[int], bytes]) -> Iterator[None]:
    """Send without end from two threads, and connect again when the connection is cut.

    Args:
        address: Of the port.
        first: Returns what a connection says first.
        more: Returns what follows, by how often something has followed.

    """
    over = threading.Event()

    def attack() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=2) as sender:
                sender.sendall(first())
                count = 0
                while not over.is_set():
                    sender.sendall(more(count))
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


@contextlib.contextmanager
def sitting(address: tuple[str, int], count: int, said: bytes, *, source: str = "") -> Iterator[list[socket.socket]]:
    """Hold so many connections that said so much; those that are cut are opened again.

    Args:
        address: Of the port.
        count: Of connections.
        said: By each of them.
        source: Address of this machine that they come from; "" = as the system chooses.

    """
    assert allow_files(count + 200) == count + 200, "this test needs files: ulimit -n"
    held: list[socket.socket] = []
    over = threading.Event()

    def attack() -> None:
        while not over.is_set():
            opened = socket.socket()
            opened.settimeout(1)
            with contextlib.suppress(OSError):
                if source:
                    opened.bind((source, 0))
                opened.connect(address)
                opened.sendall(said)
            held.append(opened)
            if len(held) >= count:
                held.pop(0).close()
                time.sleep(0.002)

    attacker = threading.Thread(target=attack, daemon=True)
    attacker.start()
    try:
        yield held
    finally:
        over.set()
        attacker.join(60)
        for one in held:
            one.close()
