"""`python -m tests.bench.bench_fork`: how long `rsm log fork` takes, whatever the size of the log.

Logs in ledgers of 256 MiB on two of three bookies, written here as a leader writes them: a long one of entries of 64
KiB, and one of entries of 1 KiB. Both are forked at a revision in the midst of a closed ledger; the long one at its end
too, as a log is that no replica serves: its open ledger, as full as it gets, is copied. A log of many small ledgers is
forked at its end, and one of the map that a replica serves, whose leader closes its ledger first. The time is that of
the whole command. RSM_BENCH_ROUNDS, RSM_BENCH_GB and RSM_BENCH_LEDGERS change sizes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from ledger.client.client import LedgerClient
from ledger.dev.cluster import DevCluster
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain
from rsm_spark.core.envelope import Envelope, encode_envelope, entry_hash, root_hash
from rsm_spark.core.orphans import custom_metadata
from rsm_spark.log.admin_requests import AdminRequests, RaiseFormatRequest
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.map.client.client import MapClient
from tests.bench.figure import ROUND_COUNT, print_figure, say
from tests.bench.store_load import start_replica

ROUNDS = int(os.environ.get("RSM_BENCH_ROUNDS", str(ROUND_COUNT)))
GIGABYTES = float(os.environ.get("RSM_BENCH_GB", "2"))
LEDGERS = int(os.environ.get("RSM_BENCH_LEDGERS", "5000"))
_ENTRY_BYTES = 64 << 10
_SMALL_BYTES = 1 << 10
_LEDGER_BYTES = 256 << 20
_IN_FLIGHT = 4 << 20


async def write_log(client: LedgerClient, log: str, ledgers: int, entries: int, entry_bytes: int) -> int:
    """Write a log; its last ledger stays open. Return its last revision."""
    log_id = secrets.token_hex(16)
    raw_id = bytes.fromhex(log_id)
    before, revision = root_hash(raw_id), 0
    body = random.Random(1).randbytes(entry_bytes)
    found: list[ChainLedger] = []
    for number in range(ledgers):
        custom = custom_metadata(log, log_id, 1, found[-1].ledger_id if found else -1)
        handle = await client.create(ensemble_size=2, write_quorum=2, ack_quorum=2, custom=custom)
        first, written = revision + 1, None
        for _ in range(entries):
            payload = encode_envelope(Envelope(raw_id, 1, revision + 1, revision, revision, 1, before), body)
            before, revision = entry_hash(payload), revision + 1
            written = handle.append(payload)
            if handle.in_flight_bytes > _IN_FLIGHT:
                await handle.drain()
        assert written is not None
        await written
        end = None
        if number < ledgers - 1:
            last = await handle.close()
            end = ClosedEnd(last, revision, revision, handle.metadata.length, before.hex())
        else:
            await handle.write_lac()
        found.append(ChainLedger(handle.ledger_id, 0, 1, first, end))
    chain = LogChain(log_id, found[0].ledger_id, 1, ledgers=tuple(found), format_level=2)
    await ChainStore(client.store, log).create(chain)
    return revision


async def fork_s(metadata_uri: str, log: str, *options: str) -> tuple[float, dict[str, float]]:
    """Run the command; return its seconds, and what it says of the fork."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "rsm_spark", "log", "fork", log, "--as", f"{log}-{secrets.token_hex(4)}"]
    process = await asyncio.create_subprocess_exec(
        *command, "--metadata-uri", metadata_uri, "--json", *options, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"log {log} was not forked")
    return time.monotonic() - began_s, json.loads(out)


async def main() -> None:
    """Write the logs, fork each a few times, print a line per figure."""
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        uri = cluster.metadata_uri
        long = max(2, int(GIGABYTES * (1 << 30) / _LEDGER_BYTES))
        per_ledger = _LEDGER_BYTES // _ENTRY_BYTES
        async with await LedgerClient.connect(uri) as client:
            say(f"fork: a log of {long} ledgers of 256 MiB")
            last = await write_log(client, "long", long, per_ledger, _ENTRY_BYTES)
            small = await write_log(client, "small", 2, _LEDGER_BYTES // _SMALL_BYTES, _SMALL_BYTES)
            say(f"fork: a log of {LEDGERS} ledgers")
            await write_log(client, "rolled", LEDGERS, 1, 100)
        middle = last // 2 + per_ledger // 2
        for name, log, options in (
            ("fork_s_unserved", "long", ()),
            ("fork_s_small_at_revision", "small", ("--at-revision", str(small // 4))),
            ("fork_s_at_revision", "long", ("--at-revision", str(middle))),
            ("fork_s_rolled", "rolled", ()),
        ):
            found = [await fork_s(uri, log, *options) for _ in range(ROUNDS)]
            say(f"{name}: {found[0][1]['shared']} ledgers shared, {found[0][1]['bytes'] / 1e6:.0f} MB copied")
            print_figure(name, [seconds for seconds, _ in found], "s")
        await _served(cluster, Path(folder))


async def _served(cluster: DevCluster, folder: Path) -> None:
    """Fork a log whose leader has some hundred megabytes in its open ledger."""
    replica = await start_replica("r0", cluster, folder, log="served")
    found = []
    try:
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            await _raise_format(client)
        for _ in range(ROUNDS):
            async with await MapClient.connect("served", cluster.metadata_uri) as callers:
                value = random.Random(2).randbytes(60_000)
                await callers.put_many((b"k%d" % (number % 500), value) for number in range(3_000))
            found.append(await fork_s(cluster.metadata_uri, "served"))
    finally:
        await replica.stop()
    say(f"fork_s_served: {found[0][1]['shared']} ledgers shared, {found[0][1]['bytes'] / 1e6:.0f} MB copied")
    print_figure("fork_s_served", [seconds for seconds, _ in found], "s")


async def _raise_format(client: LedgerClient) -> None:
    await AdminRequests(client.store, "served").place(RaiseFormatRequest(), timeout_s=30)


if __name__ == "__main__":
    uvloop.run(main())
