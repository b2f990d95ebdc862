"""The Python follower: tails the log from its first record and folds it, in a process that serves nobody.

``python -m rsm_demo.follower METADATA_URI LOG``. Says ``{"revision": …}`` as it goes; told ``{"until": R}`` on standard
input it says its rows, their digest and how often a command was applied twice, once it has applied revision R.
"""

from __future__ import annotations

import asyncio
import sys

from ledger import LedgerClient
from ledger.errors import LedgerError
from rsm_demo.accounts import accounts_of, map_digest
from rsm_demo.speech import listen, say
from rsm_spark.core.envelope import body_of
from rsm_spark.core.records import Record, decode_records
from rsm_spark.core.state import ReplicatedState
from rsm_spark.errors import NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.rows import value_of

_SAY_EVERY_S = 0.25
_RETRY_S = 0.2


class _Follower:
    """State, and a count of the commands that came twice."""

    def __init__(self, log_id: bytes) -> None:
        self.machine = MapMachine()
        self.state = ReplicatedState(self.machine, log_id)
        self.applied_twice = 0
        self._last_sequence: dict[bytes, int] = {}

    @property
    def revision(self) -> int:
        return self.state.tip.revision

    def apply(self, payload: bytes) -> None:
        self.state.apply_entry(payload)
        for record in decode_records(body_of(payload)):
            self._count(record)

    def _count(self, record: Record) -> None:
        head = record.command
        if head is None:
            return
        last = self._last_sequence.get(head.session, 0)
        if head.sequence <= last:
            self.applied_twice += 1
        self._last_sequence[head.session] = max(last, head.sequence)

    def report(self) -> dict[str, object]:
        """Return everything that the comparison wants."""
        pairs = [(value_of(row.key), value_of(row.row)) for row in self.machine.rows()]
        return {
            "revision": self.revision,
            "rows": accounts_of(pairs),
            "map_digest": map_digest(pairs),
            "applied_twice": self.applied_twice,
        }


async def main(metadata_uri: str, log_name: str) -> None:
    """Follow until standard input ends."""
    client = await LedgerClient.connect(metadata_uri)
    chains = ChainStore(client.store, log_name)
    until: list[int] = []
    listening = listen(lambda message: until.append(int(message["until"])))
    follower = _Follower(await _log_id(chains))
    reader = LogReader(client, chains)
    loop = asyncio.get_running_loop()
    said_at = 0.0
    while not listening.done():
        try:
            entries = await reader.read()
        except LedgerError:
            await asyncio.sleep(_RETRY_S)  # a bookie or ZooKeeper is away; the place in the log is kept
            continue
        for entry in entries:
            follower.apply(entry.payload)
        if loop.time() - said_at >= _SAY_EVERY_S:
            said_at = loop.time()
            say({"revision": follower.revision})
        if until and follower.revision >= until[0]:
            say(follower.report())
            break
        if not entries:
            await reader.wait(_SAY_EVERY_S)
    await reader.close()
    await client.close()


async def _log_id(chains: ChainStore) -> bytes:
    while True:
        try:
            chain, _version = await chains.read()
            return bytes.fromhex(chain.log_id)
        except NoSuchLogError:
            await asyncio.sleep(_RETRY_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
