"""Pages of a scan: as the map is, or as it was at the first page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rsm_spark.map.limits import SCAN_BYTES_MAX, SCAN_LIMIT_MAX
from rsm_spark.map.ordered_rows import OrderedRows
from rsm_spark.map.queries import Forgotten, KeyValue, Page, Scan
from rsm_spark.map.rows import MapEntry, columns_of


def scan(rows: OrderedRows[MapEntry], query: Scan, revision: int, *, counts: bool) -> Page | Forgotten:
    """Return one page.

    A scan that keeps its revision is remembered from its first page until one that ends it: the last of the range, or
    one that gives as many rows as were wanted.

    Args:
        rows: The map.
        query: Its limit is 1 or more.
        revision: Of the map as it is.
        counts: The map knows create revisions and versions.

    """
    limit = min(query.limit, SCAN_LIMIT_MAX)
    if query.at_revision:
        if query.at_revision not in rows.pinned:
            return Forgotten()
        found = rows.since_at(query.at_revision, query.start)
    else:
        found = _live(rows, query.start)
    page = _page(found, query, limit, counts=counts)
    goes_on = query.keeps and page.next_start is not None and (len(page.entries) < limit or limit == SCAN_LIMIT_MAX)
    if goes_on and not query.at_revision:
        rows.pin(revision)
    elif query.at_revision and not goes_on:
        rows.unpin(query.at_revision)
    return page


def _live(rows: OrderedRows[MapEntry], start: bytes) -> Iterator[tuple[bytes, MapEntry]]:
    entries = rows.entries
    for key in rows.since(start):
        yield key, entries[key]


def _page(found: Iterator[tuple[bytes, MapEntry]], query: Scan, limit: int, *, counts: bool) -> Page:
    entries: list[Any] = []
    room, end, keys_only, asked = SCAN_BYTES_MAX, query.end, query.keys_only, query.counts
    for key, entry in found:
        if end is not None and key >= end:
            break
        room -= len(key) + (0 if keys_only else len(entry.row))
        # The first row is always given, or a page could be empty and have a successor.
        if entries and (len(entries) == limit or room < 0):
            return Page(entries, key)
        value, mod_revision, created, version = columns_of(entry, counts=counts)
        if keys_only:
            value = b""
        entries.append(KeyValue(key, value, mod_revision, created, version) if asked else (key, value, mod_revision))
    return Page(entries, None)
