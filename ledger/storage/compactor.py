"""Runs compactions: at their intervals, in small steps between conversions, at a bounded rate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from ledger.errors import CorruptStorageError
from ledger.storage.compaction import NO_SPACE_ERRORS, Compaction, CompactionSettings, plan
from ledger.storage.disk import DiskExecutor
from ledger.storage.index import CorruptIndexError, Index
from ledger.storage.segments import Segments

_LOGGER = logging.getLogger(__name__)


class CompactorCounts(msgspec.Struct):
    """Counts of compactions since the start of the process; times are wall clock, ms.

    Attributes:
        is_compacting: One is under way.
        minor_count: Times that what the minor interval asks for was done.
        major_count: The same of the major one.
        minor_ms: When the last one was; 0 = there was none.
        major_ms: The same.

    """

    is_compacting: bool = False
    minor_count: int = 0
    major_count: int = 0
    minor_ms: int = 0
    major_ms: int = 0


class Compactor:
    """Compacts the segments of one store, one group at a time.

    Everything that changes files runs on the converter's worker, a few megabytes at a time: so a conversion waits for
    one step at most, and the two never meet.

    Args:
        segments: The segments.
        index: The index.
        executor: The converter's.
        settings: See `CompactionSettings`.
        nonce: Returns 32 random bits.
        on_failure: Hears of a disk error after which nothing may be assumed, or of a damaged index.

    """

    def __init__(
        self,
        segments: Segments,
        index: Index,
        executor: DiskExecutor,
        settings: CompactionSettings,
        nonce: Callable[[], int],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._segments = segments
        self._index = index
        self._executor = executor
        self._settings = settings
        self._nonce = nonce
        self._on_failure = on_failure
        self.counts = CompactorCounts()
        self._minor_at = 0.0
        self._major_at = 0.0
        # Segments with damage: they stay until the process ends, or all their ledgers are deleted.
        self._damaged: dict[int, None] = {}

    async def compact_when_due(self, now_ms: int) -> list[int]:
        """Compact what the minor and the major interval ask for; return the segments that went.

        Args:
            now_ms: Wall clock.

        """
        now = asyncio.get_running_loop().time()
        settings, counts = self._settings, self.counts
        share = 0.0
        if now >= self._minor_at:
            self._minor_at = now + settings.minor_interval_s
            share = settings.minor_share
            counts.minor_count, counts.minor_ms = counts.minor_count + 1, now_ms
        if not self._major_at:
            self._major_at = now + settings.major_interval_s  # Not at every start.
        if now >= self._major_at:
            self._major_at = now + settings.major_interval_s
            share = max(share, settings.major_share)
            counts.major_count, counts.major_ms = counts.major_count + 1, now_ms
        return await self.compact(share, now_ms) if share else []

    def make_due(self, *, minor: bool, major: bool) -> None:
        """Have `compact_when_due` do what the minor, or the major interval asks for, whenever it was done last."""
        now = asyncio.get_running_loop().time()
        self._minor_at = now if minor else self._minor_at
        self._major_at = now if major else self._major_at

    async def compact(self, share: float, now_ms: int) -> list[int]:
        """Compact all segments with at most this share of living bytes; return those that went.

        Args:
            share: 0 takes those of which nothing lives.
            now_ms: Wall clock.

        """
        rows = await self._executor.submit(self._index.segments)
        gone: list[int] = []
        for group in plan([row for row in rows if row.segment_id not in self._damaged], share, self._settings):
            try:
                await self._compact(group, now_ms)
            except CorruptIndexError as error:
                self._on_failure(error)
                raise
            except CorruptStorageError as error:
                self._damaged.update(dict.fromkeys(group))
                _LOGGER.error("segments cannot be compacted: %s", error, extra={"segments": group})
            except OSError as error:
                if error.errno not in NO_SPACE_ERRORS:
                    self._on_failure(error)
                    raise
                _LOGGER.warning("compaction put off: no room: %s", error)
                break
            else:
                gone += group
        return gone

    async def _compact(self, group: list[int], now_ms: int) -> None:
        settings = self._settings
        forget_before_ms = now_ms - int(settings.deleted_kept_s * 1000)
        run = Compaction(self._segments, self._index, group, self._new_id(group), forget_before_ms)
        submit = self._executor.submit
        self.counts.is_compacting = True
        try:
            byte_count = await submit(run.step)
            while byte_count:
                await asyncio.sleep(byte_count / settings.bytes_per_s)
                byte_count = await submit(run.step)
            await submit(run.commit)
        except (OSError, CorruptStorageError):
            await submit(run.abandon)
            raise
        finally:
            self.counts.is_compacting = False

    def _new_id(self, group: list[int]) -> int:
        taken = self._segments.segment_ids()
        while True:
            segment_id = max(group) >> 32 << 32 | self._nonce()
            if segment_id not in taken:
                return segment_id
