"""Connections of a gRPC port: gRPC's core accepts them, and this counts and cuts them by their sockets.

The core bounds connections by one number and turns away who comes last. So they are looked at from outside: the files
of this process that are connections of the port. Each has a seat (see `ledger.http.connection_slots`); it is
known once a call of it was let through, and a stranger is cut that

    takes its time    10 s; 1 s where most seats are taken
    sends a lot       more than two messages, and no call of it was let through
    is one too many   of its address, or of all

Who is known has a quarter of the seats as one principal at most, wherever it comes from: a call over one more of its
connections is refused, and that connection goes as a stranger's does.

Linux only: elsewhere the core's own bounds are all there are.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import urllib.parse
from pathlib import Path
from typing import Final

from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots, address_key
from ledger.open_files import allow_files
from ledger.rights.principal import Principal, turns_name

_FILES: Final = Path("/proc/self/fd")
_STRANGER_S: Final = 10.0
_CROWDED_STRANGER_S: Final = 1.0
_CROWDED: Final = 0.5
_LOOK_S: Final = 1.0
_CROWDED_LOOK_S: Final = 0.2
_TCP_INFO_BYTES: Final = 192
_BYTES_RECEIVED: Final = struct.Struct("=128xQ")
PORTS: Final = 2
"""Number of ports that share the files of a replica as a rule: HTTP is the other one."""


class _Known:
    """A connection: which file it is, whence it comes, and since when it is looked at."""

    __slots__ = ("inode", "peer", "seat", "since_s")

    def __init__(self, inode: int, peer: tuple[str, int], seat: ConnectionSlot, since_s: float) -> None:
        self.inode = inode
        self.peer = peer
        self.seat = seat
        self.since_s = since_s


class Connections:
    """See the module.

    Args:
        connections_max: Wanted; fewer if the process may open fewer files.
        stranger_bytes_max: That one may send before a call of it was let through.
        ports: Number of ports that share the files of the process.

    Attributes:
        limit: Connections taken: the core's own bound, above which it closes what it accepts.
        seats: Who has them.

    """

    def __init__(self, connections_max: int, *, stranger_bytes_max: int, ports: int = PORTS) -> None:
        bound = allow_files(connections_max, ports=ports)
        self.limit = bound
        # The core has room for some more, so that there is a seat to give while another is taken away.
        half = max(1, bound // 2)
        of_owner = max(1, bound // 4)
        self.seats = ConnectionSlots(max(1, bound - bound // 8), of_owner=of_owner, of_address=half)
        self._stranger_bytes_max = stranger_bytes_max
        self._port = 0
        # By file.
        self._known: dict[int, _Known] = {}
        self._strangers: dict[tuple[str, int], int] = {}
        # Who was admitted, by the other end.
        self._callers: dict[tuple[str, int], int] = {}
        self._admitted: dict[tuple[str, int], str | None] = {}
        # Files that were looked at and are no connections of the port, with their inodes.
        self._others: dict[int, int] = {}

    def serve(self, port: int) -> None:
        """Look after this port."""
        self._port = port

    def admitted(self, peer: str, owner: str | None = None) -> bool:
        """Take note that a call may be let through.

        Args:
            peer: As gRPC names it: "ipv4:127.0.0.1:5555".
            owner: Whose connection it is; None = nobody's who is bounded. The first call of a connection decides.

        Returns:
            False if the owner has its part of the connections already.

        """
        key = peer_key(peer)
        if key is None or key in self._callers:
            return True
        if key in self._strangers:
            return self._know(self._strangers[key], owner)
        if not self.seats.has_room(owner):
            return False
        if len(self._admitted) < self.limit:
            self._admitted.setdefault(key, owner)  # It is quicker than who looks; known when it is seen.
        return True

    def look(self, now_s: float) -> float:
        """Look at all connections; cut those that must go.

        Args:
            now_s: Monotonic time.

        Returns:
            Seconds after which to look again.

        """
        try:
            files = sorted(int(name) for name in os.listdir(_FILES))  # noqa: PTH208 - of numbers
        except OSError:
            return _LOOK_S
        self._forget_gone(files)
        for file in files:
            self._meet(file, now_s)
        self._admitted.clear()
        is_crowded = self.seats.taken > _CROWDED * self.limit
        allowed_s = _CROWDED_STRANGER_S if is_crowded else _STRANGER_S
        for file in list(self._strangers.values()):
            known = self._known[file]
            if now_s - known.since_s > allowed_s or self._received(file, known) > self._stranger_bytes_max:
                self._cut(file, known)
        return _CROWDED_LOOK_S if is_crowded or self._strangers else _LOOK_S

    def _forget_gone(self, files: list[int]) -> None:
        inodes: dict[int, int] = {}
        for file in files:
            with contextlib.suppress(OSError):
                found = os.fstat(file)
                inodes[file] = found.st_ino if stat.S_ISSOCK(found.st_mode) else 0
        for file, known in list(self._known.items()):
            if inodes.get(file) != known.inode:
                self._forget(file, known)
        self._others = {file: inode for file, inode in self._others.items() if inodes.get(file) == inode}
        for file, inode in inodes.items():
            if not inode and file not in self._known:
                self._others[file] = 0

    def _meet(self, file: int, now_s: float) -> None:
        if file in self._known or file in self._others:
            return
        with contextlib.suppress(OSError):
            inode = os.fstat(file).st_ino
            peer = self._peer(file)
            if peer is None:
                self._others[file] = inode
                return
            seat = self.seats.take(peer[0])
            if seat is None:
                self._shut(file, peer)
                self._others[file] = inode
                return
            known = self._known[file] = _Known(inode, peer, seat, now_s)
            seat.cut = lambda: self._cut(file, known)
            self._strangers[peer] = file
            if peer in self._admitted and not self._know(file, self._admitted[peer]):
                self._cut(file, known)

    def _know(self, file: int, owner: str | None) -> bool:
        known = self._known[file]
        if not self.seats.know(known.seat, owner):
            return False
        self._strangers.pop(known.peer, None)
        self._callers[known.peer] = file
        return True

    def _forget(self, file: int, known: _Known) -> None:
        self.seats.give_back(known.seat)
        del self._known[file]
        for places in (self._strangers, self._callers):
            if places.get(known.peer) == file:
                del places[known.peer]

    def _cut(self, file: int, known: _Known) -> None:
        if self._known.get(file) is known:
            self._forget(file, known)
            self._others[file] = known.inode
            self._shut(file, known.peer)

    # ---- sockets: a copy of the file is looked at, since the file may be another's at any moment

    def _peer(self, file: int) -> tuple[str, int] | None:
        """Return where a connection of the port comes from; None = it is none."""
        with _copy(file) as found:
            return _peer_of(found, self._port)

    def _received(self, file: int, known: _Known) -> int:
        with contextlib.suppress(OSError, struct.error), _copy(file) as found:
            if _peer_of(found, self._port) == known.peer:
                told = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                (received,) = _BYTES_RECEIVED.unpack_from(told)
                return int(received)
        return 0

    def _shut(self, file: int, peer: tuple[str, int]) -> None:
        """End a connection; the core closes its file when it sees the end."""
        with contextlib.suppress(OSError), _copy(file) as found:
            if _peer_of(found, self._port) == peer:
                found.shutdown(socket.SHUT_RDWR)


def _copy(file: int) -> socket.socket:
    copy = os.dup(file)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _peer_of(found: socket.socket, port: int) -> tuple[str, int] | None:
    if found.family not in {socket.AF_INET, socket.AF_INET6} or found.type != socket.SOCK_STREAM:
        return None
    try:
        if found.getsockname()[1] != port:
            return None
        name = found.getpeername()
    except OSError:
        return None  # It listens, or is gone.
    return address_key(name[0]), name[1]


def peer_key(peer: str) -> tuple[str, int] | None:
    """Return address and port of what gRPC calls a peer; None = it has none."""
    kind, _, place = urllib.parse.unquote(peer).partition(":")
    host, _, port = place.rpartition(":")
    if kind not in {"ipv4", "ipv6"} or not port.isdigit():
        return None
    return address_key(host.strip("[]")), int(port)


def turns_of(principal: Principal, peer: str) -> str:
    """Return who takes turns with others: the principal that calls, or its address where nobody says who it is.

    Args:
        principal: See `calling_principal`.
        peer: Where it calls from, as gRPC names that.

    """
    key = peer_key(peer)
    return turns_name(principal, "" if key is None else key[0])
