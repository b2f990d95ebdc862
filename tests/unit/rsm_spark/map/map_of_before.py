"""The map as version 2 was: rows are values alone, and it does not follow other versions."""

from __future__ import annotations

from typing import Any

import msgspec

from rsm_spark.core.machine import MachineDescription
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import MAP_DESCRIPTION

_TABLE, *_TABLES = MAP_DESCRIPTION.tables
_PUT, *_RECORDS = MAP_DESCRIPTION.records
SECOND: MachineDescription = msgspec.structs.replace(
    MAP_DESCRIPTION,
    version=2,
    tables=(msgspec.structs.replace(_TABLE, row=_TABLE.row[:1]), *_TABLES),
    records=(msgspec.structs.replace(_PUT, fields=_PUT.fields[:2], row=_PUT.row[:1]), *_RECORDS),
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
