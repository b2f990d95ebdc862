"""The map as versions 2 to 4 were. In version 2 rows are values alone, and it does not follow other versions."""

from __future__ import annotations

from typing import Any

import msgspec

from rsm_spark.core.machine import MachineDescription
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import MAP_DESCRIPTION

_TABLE, *_TABLES, _COMPACTIONS, _ALARMS = MAP_DESCRIPTION.tables
_PUT, _DELETED, _EXPIRED, *_RECORDS, _COMPACTED, _RAISED, _ENDED = MAP_DESCRIPTION.records


def _before(version: int, columns: int) -> MachineDescription:
    """Return the description of a version whose rows have so many columns."""
    gone = [msgspec.structs.replace(one, fields=one.fields[:1]) for one in (_DELETED, _EXPIRED)]
    put = msgspec.structs.replace(_PUT, fields=_PUT.fields[: 1 + columns], row=_PUT.row[:columns])
    return msgspec.structs.replace(
        MAP_DESCRIPTION,
        version=version,
        tables=(msgspec.structs.replace(_TABLE, row=_TABLE.row[:columns]), *_TABLES),
        records=(put, *gone, *_RECORDS),
    )


SECOND = _before(2, 1)
THIRD = _before(3, 3)
FOURTH = msgspec.structs.replace(
    MAP_DESCRIPTION, version=4, tables=MAP_DESCRIPTION.tables[:-1], records=MAP_DESCRIPTION.records[:-2]
)


class SecondMap(MapMachine):
    """Of version 2."""

    is_evolving = False
    level_needed = 1

    def __init__(self) -> None:
        super().__init__()
        super().follow(SECOND)

    @property
    def description(self) -> MachineDescription:
        return SECOND

    def follow(self, description: Any) -> None:
        raise AssertionError("it was not asked to")
