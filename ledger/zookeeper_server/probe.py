"""Asks a ZooKeeper whether it serves sessions, by the one four-letter word that it answers."""

from __future__ import annotations

import socket
import ssl


def answers(host: str, port: int, *, timeout_s: float = 1.0, tls: ssl.SSLContext | None = None) -> bool:
    """Tell whether a ZooKeeper serves sessions at this address; one without a majority of its ensemble does not.

    `ruok` would not do: it says `imok` as soon as the port is open, a moment before sessions are accepted.

    Args:
        host: Name or address.
        port: For clients.
        timeout_s: For the connection, and for each wait of the answer.
        tls: Of a client; None = the port is plain.

    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as plain:
            if tls is None:
                reply = _asked(plain)
            else:
                with tls.wrap_socket(plain, server_hostname=host) as encrypted:
                    reply = _asked(encrypted)
    except OSError:
        return False
    return b"Mode: " in reply or b"not in the whitelist" in reply


def _asked(connection: socket.socket) -> bytes:
    connection.sendall(b"srvr")
    reply = b""
    while chunk := connection.recv(4096):
        reply += chunk
    return reply
