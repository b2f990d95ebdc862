"""The logs of a query, one or all that match a pattern, as Spark asks for them: offsets in, offsets and partitions out.

1. A log that appears while a stream with `logPattern` runs is first written into the offsets, at its first record, and
   read from the micro-batch after that on: so every restart means the same place.
2. Logs share the limits of a micro-batch by what each has waiting; none starves.
3. A log that begins in a snapshot delivers its rows first, in micro-batches of their own; other logs go on beside it.
4. A log that vanishes is a loss of what the query had not read of it. With `failOnDataLoss=false` a pattern lets go of
   it, and a log of that name that comes later is a new one; a query of one log waits for it to be made anew.
5. A partitioned log that is named, or whose name matches, stands for its partitions. Each is a log in the offsets;
   those that are added while a stream runs are picked up as in 1; keys keep their order (`connectors.source.layouts`).
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

from connectors.errors import OptionError, SparkOffsetError, StartGoneError
from connectors.source.bounds import LATEST, Bound, BoundKind
from connectors.source.followed_log import FollowedLog, OpenLake
from connectors.source.layouts import LayoutLook
from connectors.source.loss import Loss, Losses
from connectors.source.offsets import LogOffset, LogPosition, SnapshotOffset, decode_log_offsets, encode_log_offsets
from connectors.source.options import SourceOptions
from connectors.source.plan import MicroBatchLimits, share
from connectors.source.progress import SourceLag, sum_backlogs
from connectors.source.snapshot_phase import LakePort
from connectors.source.task_metadata import SourceAccess
from rsm_spark.core.partition_layout import split_partition_log
from rsm_spark.errors import NoSuchLogError

_LOGGER = logging.getLogger(__name__)
_NAMES_FRESH_S = 0.05
_ONE_PLACE = (BoundKind.REVISION, BoundKind.POSITION)


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
        self._layouts = LayoutLook(access)
        self._began: dict[str, LogPosition] = {}  # Where a batch begins.

    def _lake_of(self, log: str) -> LakePort:
        from connectors.source.lake_reader import LakeReader  # noqa: PLC0415 - most queries need no lake

        assert self._options.lake is not None, "asked for only where option lake is set"
        names = self._access.former_names(log)
        return LakeReader(self._options.lake, log, self._options.storage_options, *names)

    def _followed(self, log: str) -> FollowedLog:
        if log not in self._logs:
            place = self._layouts.place_of(log)
            place = place if place is not None and self._is_asked_for(place.log) else None
            self._logs[log] = FollowedLog(log, self._options, self._access, self._losses, self._open_lake, place)
        return self._logs[log]

    def _present(self) -> list[str]:
        """Return the logs of the query that there are, ascending; the one that option `log` names in any case."""
        if time.monotonic() - self._named_s > _NAMES_FRESH_S:
            self._names = self._named() if self._pattern is None else self._matching(self._pattern)
            self._named_s = time.monotonic()
        return self._names

    def _named(self) -> list[str]:
        """Return the log that the option names, or its partitions."""
        log = self._options.log
        if log not in self._logs or self._logs[log].seen_end is None:  # It is not known to be a plain one.
            self._layouts.look([log])
        return self._layouts.partitions(log) or [log]

    def _matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the logs that the pattern matches, and the partitions of those that it matches."""
        plain, whole = self._access.logs(), self._access.partitioned_logs()
        splits = [split_partition_log(log) for log in plain if pattern.fullmatch(log)] if whole else []
        # Where some partitions are matched by their own names, keys keep their order among them.
        needed = {log for log in whole if pattern.fullmatch(log)} | ({split[0] for split in splits if split} & {*whole})
        self._layouts.look(sorted(needed))
        parts = {part for log in needed if pattern.fullmatch(log) for part in self._layouts.partitions(log)}
        return sorted(parts | {log for log in plain if pattern.fullmatch(log)})

    def _is_asked_for(self, log: str) -> bool:
        """Return whether the query names a log, or its pattern matches it."""
        return self._pattern.fullmatch(log) is not None if self._pattern else log == self._options.log

    def bound(self, *, is_start: bool) -> dict[str, Any]:
        """Return the offset that the starting or ending option means now."""
        starting, ending = self._options.starting, self._options.ending
        bounds = starting if is_start else ending
        while True:
            logs = self._bounded(bounds)
            found: dict[str, LogPosition] = {}
            for log in logs:
                start, end = (self._bound_of(log, given) for given in (starting, ending))
                found[log] = self._followed(log).start(start, end) if is_start else self._followed(log).stop(end)
            if not self._has_grown():
                break
        if is_start:
            self._began = found
        else:
            self._close(found)
        return encode_log_offsets(found)

    def _bounded(self, bounds: Mapping[str, Bound]) -> list[str]:
        """Return the logs that have a bound, ascending; a log that JSON names must be there."""
        present, named = self._present(), [log for log in bounds if log]
        if self._pattern is None:
            log, parts = self._options.log, [one for one in named if one != self._options.log]
            is_partitioned = bool(self._layouts.partitions(log))
            if parts and not is_partitioned:
                raise OptionError(f"an option of offsets names {parts[0]}: log {log} is not partitioned")
            if is_partitioned and bounds[log].kind in _ONE_PLACE:
                raise OptionError(
                    f"an option of offsets names a place in log {log}, which is partitioned: name one in each "
                    f'partition, like {{"{self._layouts.partitions(log)[0]}": 1234}}; those that are not named begin '
                    "and end where a query does by default"
                )
            named = parts if is_partitioned else named
        logs = sorted({*present, *named})
        if not logs:
            self._tell_of_none(is_error=bounds is self._options.ending)
        return logs

    def _bound_of(self, log: str, bounds: Mapping[str, Bound]) -> Bound:
        place = self._layouts.place_of(log)
        names = (log, "" if place is None else place.log, "")
        return next(bounds[name] for name in names if name in bounds)

    def _has_grown(self) -> bool:
        """Look at the layouts again; return whether they have changed since the names of the logs were found."""
        has_grown = self._layouts.look_again()
        if has_grown:
            self._named_s = float("-inf")
        return has_grown

    def _close(self, ends: dict[str, LogPosition]) -> None:
        """Take back the ends of a batch to where no key lacks what it had before; not those that the query names."""
        for log in ends:
            if (
                log not in self._began and self._layouts.place_of(log) is not None
            ):  # It was added meanwhile: nothing of it is read.
                self._began[log] = ends[log] = self._followed(log).begin()
        is_free = {log: self._bound_of(log, self._options.ending) == LATEST for log in ends}
        began, read = ({log: _read_up_to(place) for log, place in given.items()} for given in (self._began, ends))
        for log, revision in self._layouts.closed_ends(began, read).items():
            if is_free[log]:
                ends[log] = self._followed(log).up_to(self._began[log], ends[log], revision)

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
        while True:
            starts, ends = self._aims(positions, targets)
            if not self._has_grown():
                break
        for log, revision in self._layouts.limits({log: _read_up_to(starts[log]) for log in starts}).items():
            ends[log] = self._followed(log).up_to(starts[log], ends[log], revision)
        found = encode_log_offsets(self._cut(starts, ends, limits))
        return start if found == start else found

    def _aims(
        self, positions: Mapping[str, LogPosition], targets: Mapping[str, LogPosition] | None
    ) -> tuple[dict[str, LogPosition], dict[str, LogPosition]]:
        """Return where each log stands, and how far it could be read."""
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
        return starts, ends

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
        if self._pattern is None and not self._layouts.logs:
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
        others = [log for log in found if not (self._is_asked_for(log) or self._is_part(log))]
        for log in others:
            present = self._renamed(log)
            if present is None or not self._is_asked_for(present) or present in found:
                self._refuse(others, found[log])
            said = "log %s: the checkpoint stands in it under its former name %s"
            _LOGGER.warning(said, present, log, extra={"log": present})
            found[present] = found.pop(log)
        return {log: found[log] for log in sorted(found)}

    def _is_part(self, log: str) -> bool:
        """Return whether a log is, or was, a partition of a log that is asked for."""
        split = split_partition_log(log)
        if split is None or not self._is_asked_for(split[0]):
            return False
        self._present()
        return split[0] in self._layouts.logs

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


def _read_up_to(position: LogPosition) -> int:
    """Return the revision before the first one that a query that stands somewhere will read."""
    return position.revision if isinstance(position, SnapshotOffset) else position.revision - 1


def _shares(waiting: Mapping[str, int], limit: int | None) -> dict[str, int]:
    return {} if limit is None else share(waiting, limit)
