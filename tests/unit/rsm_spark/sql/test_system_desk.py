"""What system tables are made from: asked for once by many, within a time, and with what does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from ledger.errors import MetadataUnavailableError
from rsm_spark.errors import RsmError
from rsm_spark.log.member import Member
from rsm_spark.sql.system_desk import SystemDesk
from rsm_spark.sql.system_tables import LOCKS, NODES, SNAPSHOTS, SystemAsker
from rsm_spark.transport.security import Security

ANN = SystemAsker("principal ann", sees_all=False)
STATUS = msgspec.json.encode({
    "role": "leader", "revision": 7, "lag_ms": 0, "logged_ms": 5, "row_count": 2, "alarms": [], "snapshots": [],
    "damaged_snapshots": [], "verified": {"lake": 3},
})  # fmt: skip


class Members:
    """Stands where ZooKeeper's members are found."""

    def __init__(self) -> None:
        self.asked = 0
        self.fault: Exception | None = None

    async def members(self) -> list[Member]:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.fault is not None:
            raise self.fault
        return [Member("a", "0" * 32, "here:1"), Member("b", "1" * 32, "")]


def desk_of(members: Members) -> SystemDesk:
    nothing: Any = None
    found: Any = members
    return SystemDesk(nothing, found, nothing, "a", Security(), lambda: STATUS, lambda: (), lambda: 0)


def test_many_queries_ask_once_and_a_fault_is_not_kept():
    async def _test() -> None:
        members = Members()
        desk = desk_of(members)
        found = await asyncio.gather(*(desk.rows([NODES, SNAPSHOTS, LOCKS], ANN) for _ in range(50)))
        assert members.asked == 1
        assert found[0][NODES] == [
            ("a", "here:1", "leader", 7, 0, 0, 2, None, None),
            ("b", "", None, None, None, None, None, None, "serves no clients"),
        ]
        assert found[0][SNAPSHOTS] == [("lake", 3, "verified", None, None, None)]
        assert found[0][LOCKS] == []
        members.fault = MetadataUnavailableError("nobody answers")
        other = desk_of(members)
        given_up = asyncio.get_running_loop().create_task(other.rows([NODES], ANN))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(RsmError, match="nobody answers"):
            await other.rows([NODES], ANN)
        assert members.asked == 2
        other.close()

    asyncio.run(_test())
