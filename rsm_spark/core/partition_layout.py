"""Layout of a partitioned log: of which plain logs it is made, and to which of them a key goes. One node, by CAS.

    <root>/layouts/<log>    JSON; partition 3 of `clicks` is the plain log `clicks.p3`

1. A layout is a list of *generations*, the last of which is the present one. Each has more partitions than the one
   before. When a log grows, one write ends the present generation, in every partition at a position of its own, and
   begins the next one.
2. Only the writer that has claimed the layout writes it, and appends. It claims, opens the partitions, which fences
   whoever wrote them, and looks whether its claim still stands: else another one may have opened them and grown the log
   before. All that one opening of a partition appends is of one generation: a writer that grows the log opens all of
   them anew. So a reader that meets records of another opening, and then reads the layout, knows their generation.
3. A key goes to partition `key_hash(key) % count`. Partition q of a later generation gets keys from partition r of an
   earlier one only if q and r are equal modulo the greatest common divisor of the two counts: what lies there is to be
   read first (`KeyOrder`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from ledger.decoding import json_decoder
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.errors import CorruptLogError, LogError

LAYOUT_FORMAT = 1

PARTITIONS_MAX = 256
"""Each has ledgers of its own, and one writer writes all of them."""

GENERATIONS_MAX = 32
"""With the positions at which 32 generations of 256 partitions end, a layout has some 200 kB."""

_LAYOUT_BYTES_MAX = 1_000_000
_HASH_BYTES = 8
_NO_ENDS: tuple[int, ...] = ()
_LOG_ID = re.compile("[0-9a-f]{32}")
_PARTITION_LOG = re.compile(r"(.+)\.p(0|[1-9][0-9]{0,2})")


class LayoutGeneration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Time of a partitioned log during which it has the same number of partitions.

    Attributes:
        partition_count: How many there are.
        ends: By partition, the last position of this generation there; () = it is the present one.

    """

    partition_count: int
    ends: tuple[int, ...] = ()


class PartitionLayout(msgspec.Struct, frozen=True):
    """Layout of a partitioned log, as its node has it.

    Attributes:
        layout_id: Of the partitioned log, 32 hex digits.
        log_ids: By partition, the id of the plain log.
        generations: The oldest first; the last one is the present one.
        claim: How often a writer was opened.
        writer: Incarnation of the one that was opened last; "" = none was.
        is_deleting: A deletion has begun; it goes on until the node is gone.
        format: Of the node.

    """

    layout_id: str
    log_ids: tuple[str, ...]
    generations: tuple[LayoutGeneration, ...]
    claim: int = 0
    writer: str = ""
    is_deleting: bool = False
    format: int = LAYOUT_FORMAT

    @property
    def partition_count(self) -> int:
        """Number of partitions that records go to now."""
        return self.generations[-1].partition_count

    def claimed(self, incarnation: str) -> PartitionLayout:
        """Return the layout as a new writer claims it."""
        return msgspec.structs.replace(self, claim=self.claim + 1, writer=incarnation)

    def grown(self, log_ids: Sequence[str], ends: Sequence[int]) -> PartitionLayout:
        """Return the layout with more partitions.

        Args:
            log_ids: Of those that are added.
            ends: By present partition, its last position: all that was appended so far is at or below it.

        """
        assert len(ends) == self.partition_count
        ended = LayoutGeneration(self.partition_count, tuple(ends))
        present = LayoutGeneration(self.partition_count + len(log_ids))
        return msgspec.structs.replace(
            self, log_ids=(*self.log_ids, *log_ids), generations=(*self.generations[:-1], ended, present)
        )


def new_layout(layout_id: str, log_ids: Sequence[str]) -> PartitionLayout:
    """Return the layout of a new log."""
    return PartitionLayout(layout_id, tuple(log_ids), (LayoutGeneration(len(log_ids)),))


def check_partition_count(log: str, count: int) -> None:
    """Check how many partitions are asked for.

    Raises:
        LogError: None, or too many.

    """
    if not 1 <= count <= PARTITIONS_MAX:
        raise LogError(f"log {log}: {count} partitions: it can have 1 to {PARTITIONS_MAX}")


def check_growth(log: str, layout: PartitionLayout, count: int) -> None:
    """Check whether a log can grow to so many partitions.

    Raises:
        LogError: It cannot.

    """
    check_partition_count(log, count)
    if count <= layout.partition_count:
        raise LogError(f"log {log}: it has {layout.partition_count} partitions and can only get more, not {count}")
    if len(layout.generations) >= GENERATIONS_MAX:
        raise LogError(f"log {log}: it has grown {GENERATIONS_MAX - 1} times, which is all that it can")


# ---- names


def layout_path(log: str, rsm_root: str = DEFAULT_RSM_ROOT) -> str:
    """Return the node of a partitioned log's layout."""
    return f"{rsm_root}/layouts/{log}"


def partition_log(log: str, partition: int) -> str:
    """Return the name of the plain log that is a partition."""
    return f"{log}.p{partition}"


def split_partition_log(log: str) -> tuple[str, int] | None:
    """Return which partition of which log a plain log is by its name; None = of none. Its layout is the proof."""
    found = _PARTITION_LOG.fullmatch(log)
    return None if found is None else (found[1], int(found[2]))


