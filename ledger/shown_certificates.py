"""Certificates that this process shows to others, and when each ends: so that somebody is told before it does."""

from __future__ import annotations

import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_PATHS_MAX = 100

_paths: dict[str, None] = {}
_lock = threading.Lock()  # gRPC makes its contexts in threads of its own.


def note_certificate(path: str) -> None:
    """Note that a process shows the certificate of a file."""
    with _lock:
        if len(_paths) < _PATHS_MAX:
            _paths[path] = None


def certificate_ends() -> dict[str, float]:
    """Return when the certificates end that this process shows, Unix time by path, as the files are now.

    A file that cannot be read is left out: who shows it goes on with what it has read, and logs an error.
    """
    with _lock:
        paths = list(_paths)
    found = {}
    for path in paths:
        try:
            found[path] = end_of_certificate(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
    return found


def end_of_certificate(pem: str) -> float:
    """Return when the first certificate of a text ends, Unix time.

    Raises:
        ValueError: There is none, or it is damaged.

    """
    begin = pem.find(_BEGIN)
    end = pem.find(_END, begin)
    if begin < 0 or end < 0:
        raise ValueError("no certificate")
    der = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)] + "\n")
    try:
        signed = _content(der, 0, _SEQUENCE)
        place = _content(der, signed, _SEQUENCE)  # The part that is signed.
        if der[place] == _VERSION:
            place = _behind(der, place)
        for _ in ("serial number", "algorithm", "issuer"):
            place = _behind(der, place)
        place = _behind(der, _content(der, place, _SEQUENCE))  # Validity; its beginning is passed over.
        kind, (first, last) = der[place], _bounds(der, place)
        text = der[first:last].decode("ascii")
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("the certificate is cut off") from error
    if kind == _UTC_TIME:
        # Two digits of a year: 50 to 99 are of the last century (RFC 5280, 4.1.2.5.1).
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    elif kind != _GENERALIZED_TIME:
        raise ValueError("the certificate has no end")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _bounds(der: bytes, place: int) -> tuple[int, int]:
    """Return where the content of an element begins and ends."""
    length, first = der[place + 1], place + 2
    if length & 0x80:
        size = length & 0x7F
        length, first = int.from_bytes(der[first : first + size]), first + size
    return first, first + length


def _content(der: bytes, place: int, kind: int) -> int:
    if der[place] != kind:
        raise ValueError("it is no certificate")
    return _bounds(der, place)[0]


def _behind(der: bytes, place: int) -> int:
    return _bounds(der, place)[1]
