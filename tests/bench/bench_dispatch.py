"""CPU of the broker's scheduler alone, a task: enqueue, assignment and start, end. One JSON line per figure.

    python -P -m tests.bench.bench_dispatch [tasks a round]

`dispatch_<tenants>t_<workers>w_us`: workers of 40 threads each are busy; 500 tasks end, 500 are submitted, as many are
assigned, over and over, while 20 tasks of each tenant wait. `dispatch_idle_…`: nothing waits, every task finds an idle
worker. `dispatch_classes_…`: tasks of 8 types, each of which workers run on 10 threads at most, a quarter of them with
a limited resource. `dispatch_capped_1m_us`: 1,000,000 tasks of a tenant that runs its 10 wait in front of the others'.
`dispatch_long_jobs_…`: every tenant has a job that runs for ever beside its short tasks. `waiting_bytes`: memory of a
waiting task. RSM_BENCH_ROUNDS changes the number of rounds.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.scheduler import Scheduler
from tests.bench.figure import print_figure, say

ROUNDS = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
BATCH = 500
THREADS = 40
MILLION = 1_000_000

Kind = tuple[str, tuple[tuple[str, int], ...]]


class Load:
    """A scheduler, and tasks that come and go in batches as with a busy broker."""

    def __init__(self, tenants: int, workers: int, kinds: list[Kind], offer: WorkerOffer) -> None:
        self.scheduler = Scheduler()
        self.tenants = [f"tenant-{n}" for n in range(tenants)]
        self.kinds = kinds
        self.next_id = 1
        self.now_ms = 1_700_000_000_000
        self.running: deque[int] = deque()
        for n in range(workers):
            self.scheduler.set_worker(f"worker-{n}", offer)

    def demands(self, count: int) -> list[Demand]:
        made = []
        for task_id in range(self.next_id, self.next_id + count):
            # Neither tenants nor types in step with each other.
            kind, resources = self.kinds[(task_id * 7 // 3) % len(self.kinds)]
            tenant = self.tenants[(task_id * 31) % len(self.tenants)]
            made.append(Demand(task_id, tenant, kind, 1, 0, resources, "", self.now_ms))
        self.next_id += count
        return made

    def enqueue(self, demands: list[Demand]) -> None:
        enqueue = self.scheduler.enqueue
        for demand in demands:
            enqueue(demand)

    def dispatch(self) -> int:
        scheduler, now_ms, running = self.scheduler, self.now_ms, self.running
        start, note = scheduler.start, running.append
        before = len(running)
        for task_id, worker_id in scheduler.next_assignments(now_ms):
            start(task_id, worker_id, now_ms)
            note(task_id)
        return len(running) - before

    def end(self, count: int) -> None:
        end, running = self.scheduler.end, self.running
        for _ in range(min(count, len(running))):
            end(running.popleft(), self.now_ms)

    def cycles(self, count: int) -> float:
        """Return the CPU of one task in us, of at least so many."""
        batches = [self.demands(BATCH) for _ in range(count // BATCH)]
        done = 0
        gc.collect()
        began = time.process_time()
        for batch in batches:
            self.now_ms += 10
            self.end(BATCH)
            self.enqueue(batch)
            done += self.dispatch()
        used = time.process_time() - began
        assert done >= count * 0.8, f"{done} of {count} were dispatched"
        return used / done * 1e6


PLAIN: list[Kind] = [("mail", ())]
TYPED: list[Kind] = [(f"type-{n}", (("db", 1),) if n % 4 == 0 else ()) for n in range(8)]
OFFER = WorkerOffer(threads_max=THREADS)
TYPED_OFFER = WorkerOffer(threads_max=THREADS, any_type_threads=10)


def busy(tenants: int, workers: int, kinds: list[Kind] = PLAIN, offer: WorkerOffer = OFFER) -> Load:
    load = Load(tenants, workers, kinds, offer)
    load.enqueue(load.demands(max(20 * tenants, BATCH) + workers * THREADS))
    load.dispatch()
    return load


def typed(tenants: int, workers: int) -> Load:
    load = busy(tenants, workers, TYPED, TYPED_OFFER)
    load.scheduler.set_limit("db", "", "", workers * THREADS // 4)
    return load


def idle(tenants: int, workers: int) -> Load:
    load = Load(tenants, workers, PLAIN, OFFER)
    load.enqueue(load.demands(BATCH))
    load.dispatch()
    return load


def capped() -> Load:
    load = Load(100, 20, PLAIN, OFFER)
    load.scheduler.set_tenant("capped", TenantPolicy(running_max=10))
    for task_id in range(1, MILLION + 1):
        load.scheduler.enqueue(Demand(task_id, "capped", "mail", 1, 0, ()))
    load.next_id = MILLION + 1
    load.enqueue(load.demands(2_000 + 20 * THREADS))
    load.dispatch()
    return load


def long_jobs(tenants: int, workers: int) -> Load:
    load = Load(tenants, workers, PLAIN, OFFER)
    load.enqueue(load.demands(tenants))
    load.dispatch()
    load.running.clear()
    load.enqueue(load.demands(20 * tenants))
    load.dispatch()
    return load


def waiting_bytes() -> float:
    load = Load(100, 1, PLAIN, WorkerOffer(threads_max=1))
    count = 200_000
    tracemalloc.start()
    for start in range(0, count, BATCH):
        load.enqueue(load.demands(min(BATCH, count - start)))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / count


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    loads: dict[str, Callable[[], Load]] = {
        **{
            f"dispatch_{tenants}t_{workers}w_us": lambda t=tenants, w=workers: busy(t, w)
            for tenants in (1, 100, 10_000)
            for workers in (20, 1_000)
        },
        "dispatch_idle_100t_20w_us": lambda: idle(100, 20),
        "dispatch_idle_100t_1000w_us": lambda: idle(100, 1_000),
        "dispatch_classes_100t_20w_us": lambda: typed(100, 20),
        "dispatch_classes_100t_1000w_us": lambda: typed(100, 1_000),
        "dispatch_capped_1m_us": capped,
        "dispatch_long_jobs_1000t_50w_us": lambda: long_jobs(1_000, 50),
    }
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    for name, build in loads.items():
        if only not in name:
            continue
        say(name)
        load = build()
        print_figure(name, [load.cycles(count) for _ in range(ROUNDS)], "us")
        del load
        gc.collect()
    if only in "waiting_bytes":
        print_figure("waiting_bytes", [waiting_bytes()], "B")


if __name__ == "__main__":
    main()
