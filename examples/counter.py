"""A replicated service that counts: `python examples/counter.py <replica id> <folder>`, on some machines.

Where ZooKeeper is, the environment says (`RSM_METADATA_URI`). The state is whatever the table says; the log, the
snapshots, the elections and the server are the library's.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import rsm_spark as rsm

COUNTERS = rsm.TableDescription(
    "counters", (rsm.Field("name", rsm.FieldType.STR),), (rsm.Field("value", rsm.FieldType.INT),)
)


class Counters(rsm.TableMachine):
    """Counters by name. A command is the name of the counter to add one to; a query is a name."""

    description = rsm.MachineDescription("counters", 1, (COUNTERS,), (rsm.upsert(16, "counted", COUNTERS),))

    def decide(self, command: bytes, revision: int, now_ms: int) -> rsm.Decision:
        """Add one: log the new value, reply it."""
        name = command.decode()
        (value,) = self.get("counters", name) or (0,)
        return rsm.Decision([(16, (name, value + 1))], str(value + 1).encode())

    def query(self, query: bytes, revision: int) -> bytes:
        """Return the value."""
        (value,) = self.get("counters", query.decode()) or (0,)
        return str(value).encode()


async def main(replica_id: str, data_dir: str) -> None:
    """Serve until told to end."""
    settings = rsm.StoreSettings(log="counters", replica_id=replica_id, data_dir=Path(data_dir))
    async with rsm.serve(Counters(), settings) as service:
        print("serving on", service.address, flush=True)
        await rsm.wait_for_signal(service)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
