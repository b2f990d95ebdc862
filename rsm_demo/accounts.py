"""Rows of the map as the demonstration compares them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.records import pack
from rsm_spark.map.records import MAP_TABLE


def accounts_of(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Return tail number -> [where, flights, cancelled, delay minutes, by airline] of keys and values."""
    return {key.decode(): json.loads(value) for key, value in pairs}


def map_digest(pairs: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the digest of these keys and values as rows of the map, without their counts: 32 hex digits.

    It leaves out the kernel's table of client sessions, which only replicas hold.
    """
    prefix = table_prefix(MAP_TABLE)
    total = sum(row_term(prefix, pack((key,)), pack((value,))) for key, value in pairs)
    return digest_bytes(total % DIGEST_MODULUS).hex()
