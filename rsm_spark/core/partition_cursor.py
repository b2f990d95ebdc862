"""Place of a reader in a partitioned log as text: by partition, the first position that is still to be read.

    0:4711,2:98     partition 0 from 4711 on, partition 2 from 98 on, all others from their beginning

Text without a partition, "" too, is the beginning of the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rsm_spark.core.partition_layout import PARTITIONS_MAX
from rsm_spark.errors import LogError

_PART = re.compile(r"(0|[1-9][0-9]{0,2}):([0-9]{1,16})", re.ASCII)


def encode_cursor(positions: Mapping[int, int]) -> str:
    """Return the text of a place.

    Args:
        positions: By partition, the first position that is still to be read.

    """
    return ",".join([f"{partition}:{positions[partition]}" for partition in sorted(positions)])


def decode_cursor(text: str) -> dict[int, int]:
    """Read the text of a place.

    Raises:
        LogError: It is none.

    """
    positions: dict[int, int] = {}
    if not text:
        return positions
    parts = text.split(",", PARTITIONS_MAX)
    if len(parts) > PARTITIONS_MAX:
        raise LogError(f"a place in a partitioned log with more than {PARTITIONS_MAX} partitions")
    for part in parts:
        found = _PART.fullmatch(part)
        if found is None:
            raise LogError(f"{part[:40]!r} is no place in a partition: expected partition:position, 0:4711,2:98 say")
        partition = int(found[1])
        if partition >= PARTITIONS_MAX or partition in positions:
            raise LogError(f"a place in a partitioned log: partition {partition} is there twice, or there is none")
        positions[partition] = max(1, int(found[2]))
    return positions
