"""The state digest: equal states have equal digests, whatever the order of their rows.

Digest = sum modulo 2**128, over all rows, of the first 16 bytes (big-endian) of SHA-256 over table name, key and row,
each with its length before it (4 bytes, big-endian). Key and row are the msgpack arrays of their columns. A sum needs
no order, so it is kept incrementally by a replica and summed in parallel by Spark.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

DIGEST_MODULUS = 1 << 128
TERMS_MAX = 32_768
"""Rows whose terms a running digest remembers, up to twice as many: some 12 MB. Rows that were written a moment ago are
those that are written again most: tasks that end, counters, keys that everybody uses."""
_LENGTH = struct.Struct(">I")
_DROPPED_BITS = 128  # Of SHA-256: the first 16 bytes count.


def table_prefix(table: str) -> bytes:
    """Return the bytes that every row of the table is hashed behind; compute once per table."""
    name = table.encode()
    return _LENGTH.pack(len(name)) + name


def row_term(prefix: bytes, key: bytes, row: bytes) -> int:
    """Return what one row adds to the digest.

    Args:
        prefix: `table_prefix` of its table.
        key: Canonical bytes of the key.
        row: Canonical bytes of the row.

    """
    text = b"".join((prefix, _LENGTH.pack(len(key)), key, _LENGTH.pack(len(row)), row))
    return int.from_bytes(hashlib.sha256(text).digest()[:16], "big")


def digest_bytes(value: int) -> bytes:
    """Return the 16 bytes of a digest as logged and as written to manifests."""
    return value.to_bytes(16, "big")


class _TableTerms:
    """Terms of rows of one table, by key; those of `young` are newer than those of `old`.

    Invariant: the first that is found of a key is that of its row as the digest has it.
    """

    __slots__ = ("old", "prefix", "young")

    def __init__(self, table: str) -> None:
        self.prefix = table_prefix(table)
        self.young: dict[bytes, int] = {}
        self.old: dict[bytes, int] = {}


class StateDigest:
    """A running digest. It remembers terms of the last rows, so that such a row is not hashed again when it goes.

    Attributes:
        value: The digest, 0 <= value < 2**128; 0 for an empty state.

    """

    __slots__ = ("_tables", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._tables: dict[str, _TableTerms] = {}

    def replace(self, table: str, key: bytes, old: bytes | None, new: bytes | None) -> int:
        """Account for one row that changed, None = no row; return by how many the rows have become more."""
        return self.replace_all(table, {key: (old, new)})

    def replace_all(self, table: str, changes: Mapping[bytes, tuple[bytes | None, bytes | None]]) -> int:
        """Account for rows of one table that changed; return by how many its rows have become more.

        Args:
            table: Its name.
            changes: By key, the row before and the row now; None = no row.

        """
        terms = self._tables.get(table)
        if terms is None:
            terms = self._tables[table] = _TableTerms(table)
        prefix, young, older = terms.prefix, terms.young, terms.old
        # `row_term`, spelled out: this loop is a third of a replay.
        length, sha256, number = _LENGTH.pack, hashlib.sha256, int.from_bytes
        total = more = 0
        for key, (old, new) in changes.items():
            if old == new:
                continue
            if old is not None:
                term = young.pop(key, None)
                remembered = older.pop(key, None) if older else None
                if term is None:
                    term = remembered
                if term is None:
                    text = b"".join((prefix, length(len(key)), key, length(len(old)), old))
                    term = number(sha256(text).digest(), "big") >> _DROPPED_BITS
                total -= term
                more -= 1
            if new is not None:
                text = b"".join((prefix, length(len(key)), key, length(len(new)), new))
                term = young[key] = number(sha256(text).digest(), "big") >> _DROPPED_BITS
                total += term
                more += 1
        if len(young) > TERMS_MAX or (len(self._tables) > 1 and self._young_count() > TERMS_MAX):
            self._forget_old()
        self.value = (self.value + total) % DIGEST_MODULUS
        return more

    def _young_count(self) -> int:
        return sum([len(terms.young) for terms in self._tables.values()])

    def _forget_old(self) -> None:
        for terms in self._tables.values():
            terms.young, terms.old = {}, terms.young