# ---- keys


def key_hash(key: bytes) -> int:
    """Return the number that says where a key goes: the first 8 bytes of its SHA-256, big-endian. It never changes."""
    return int.from_bytes(hashlib.sha256(key).digest()[:_HASH_BYTES], "big")


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition that a key goes to."""
    return key_hash(key) % partition_count


def share_keys(partition: int, partition_count: int, other: int, other_count: int) -> bool:
    """Return whether some key goes to one partition of so many, and to the other one of other so many."""
    return (partition - other) % math.gcd(partition_count, other_count) == 0


class KeyOrder:
    """Order in which a reader takes partitions, so that the records of each key come in the order of their appends.

    Args:
        layout: Read after the records that are to be handed out.

    """

    def __init__(self, layout: PartitionLayout) -> None:
        self._generations = layout.generations

    def limit(self, partition: int, read: Mapping[int, int]) -> int | None:
        """Return the last position of a partition that may be handed out now; None = there is no limit.

        Args:
            partition: Which.
            read: By partition that is read, this one too: the position up to which all was handed out; or processed, by
                another reader of the same subscription.

        """
        limit = read[partition]
        for number, generation in enumerate(self._generations):
            if partition >= generation.partition_count:
                continue
            if generation.ends and generation.ends[partition] <= limit:
                continue  # It was read to the end of this generation.
            if not self._is_open(number, partition, read):
                return limit
            if not generation.ends:
                return None
            limit = generation.ends[partition]
        return limit

    def _is_open(self, number: int, partition: int, read: Mapping[int, int]) -> bool:
        """Return whether all that is to be read before a generation of a partition was read."""
        count = self._generations[number].partition_count
        for before in self._generations[:number]:
            for other, end in enumerate(before.ends):
                position = read.get(other)
                if other == partition or position is None or position >= end:
                    continue
                if share_keys(partition, count, other, before.partition_count):
                    return False
        return True

    def is_behind(self, partition: int, position: int) -> bool:
        """Return whether a generation that has ended goes on behind a position of a partition."""
        ends = self._last_ends
        return partition < len(ends) and position < ends[partition]

    def passes_end(self, partition: int, before: int, position: int) -> bool:
        """Return whether a generation of a partition ends behind one position and not behind another one."""
        return any(partition < len(one.ends) and before < one.ends[partition] <= position for one in self._generations)

    def is_settled(self, read: Mapping[int, int]) -> bool:
        """Return whether all that was appended before the last growth was read: then nothing is limited."""
        return not any(self.is_behind(partition, position) for partition, position in read.items())

    @property
    def _last_ends(self) -> tuple[int, ...]:
        return self._generations[-2].ends if len(self._generations) > 1 else ()


# ---- the node


def encode_layout(layout: PartitionLayout) -> bytes:
    return msgspec.json.encode(layout)


def decode_layout(value: bytes, *, log: str) -> PartitionLayout:
    """Read a node.

    Raises:
        CorruptLogError: It holds no layout that could have been written; or one of a newer version.

    """
    at = f"the layout of log {log}"
    if len(value) > _LAYOUT_BYTES_MAX:
        raise CorruptLogError(f"{at} has {len(value):,} bytes; {_LAYOUT_BYTES_MAX:,} are allowed")
    try:
        layout = json_decoder(PartitionLayout).decode(value)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"{at} cannot be read: {error}") from error
    if layout.format != LAYOUT_FORMAT:
        raise CorruptLogError(
            f"{at} has format {layout.format}, this version knows {LAYOUT_FORMAT}: a newer version wrote it"
        )
    problem = _problem(layout)
    if problem:
        raise CorruptLogError(f"{at} is none: {problem}; look at who can write there")
    return layout


def _problem(layout: PartitionLayout) -> str:
    """Return why a layout cannot be right; "" = it can."""
    ids = (layout.layout_id, *layout.log_ids)
    if not all(_LOG_ID.fullmatch(one) for one in ids):
        return "an id in it is not 32 hex digits"
    if len(set(ids)) < len(ids):
        return "two of its logs have the same id"
    if not 1 <= len(layout.generations) <= GENERATIONS_MAX or layout.claim < 0:
        return f"{len(layout.generations)} generations and {layout.claim} claims"
    if not 1 <= len(layout.log_ids) <= PARTITIONS_MAX or layout.partition_count != len(layout.log_ids):
        return f"{len(layout.log_ids)} logs for {layout.partition_count} partitions of at most {PARTITIONS_MAX}"
    count, ends = 0, _NO_ENDS
    for number, one in enumerate(layout.generations):
        is_present = number == len(layout.generations) - 1
        if one.partition_count <= count:
            return f"generation {number} has {one.partition_count} partitions, the one before {count}"
        if len(one.ends) != (0 if is_present else one.partition_count):
            return f"generation {number} tells {len(one.ends)} ends"
        if any(now < before for now, before in zip(one.ends, ends, strict=False)) or any(end < 0 for end in one.ends):
            return f"a partition ends with generation {number} before it ended with an earlier one"
        count, ends = one.partition_count, one.ends
    return ""
