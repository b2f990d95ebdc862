"""Reads of the map's client: get and scan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.errors import InvalidCommandError
from rsm_spark.map import messages as m
from rsm_spark.map.client.calls import MapCalls, checked_key, scan_range
from rsm_spark.map.client.results import MapPage, MapValue, ScanExpiredError


class MapReads(MapCalls):
    """Calls that change nothing. `read` says how new the answer must be: see `rsm_spark.core.freshness`."""

    async def get(
        self, key: bytes, *, timeout_s: float | None = None, read: Freshness | None = None
    ) -> MapValue | None:
        """Return a key's value, or None if there is no such key."""
        return self._found(key, self._result(await self._asked(m.Get(checked_key(key)), timeout_s, read)))

    async def get_many(
        self, keys: Iterable[bytes], *, timeout_s: float | None = None, read: Freshness | None = None
    ) -> list[MapValue | None]:
        """Return the values of many keys, in the order asked; each is read on its own, other writes may come between.

        For values of one revision use `scan_page`, or `Read`s in a transaction.
        """
        asked = [checked_key(key) for key in keys]
        results = await self._queries([m.Get(key) for key in asked], timeout_s, read)
        return [self._found(key, result) for key, result in zip(asked, results, strict=True)]

    async def scan_page(
        self,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        limit: int = m.SCAN_LIMIT_MAX,
        keys_only: bool = False,
        timeout_s: float | None = None,
        read: Freshness | None = None,
    ) -> MapPage:
        """Return rows with start <= key < end, all as of one revision: as many as fit a page, at most `limit`.

        With `keys_only` their values are empty, and do not travel.
        """
        if limit < 1:
            raise InvalidCommandError(f"limit {limit}: a scan returns at least one row")
        wanted = m.Scan(start, end, min(limit, m.SCAN_LIMIT_MAX), keys_only=keys_only, counts=True)
        result, revision = await self._query(wanted, timeout_s, read)
        assert isinstance(result, m.Page)
        return MapPage(self._rows(result.entries, keys_only=keys_only), revision, result.next_start)

    async def count(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        timeout_s: float | None = None,
        read: Freshness | None = None,
    ) -> int:
        """Return how many keys a range has; it is counted where the keys are.

        Raises:
            InvalidCommandError: The replica runs version 0.1, which cannot count.

        """
        result, _ = await self._query(m.Count(*scan_range(prefix, start, end)), timeout_s, read)
        assert isinstance(result, m.Counted)
        return result.count

    async def scan(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        limit: int | None = None,
        keys_only: bool = False,
        timeout_s: float | None = None,
        read: Freshness | None = None,
    ) -> AsyncIterator[m.KeyValue]:
        """Iterate over rows in order of their keys, all as of the revision at which the first of them were read.

        Args:
            prefix: Only keys that begin with it.
            start: First key, inclusive; not with `prefix`.
            end: Exclusive; not with `prefix`.
            limit: Most rows wanted.
            keys_only: Values are empty, and do not travel.
            timeout_s: Time limit of each page (10,000 rows or 2 MiB).
            read: How new the first page must be. A client that spreads its reads (`read_from="any"`) scans at the
                leader all the same: the pages of a scan come from one replica.

        Raises:
            ScanExpiredError: Between two pages so much was written that the replica does not remember the rows any
                more (64 MiB of them), too many other scans began (32), or another replica leads. Scan again.

        """
        async for page in self.scan_pages(
            prefix=prefix, start=start, end=end, limit=limit, keys_only=keys_only, timeout_s=timeout_s, read=read
        ):
            for row in page.rows:
                yield row

    async def scan_pages(
        self,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        end: bytes | None = None,
        limit: int | None = None,
        keys_only: bool = False,
        timeout_s: float | None = None,
        read: Freshness | None = None,
    ) -> AsyncIterator[MapPage]:
        """Iterate over the pages of a scan, all of one revision; see `scan`."""
        at, behind = scan_range(prefix, start, end)
        revision, left = 0, limit
        read = LINEARIZABLE if self._spreads_reads else read
        while left != 0:
            wanted = m.SCAN_LIMIT_MAX if left is None else min(left, m.SCAN_LIMIT_MAX)
            scan = m.Scan(at, behind, wanted, revision, keeps=True, keys_only=keys_only, counts=True)
            page = await self._page_of(scan, timeout_s, read)
            yield page
            if page.next_start is None:
                return
            at, revision = page.next_start, page.revision
            left = None if left is None else left - len(page.rows)

    async def _page_of(self, scan: m.Scan, timeout_s: float | None, read: Freshness | None) -> MapPage:
        """Return a page of a scan that goes on."""
        result, revision = await self._query(scan, timeout_s, read)
        if isinstance(result, m.Forgotten):
            raise ScanExpiredError(
                f"log {self._log}: the scan of revision {scan.at_revision} cannot go on at key {scan.start!r}: the "
                "replica asked does not remember that revision. Scan again; scan smaller ranges, or read faster, if "
                "this happens often",
                revision=scan.at_revision,
                next_start=scan.start,
            )
        assert isinstance(result, m.Page)
        rows = self._rows(result.entries, keys_only=scan.keys_only)
        return MapPage(rows, scan.at_revision or revision, result.next_start)

    def _found(self, key: bytes, result: m.MapResult) -> MapValue | None:
        if type(result) is not m.Found:
            return None
        value = result.value if self._codec is None else self._value(key, result.value)
        return MapValue(value, result.revision, result.create_revision, result.version)

    def _rows(self, rows: list[m.KeyValue], *, keys_only: bool) -> list[m.KeyValue]:
        if keys_only:  # A replica of version 0.1 sends the values all the same.
            return [row._replace(value=b"") if row.value else row for row in rows]
        return rows if self._codec is None else [row._replace(value=self._value(row.key, row.value)) for row in rows]
