"""The logs of a query, one or all that match a pattern, as Spark asks for them: offsets in, offsets and partitions out.

1. A log that appears while a stream with `logPattern` runs is first written into the offsets, at its first record, and
   read from the micro-batch after that on: so every restart means the same place.
2. Logs share the limits of a micro-batch by what each has waiting; none starves.
3. A log that vanishes is a loss of what the query had not read of it. With `failOnDataLoss=false` a pattern lets go of
   it, and a log of that name that comes later is a new one; a query of one log waits for it to be made anew.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import InputPartition

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.spark.followed_log import FollowedLog
from connectors.spark.handover import SourceAccess
from connectors.spark.loss import Loss, Losses
from connectors.spark.offsets import LogOffset, SnapshotOffset, decode_log_offsets, encode_log_offsets
from connectors.spark.options import SourceOptions
from connectors.spark.plan import Limits, share
from connectors.spark.progress import Backlog, sum_backlogs
from rsm_spark.errors import NoSuchLogError

__all__ = ["LogsSubject"]

_LOGGER = logging.getLogger(__name__)
_NAMES_FRESH_S = 0.05


class LogsSubject:
    """One log, or those that match a pattern.

    Args:
        options: Of the query.
        access: Where to read.

    """

    def __init__(self, options: SourceOptions, access: SourceAccess) -> None:
        self._options = options
        self._access = access
        self._losses = Losses(_LOGGER.warning)
        self._pattern = re.compile(options.log_pattern) if options.log_pattern else None
        self._logs: dict[str, FollowedLog] = {}
        self._names: list[str] = []
        self._named_s = float("-inf")

    def _followed(self, log: str) -> FollowedLog:
        if log not in self._logs:
            self._logs[log] = FollowedLog(log, self._options, self._access, self._losses)
        return self._logs[log]

    def _present(self) -> list[str]:
        """Return the logs of the query that there are, ascending; the one that option `log` names in any case."""
        if self._pattern is None:
            return [self._options.log]
        if time.monotonic() - self._named_s > _NAMES_FRESH_S:
            self._names = [log for log in self._access.logs() if self._pattern.fullmatch(log)]
            self._named_s = time.monotonic()
        return self._names

    def bound(self, *, is_start: bool) -> dict[str, Any]:
        """Return the offset that the starting or ending option means now."""
        bounds = self._options.starting if is_start else self._options.ending
        # A log that JSON names must be there.
        logs = sorted({*self._present(), *(log for log in bounds if log)})
        if not logs:
            self._tell_of_none(is_error=not is_start)
        found: dict[str, LogOffset] = {}
        for log in logs:
            followed, bound = self._followed(log), bounds.get(log) or bounds[""]
            found[log] = followed.start(bound) if is_start else followed.stop(bound)
        return encode_log_offsets(found)

    def _tell_of_none(self, *, is_error: bool) -> None:
        known = ", ".join(self._access.logs()) or "none at all"
        text = f"no log matches logPattern {self._options.log_pattern!r} (known: {known})"
        if is_error:
            raise NoSuchLogError(f"{text}: check the options logPattern, metadataUri and rsmRoot")
        _LOGGER.warning("%s: the query waits for one", text)

    def end(self) -> dict[str, Any]:
        """Return the offset after everything that may be read now."""
        found: dict[str, LogOffset] = {}
        for log in self._present():
            try:
                found[log] = self._followed(log).fresh().end
            except NoSuchLogError:
                # `following` tells of it, if it was there before.
                if self._pattern is None and self._options.fail_on_data_loss:
                    raise
        return encode_log_offsets(found)

    def following(self, start: dict[str, Any], limits: Limits, target: dict[str, Any] | None) -> dict[str, Any]:
        """Return the end of the next micro-batch; see `subjects.Subject`."""
        positions = self._decode(start)
        targets = None if target is None else self._decode(target)
        starts: dict[str, LogOffset] = {}
        ends: dict[str, LogOffset] = {}
        for log in sorted({*self._present(), *positions}):
            position, followed = positions.get(log), self._followed(log)
            if position is None and targets is not None and log not in targets:
                continue
            try:
                if position is None:
                    starts[log] = ends[log] = followed.look().begin
                else:
                    aim = None if targets is None else targets.get(log, position)
                    starts[log], ends[log] = followed.ahead(position, aim)
            except NoSuchLogError as error:
                if position is not None and not self._let_go(log, position, error):
                    starts[log] = ends[log] = position
        found = encode_log_offsets(self._cut(starts, ends, limits))
        return start if found == start else found

    def _let_go(self, log: str, position: LogOffset, error: NoSuchLogError) -> bool:
        """Note that a log is gone; return whether it leaves the offsets."""
        if self._options.fail_on_data_loss:
            raise StartGoneError(
                f"log {log} is gone: the query stands before record {position.revision} of it. {error}. Start a new "
                "query (new checkpoint location) without it, or set failOnDataLoss=false to go on without it"
            ) from error
        end = self._followed(log).seen_end
        if end is None or end > position.revision:
            last = None if end is None else end - 1
            self._losses.add(Loss(log, first=position.revision, last=last, reason="the log was deleted"))
        if self._pattern is None:
            return False
        del self._logs[log]
        return True

    def _cut(
        self, starts: Mapping[str, LogOffset], ends: Mapping[str, LogOffset], limits: Limits
    ) -> dict[str, LogOffset]:
        """Return where each log's part of the micro-batch ends: the limits are shared out by what each has waiting."""
        moving = [log for log in ends if ends[log] != starts[log]]
        if limits.offsets_max is None and limits.bytes_max is None:
            return dict(ends)
        if len(moving) == 1:
            return dict(ends) | {log: self._followed(log).cut(starts[log], ends[log], limits) for log in moving}
        waiting = {log: self._followed(log).waiting(starts[log], ends[log]) for log in moving}
        records = _shares({log: found.records for log, found in waiting.items()}, limits.offsets_max)
        sizes = _shares({log: found.bytes for log, found in waiting.items()}, limits.bytes_max)
        cut = {
            log: self._followed(log).cut(starts[log], ends[log], Limits(records.get(log), sizes.get(log)))
            for log in moving
        }
        return dict(ends) | cut

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the input partitions of [start, end), log by log; see `subjects.Subject`."""
        first, last = self._decode(start), self._decode(end)
        # A log that has just been written into the offsets has nothing in this micro-batch.
        logs = [log for log in last if log in first and last[log] != first[log]]
        return [part for log in logs for part in self._followed(log).partitions(first[log], last[log])]

    def backlog(self, offset: dict[str, Any]) -> Backlog:
        """Return what waits behind an offset, in all logs."""
        positions = self._decode(offset)
        found: list[Backlog] = []
        for log in self._present():
            followed = self._followed(log)
            try:
                position = positions.get(log) or followed.fresh().begin
                found.append(followed.backlog(position))
            except NoSuchLogError:
                continue  # `following` tells of it.
        return sum_backlogs(found)

    def losses(self) -> list[dict[str, Any]]:
        """Return what was skipped as it is gone."""
        return self._losses.as_json()

    def _decode(self, offset: dict[str, Any]) -> dict[str, LogOffset]:
        found = decode_log_offsets(offset)
        is_asked_for = self._pattern.fullmatch if self._pattern else self._options.log.__eq__
        others = [log for log in found if not is_asked_for(log)]
        if others or (self._pattern is None and not found):
            asked = f"logPattern {self._options.log_pattern!r}" if self._pattern else f"log {self._options.log}"
            raise SparkOffsetError(
                f"the checkpoint reads logs {', '.join(others) or 'none'}, the query {asked}: use another checkpoint "
                "location"
            )
        for log, position in found.items():
            if isinstance(position, SnapshotOffset):
                raise SparkOffsetError(f"log {log}: the checkpoint stands in a snapshot, which cannot be read yet")
        return {log: position for log, position in found.items() if isinstance(position, LogOffset)}


def _shares(waiting: Mapping[str, int], limit: int | None) -> dict[str, int]:
    return {} if limit is None else share(waiting, limit)
