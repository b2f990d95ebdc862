"""etcd's own `benchmark` against etcd's port of the map, and against etcd, in turn.

    python -m tests.bench.bench_etcd_port

Both keep what they have acknowledged on three disks' worth of files: three servers of etcd, and two replicas on three
bookies, 3/3/2, with fsync. The load asks the leader, of ours the replica that was there first: `put`, `range` of one
key, linearizable, and `txn-mixed`, half reads and half writes, each with one client on one connection and with 64 on
eight. Figures are operations a second, and microseconds of processor time an operation, of each kind of process; calls
that failed are told on standard error. `RSM_BENCH_ROUNDS` and `RSM_BENCH_OPERATIONS` (of 64 clients; one client does a
tenth of it) change how much.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ledger.dev import DevCluster
from tests.bench.cpu import CpuMeter
from tests.bench.etcd_peer import EtcdPeer
from tests.bench.figure import ROUND_COUNT, print_figure, say
from tests.bench.nats_peer import PeerMissingError
from tests.integration.etcd_calls import EtcdCalls
from tests.integration.store_processes import stores
from tests.integration.test_etcd_api import until

_SOURCE: Final = Path(__file__).with_name("go") / "etcd-benchmark"
_PACKAGE: Final = "go.etcd.io/etcd/v3/tools/benchmark"
_SIZES: Final = ("--key-space-size", "10000", "--val-size", "100")
_KEY: Final = "one-key-of-all"
_LOADS: Final[dict[str, tuple[str, ...]]] = {
    "put": ("put", "--key-size", "16", *_SIZES),
    "range": ("range", _KEY, "--consistency", "l"),
    "txn_mixed": ("txn-mixed", "mixed", "--rw-ratio", "1", *_SIZES),
}
_CLIENTS: Final[dict[int, int]] = {1: 1, 64: 8}
"""Clients, and the connections that they share."""
_FAILURE: Final = re.compile(r"^ +\[([0-9]+)\]\t(.*)$", re.MULTILINE)
_RATE: Final = re.compile(r"Requests/sec:\s*([0-9.]+)")


def build_benchmark(folder: Path) -> Path:
    """Build etcd's program.

    Raises:
        PeerMissingError: There is no `go`, or it cannot.

    """
    go = shutil.which("go")
    if go is None:
        raise PeerMissingError("there is no `go` on the path")
    program = folder / "benchmark"
    built = subprocess.run(
        [go, "build", "-mod=readonly", "-o", program, _PACKAGE],
        cwd=_SOURCE, capture_output=True, text=True, check=False, timeout=1_500,
    )  # fmt: skip
    if built.returncode:
        raise PeerMissingError(f"`go build` of etcd's benchmark failed: {built.stderr[-300:]}")
    return program


class Sides:
    """What was measured of ours and of etcd: values by figure.

    Args:
        program: etcd's.
        operations: Of one load with 64 clients.

    """

    def __init__(self, program: Path, operations: int) -> None:
        self._program = program
        self._operations = operations
        self.figures: dict[str, dict[str, list[float]]] = {"ours": defaultdict(list), "etcd": defaultdict(list)}

    def load(self, side: str, endpoint: str, pids: Mapping[str, Sequence[int]]) -> None:
        """Run all loads against one endpoint."""
        for clients, connections in _CLIENTS.items():
            total = self._operations if clients > 1 else self._operations // 10
            for name, words in _LOADS.items():
                meter = CpuMeter(pids)
                rate = self._run(endpoint, clients, connections, total, words)
                say(f"{side}: {name} of {clients}: {rate:.0f}/s")
                note: Callable[[str, float], object] = lambda what, value: self.figures[side][what].append(value)
                note(f"{name}_{clients}", rate)
                meter.note(f"{name}_{clients}", total, note)

    def _run(self, endpoint: str, clients: int, connections: int, total: int, words: Sequence[str]) -> float:
        done = subprocess.run(
            [self._program, "--endpoints", endpoint, "--conns", str(connections), "--clients", str(clients),
             *words, "--total", str(total)],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        rates = [float(one) for one in _RATE.findall(done.stdout)]
        assert done.returncode == 0, done.stderr[-2_000:]
        assert rates, done.stdout[-2_000:]
        for count, why in _FAILURE.findall(done.stdout):
            say(f"{count} calls failed: {why}")
        return sum(rates)  # Reads and writes of `txn-mixed` have each their own.

    def show(self) -> None:
        """Print the figures: those of etcd beside ours where both have them."""
        ours, etcd = self.figures["ours"], self.figures["etcd"]
        for name in [*ours, *(name for name in etcd if name not in ours)]:
            unit = "µs" if "_cpu_us" in name else "operations/s"
            if name in ours:
                print_figure(f"etcd_port_{name}", ours[name], unit, etcd.get(name, ()))
            else:
                print_figure(f"etcd_itself_{name}", etcd[name], unit)


def main() -> None:
    """Measure both in turn."""
    rounds = int(os.environ.get("RSM_BENCH_ROUNDS", str(ROUND_COUNT)))
    operations = int(os.environ.get("RSM_BENCH_OPERATIONS", "10000"))
    with tempfile.TemporaryDirectory(prefix="etcd-port-") as name:
        folder = Path(name)
        sides = Sides(build_benchmark(folder), operations)
        peer = EtcdPeer(folder / "etcd", key_count=100, value_bytes=100)
        cluster = DevCluster(folder / "cluster", bookie_count=3, has_auto_recovery=False)
        cluster.start()
        try:
            for number in range(rounds):
                with stores(cluster.metadata_uri, f"round-{number}", folder) as replicas:
                    options = ("--etcd-port", "0", "--bookies", "3/3/2")
                    started = [replicas.start(f"{one}{number}", *options) for one in "ab"]
                    with EtcdCalls(started[0].ready["etcd_address"]) as calls:
                        until(lambda calls=calls: calls.put(_KEY.encode(), b"v" * 100))
                    bookies = [pid for process, pid in cluster.pids().items() if process.startswith("bookie")]
                    pids = {"replicas": [one.process.pid for one in started], "bookies": bookies}
                    sides.load("ours", started[0].ready["etcd_address"], pids)
                with peer.running():
                    with EtcdCalls(peer.leader) as calls:
                        until(lambda calls=calls: calls.put(_KEY.encode(), b"v" * 100))
                    sides.load("etcd", peer.leader, {"servers": peer.pids})
        finally:
            cluster.stop()
        sides.show()


if __name__ == "__main__":
    main()
