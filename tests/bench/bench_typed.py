"""CPU of a typed command beside a raw one that does the same: `python -m tests.bench.bench_typed`.

Three replicas each (3/3/2) of `examples.bank:Bank` and of a bank whose commands are bytes, which its `decide` takes
apart; deposits of 64 callers and of one, in turn within each round, one log idle meanwhile. CPU is user and system, by
command. RSM_BENCH_ROUNDS, RSM_BENCH_SECONDS change sizes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

import rsm_spark as rsm
from examples.bank import Bank
from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from tests.bench.cpu import cpu_s
from tests.bench.figure import print_figure, say

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("RSM_BENCH_SECONDS", "5"))
LEVELS = (64, 1)
_NAMES = [f"account-{number}" for number in range(1_000)]
_ACCOUNTS = rsm.TableDescription(
    "accounts", (rsm.Field("name", rsm.FieldType.STR),), (rsm.Field("balance", rsm.FieldType.INT),)
)


class RawBank(rsm.TableMachine):
    """A bank without types: a command is "name amount", its reply the balance."""

    description = rsm.MachineDescription("bank", 1, (_ACCOUNTS,), (rsm.upsert(16, "balance_set", _ACCOUNTS),))

    def decide(self, command: bytes, revision: int, now_ms: int) -> rsm.Decision:
        name, amount = command.decode().split()
        (balance,) = self.get("accounts", name) or (0,)
        if int(amount) <= 0:
            return rsm.Decision((), b"no amount")
        balance += int(amount)
        return rsm.Decision([(16, (name, balance))], b"%d" % balance)


async def _deposit_raw(client: rsm.ServiceClient, name: str) -> int:
    return int((await client.execute(f"{name} 5".encode())).payload)


async def _deposit_typed(client: rsm.ServiceClient, name: str) -> int:
    return await client.call(Bank.deposit, name, 5)


_KINDS: dict[str, tuple[str, Callable[[rsm.ServiceClient, str], Awaitable[int]]]] = {
    "raw": ("tests.bench.bench_typed:RawBank", _deposit_raw),
    "typed": ("examples.bank:Bank", _deposit_typed),
}


async def _start(name: str, machine: str, log: str, cluster: DevCluster, folder: Path) -> Child:
    command = [sys.executable, "-m", "rsm_spark", "serve", machine, "--json", "--log", log, "--port", "0"]
    command += ["--metadata-uri", cluster.metadata_uri, "--replica-id", name, "--bookies", "3/3/2"]
    child = await Child.start(name, [*command, "--data-dir", str(folder / name)], log_dir=folder)
    try:
        await child.until(lambda said: said.get("ready"), timeout_s=300, what="serving")
    except BaseException:  # Nobody else knows of it yet.
        await child.stop()
        raise
    return child


async def _load(client: rsm.ServiceClient, deposit: Callable[..., Awaitable[int]], callers: int) -> int:
    """Let callers call, one call each at a time; return how many calls there were."""
    end = time.perf_counter() + SECONDS

    async def _one(number: int) -> int:
        count = 0
        while time.perf_counter() < end:
            await deposit(client, _NAMES[(number * 17 + count) % len(_NAMES)])
            count += 1
        return count

    return sum(await asyncio.gather(*(_one(number) for number in range(callers))))


async def main() -> None:
    """Measure both banks in turn and print a line per figure; `peer` is the raw one."""
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        replicas: dict[str, list[Child]] = defaultdict(list)
        figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        try:
            for kind, (machine, _) in _KINDS.items():
                for number in range(3):
                    started = _start(f"{kind}-{number}", machine, f"{kind}-bank", cluster, Path(folder))
                    replicas[kind].append(await started)
            for number in range(ROUND_COUNT):
                say(f"typed: round {number + 1} of {ROUND_COUNT}")
                for callers in LEVELS:
                    for kind in ("raw", "typed") if number % 2 else ("typed", "raw"):
                        pids = [child.pid for child in replicas[kind]]
                        async with await rsm.ServiceClient.connect(f"{kind}-bank", cluster.metadata_uri) as client:
                            await _KINDS[kind][1](client, _NAMES[0])
                            before, own = sum(map(cpu_s, pids)), time.process_time()
                            count = await _load(client, _KINDS[kind][1], callers)
                            used, own = sum(map(cpu_s, pids)) - before, time.process_time() - own
                        figures[f"commands_{callers}"][kind].append(count / SECONDS)
                        figures[f"command_cpu_us_{callers}"][kind].append(used * 1e6 / count)
                        figures[f"command_client_cpu_us_{callers}"][kind].append(own * 1e6 / count)
        finally:
            for children in replicas.values():
                for child in children:
                    await child.stop()
        for name, found in figures.items():
            print_figure(name, found["typed"], "us" if "_us_" in name else "commands/s", found["raw"])


if __name__ == "__main__":
    uvloop.run(main())
