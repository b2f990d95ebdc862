"""A real broker with real workers, whose tasks end in every way and are purged; and what its API told meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from broker.client import BrokerClient, NewTask
from broker.client.errors import BrokerClientError, SlotTakenError
from broker.client.shapes import Event
from broker.client.task import Task
from broker.machine.policies import RetryPolicy, TenantPolicy
from ledger.dev import DevCluster
from tests.integration.broker_processes import brokers
from tests.integration.worker_processes import TASKS, started

__all__ = ["Told", "played"]

_WAIT_S = 120.0
_RETRY = RetryPolicy(backoff_ms=100)


class Told:
    """What the API told.

    Attributes:
        log: Name of the broker's log.
        tasks: Every task as it was last shown.
        events: Of the log, in order.
        killed: Name of the worker that was killed.

    """

    killed = "w2"

    def __init__(self, log: str) -> None:
        self.log = log
        self.tasks: dict[int, Task] = {}
        self.events: list[Event] = []


class _Watcher:
    """Looks at all tasks, and hears of all events, while the rest goes on."""

    def __init__(self, url: str, told: Told) -> None:
        self._url, self._told = url, told
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._look, self._listen)]
        for thread in self._threads:
            thread.start()

    def _look(self) -> None:
        with BrokerClient.connect([self._url], tenant="acme") as client:
            while not self._stop.wait(0.05):
                for task in client.tasks():
                    self._told.tasks[task.task_id] = task

    def _listen(self) -> None:
        with BrokerClient.connect([self._url], tenant="acme") as client:
            for event in client.events(1):
                self._told.events.append(event)
                if self._stop.is_set():
                    return

    def stop(self, client: BrokerClient) -> None:
        """Stop once the end of a task of type noop has been heard of, which is the last that happens."""
        last = client.submit("noop")
        client.wait(last, timeout_s=_WAIT_S)
        until(
            lambda: any(event.name == "task_ended" and event.fields["task_id"] == last for event in self._told.events)
        )
        until(lambda: (task := self._told.tasks.get(last)) is not None and task.has_ended)
        self._stop.set()
        client.submit("noop")  # wakes the listener
        for thread in self._threads:
            thread.join(_WAIT_S)


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def played(cluster: DevCluster, log: str, folder: Path, on_ready: Callable[[], None]) -> Told:
    """Have everything happen; return what was told. The broker has ended then, and its log grows no more."""
    options = ("--log", log, "--metadata-uri", cluster.metadata_uri, "--bookies", "3/3/2", "--http-port", "0")
    kept = ("--task-retention-s", "3", "--dead-retention-s", "6", "--worker-lease-s", "2", "--worker-ping-s", "0.5")
    told = Told(log)
    with brokers(folder, "a", options=(*options, *kept)) as (broker,):
        workers = ("--metadata-uri", cluster.metadata_uri, "--log", log, "--tasks", TASKS)
        with BrokerClient.connect([broker.url], tenant="acme") as client:
            watcher = _Watcher(broker.url, told)
            on_ready()
            client.set_tenant("acme", TenantPolicy(weight=2, priority=7, group=3))
            _lose_a_worker(client, folder, workers)
            with started(folder, "w1", *workers, "--threads", "4") as worker:
                _end_in_all_ways(client, folder)
                until(lambda: not list(client.tasks()))  # purged
                watcher.stop(client)
                worker.terminate()
        broker.process.terminate()
        broker.process.wait(_WAIT_S)
    return told


def _lose_a_worker(client: BrokerClient, folder: Path, workers: tuple[str, ...]) -> None:
    """Have tasks run on a worker that is killed; they go on elsewhere, or never again."""
    with started(folder, Told.killed, *workers, "--threads", "2") as worker:
        runs = [
            client.submit("wait", str(folder / "again"), heartbeat_s=60),
            client.submit("wait", str(folder / "once"), at_most_once=True),
        ]
        until(lambda: all(client.get(task_id).status == "running" for task_id in runs))
        until((folder / "again").exists)
        until((folder / "once").exists)
        worker.kill()
    (folder / "again.go").touch()
    until(lambda: client.get(runs[1]).outcome == "outcome_unknown")


def _end_in_all_ways(client: BrokerClient, folder: Path) -> None:
    file, nowhere = str(folder / "file"), str(folder / "nowhere" / "file")
    client.submit_many([NewTask("note", file) for _ in range(20)])
    client.submit("note", file, delay_s=0.5, priority=1)
    dead = client.submit("note", nowhere, max_attempts=2, retry=_RETRY)
    hanging = client.submit("wait", str(folder / "hanging"))
    client.submit("wait", str(folder / "slow"), timeout_s=0.5, max_attempts=1)
    client.cancel(client.submit("nobody runs this"))
    client.submit("nobody runs this", ttl_s=0.3)
    held = client.submit("note", file, slot="s", delay_s=0.3)
    with contextlib.suppress(SlotTakenError):
        client.submit("note", file, slot="s")
    with client.transaction() as transaction:
        transaction.submit("note", file)
        transaction.submit("note", file, delay_s=0.2)
    with contextlib.suppress(ZeroDivisionError), client.transaction() as transaction:
        transaction.submit("note", file)
        raise ZeroDivisionError
    until((folder / "hanging").exists)
    client.cancel(hanging)
    client.wait(held, timeout_s=_WAIT_S)
    client.submit("note", file, slot="s")
    client.wait(dead, timeout_s=_WAIT_S)
    with contextlib.suppress(BrokerClientError):  # it may be purged already, on a slow machine
        client.replay_dead(dead)
