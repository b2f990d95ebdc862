"""The logs of a query, one or all that match a pattern, as Spark asks for them: offsets in, offsets and partitions out.

1. A log that appears while a stream with `logPattern` runs is first written into the offsets, at its first record, and
   read from the micro-batch after that on: so every restart means the same place.
2. Logs share the limits of a micro-batch by what each has waiting; none starves.
3. A log that begins in a snapshot delivers its rows first, in micro-batches of their own; other logs go on beside it.
4. A log that vanishes is a loss of what the query had not read of it. With `failOnDataLoss=false` a pattern lets go of
   it, and a log of that name that comes later is a new one; a query of one log waits for it to be made anew.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import InputPartition

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.source.followed_log import FollowedLog, OpenLake
from connectors.source.loss import Loss, Losses
from connectors.source.offsets import LogOffset, LogPosition, decode_log_offsets, encode_log_offsets
from connectors.source.options import SourceOptions
from connectors.source.plan import MicroBatchLimits, share
from connectors.source.progress import SourceLag, sum_backlogs
from connectors.source.snapshot_phase import LakePort
from connectors.source.task_metadata import SourceAccess
from rsm_spark.errors import NoSuchLogError

_LOGGER = logging.getLogger(__name__)
_NAMES_FRESH_S = 0.05


class LogsSource:
    """One log, or those that match a pattern.

    Args:
        options: Of the query.
        access: Where to read.
        open_lake: Where the snapshots of a log are; None = where the options say.

    """

    def __init__(self, options: SourceOptions, access: SourceAccess, open_lake: OpenLake | None = None) -> None:
        self._options = options
        self._access = access
        self._open_lake = open_lake or self._lake_of
        self._losses = Losses(_LOGGER.warning)
        self._pattern = re.compile(options.log_pattern) if options.log_pattern else None
        self._logs: dict[str, FollowedLog] = {}
        self._names: list[str] = []
        self._named_s = float("-inf")
        self._present_names: dict[str, str | None] = {}

    def _lake_of(self, log: str) -> LakePort:
        from connectors.source.lake_reader import LakeReader  # noqa: PLC0415 - most queries need no lake

        assert self._options.lake is not None, "asked for only where option lake is set"
        names = self._access.former_names(log)
        return LakeReader(self._options.lake, log, self._options.storage_options, *names)

    def _followed(self, log: str) -> FollowedLog:
        if log not in self._logs:
            self._logs[log] = FollowedLog(log, self._options, self._access, self._losses, self._open_lake)
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
        starting, ending = self._options.starting, self._options.ending
        bounds = starting if is_start else ending
        # A log that JSON names must be there.
        logs = sorted({*self._present(), *(log for log in bounds if log)})
        if not logs:
            self._tell_of_none(is_error=not is_start)
        found: dict[str, LogPosition] = {}
        for log in logs:
            start, end = (given.get(log) or given[""] for given in (starting, ending))
            found[log] = self._followed(log).start(start, end) if is_start else self._followed(log).stop(end)
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
            with contextlib.suppress(NoSuchLogError):
                # `following` tells of one that is gone, and where the query stands in it.
                found[log] = self._followed(log).end()
        return encode_log_offsets(found)

    def following(
        self, start: dict[str, Any], limits: MicroBatchLimits, target: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch; see `query_source.QuerySource`."""
        positions = self._decode(start)
        targets = None if target is None else self._decode(target)
        starts: dict[str, LogPosition] = {}
        ends: dict[str, LogPosition] = {}
        for log in sorted({*self._present(), *positions}):
            position, followed = positions.get(log), self._followed(log)
            if position is None and targets is not None and log not in targets:
                continue
            try:
                if position is None:
                    starts[log] = ends[log] = followed.begin()
                else:
                    aim = None if targets is None else targets.get(log, position)
                    starts[log], ends[log] = followed.ahead(position, aim)
            except NoSuchLogError as error:
                if position is not None and not self._let_go(log, position, error):
                    starts[log] = ends[log] = position
        found = encode_log_offsets(self._cut(starts, ends, limits))
        return start if found == start else found

    def _let_go(self, log: str, position: LogPosition, error: NoSuchLogError) -> bool:
        """Note that a log is gone; return whether it leaves the offsets."""
        if self._options.fail_on_data_loss:
            raise StartGoneError(
                f"log {log} is gone: the query stands before record {position.revision} of it. {error}. Start a new "
                "query (new checkpoint location) without it, or set failOnDataLoss=false to go on without it"
            ) from error
        end = self._followed(log).seen_end
        # Of a snapshot only what follows it is counted: its rows are of records before it.
        first = position.revision if isinstance(position, LogOffset) else position.revision + 1
        if end is None or end > first:
            last = None if end is None else end - 1
            self._losses.add(Loss(log, first=first, last=last, reason="the log was deleted"))
        if self._pattern is None:
            return False
        del self._logs[log]
        return True

    def _cut(
        self, starts: Mapping[str, LogPosition], ends: Mapping[str, LogPosition], limits: MicroBatchLimits
    ) -> dict[str, LogPosition]:
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
            log: self._followed(log).cut(starts[log], ends[log], MicroBatchLimits(records.get(log), sizes.get(log)))
            for log in moving
        }
        return dict(ends) | cut

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the input partitions of [start, end), log by log; see `query_source.QuerySource`."""
        first, last = self._decode(start), self._decode(end)
        # A log that has just been written into the offsets has nothing in this micro-batch.
        logs = [log for log in last if log in first and last[log] != first[log]]
        return [part for log in logs for part in self._followed(log).partitions(first[log], last[log])]

    def backlog(self, offset: dict[str, Any]) -> SourceLag:
        """Return what waits behind an offset, in all logs."""
        positions = self._decode(offset)
        found: list[SourceLag] = []
        for log in self._present():
            try:
                found.append(self._followed(log).backlog(positions.get(log)))
            except NoSuchLogError:
                continue  # `following` tells of it.
        return sum_backlogs(found)

    def losses(self) -> list[dict[str, Any]]:
        """Return what was skipped as it is gone."""
        return self._losses.as_json()

    def _decode(self, offset: dict[str, Any]) -> dict[str, LogPosition]:
        found = decode_log_offsets(offset)
        is_asked_for = self._pattern.fullmatch if self._pattern else self._options.log.__eq__
        others = [log for log in found if not is_asked_for(log)]
        for log in others:
            present = self._renamed(log)
            if present is None or not is_asked_for(present) or present in found:
                self._refuse(others, found[log])
            _LOGGER.warning("log %s: the checkpoint stands in it under its former name %s", present, log)
            found[present] = found.pop(log)
        return {log: found[log] for log in sorted(found)}

    def _renamed(self, log: str) -> str | None:
        """Return the present name of a log whose former one stands in the checkpoint; None = none is known."""
        if log not in self._present_names:
            self._present_names[log] = self._access.present_name(log)
        return self._present_names[log]

    def _refuse(self, others: Sequence[str], position: LogPosition) -> NoReturn:
        asked = f"logPattern {self._options.log_pattern!r}" if self._pattern else f"log {self._options.log}"
        there = ""
        if len(others) == 1 and self._pattern is None and isinstance(position, LogOffset):
            revision = json.dumps({self._options.log: {"revision": position.revision}})
            there = (
                f". If {others[0]} was renamed to {self._options.log}, and the metadata store does not know "
                f"it any more: a new checkpoint location with startingOffsets={revision} goes on where this one stands"
            )
        raise SparkOffsetError(
            f"the checkpoint reads logs {', '.join(others)}, the query {asked}: use another checkpoint location{there}"
        )


def _shares(waiting: Mapping[str, int], limit: int | None) -> dict[str, int]:
    return {} if limit is None else share(waiting, limit)
