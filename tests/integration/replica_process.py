"""A replica of the counters as a process: requests as JSON lines on its input, answers as JSON lines on its output.

Request ``[number, [[kind, ...], ...]]`` with ``["open", session]``, ``["command", session, sequence, answered_up_to,
values]``, ``["query", key]`` or ``["status"]`` alone; answer ``[number, [[status, revision, value], ...]]``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ledger.client.client import LedgerClient
from rsm_spark.core.commands import Answer, Command, OpenSession, Query, Request
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.testing.counter_map import CounterMap, command, unpack


def _request(kind: str, *args) -> Request:
    match kind:
        case "open":
            return OpenSession(bytes.fromhex(args[0]))
        case "command":
            session, sequence, answered_up_to, values = args
            return Command(bytes.fromhex(session), sequence, answered_up_to, command(*values))
    return Query(command(*args))


def _tell(number: int, said: object) -> None:
    sys.stdout.write(json.dumps([number, said]) + "\n")
    sys.stdout.flush()


def _answered(number: int, done: asyncio.Future[Sequence[Answer]]) -> None:
    answers = [[int(a.status), a.revision, unpack(a.payload) if a.payload else None] for a in done.result()]
    _tell(number, answers)


async def main(metadata_uri: str, log: str, replica_id: str, data_dir: str) -> None:
    client = await LedgerClient.connect(metadata_uri, session_timeout_ms=3000)
    settings = ReplicaSettings(roll_bytes=20_000, snapshot_s=0, snapshot_bytes=30_000, checkpoint_records=200)
    replica = Replica(
        CounterMap(),
        log=log,
        replica_id=replica_id,
        client=client,
        snapshots=LocalSnapshots(Path(data_dir)),
        settings=settings,
    )
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with replica:
        _tell(0, "ready")
        while line := await reader.readline():
            number, requests = json.loads(line)
            if requests == [["status"]]:
                _tell(number, msgspec.to_builtins(replica.status()))
                continue
            future = replica.submit([_request(*request) for request in requests])
            future.add_done_callback(lambda done, number=number: _answered(number, done))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
