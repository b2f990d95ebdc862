"""One seed's world: brokers, workers, clients, the log between them, and what goes wrong."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from broker.machine.machine import BrokerMachine
from broker.machine.policies import WorkerOffer
from broker.machine.rules import BrokerRules
from tests.broker_sim.auditor import Auditor
from tests.broker_sim.faults import BrokerFaults, BrokerNemesis
from tests.broker_sim.sim_broker import SimBroker, SimRole
from tests.broker_sim.sim_client import SimClient
from tests.broker_sim.sim_log import SimLog
from tests.broker_sim.sim_stream import NetworkRates, SimStream
from tests.broker_sim.sim_worker import RunRates, SimWorker
from tests.broker_sim.virtual_time import VirtualTime
from tests.broker_sim.witness import Witness
from tests.broker_sim.workload import TENANTS, Workload

__all__ = ["BrokerWorld"]

_STORY_LINES = 60
_ELECTION_MS = 200
_BEGIN_MS = 1_700_000_000_000


class BrokerWorld:
    """See the module.

    Args:
        seed: Decides everything.
        faults: Rates that are not as drawn; None = nothing fails at all.
        work: Of the workload, likewise.
        network: Of the network, likewise.

    Attributes:
        time: Virtual.
        log: Of the brokers.
        witness: Of what really happens.
        auditor: Of the log.
        story: The last events.
        is_calm: Nothing fails any more, runs end well and soon, clients begin nothing more.

    """

    def __init__(
        self, seed: int, faults: Mapping[str, Any] | None, work: Mapping[str, Any], network: Mapping[str, Any]
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.time = VirtualTime(random.Random(rng.random()))
        self.begin_ms = _BEGIN_MS
        self.story: deque[str] = deque(maxlen=_STORY_LINES)
        self.is_calm = False
        self.witness = Witness()
        self.auditor = self.witness.auditor = Auditor(self.witness)
        self.witness.on_validate = _validate
        self.log = SimLog(self.time, random.Random(rng.random()), rng.randbytes(16))
        self.log.listeners.append(self._on_entry)
        drawn = BrokerFaults.draw(rng)
        self.faults = BrokerFaults() if faults is None else msgspec.structs.replace(drawn, **faults)
        self.network = NetworkRates(rng)
        for name, rate in network.items():
            setattr(self.network, name, rate)
        self.runs = RunRates.draw(rng)
        if faults is None:
            self.log.rates.calm()
            self.network.calm()
        self.lease_s = rng.choice((4.0, 10.0))
        self.ping_s = 1.0
        self.witness.lease_ms = int(self.lease_s * 1000)
        self.witness.is_alive = self._is_alive
        self.rules = BrokerRules(
            retention_ms=rng.choice((2_000, 15_000, 3_600_000)),
            dead_retention_ms=rng.choice((15_000, 3_600_000)),
            request_retention_ms=rng.choice((90_000, 3_600_000)),
            timeout_grace_ms=500,
        )
        # In every third world or so, all payloads leave at the end of their tasks.
        if self.rules.retention_ms == 15_000:
            self.rules = msgspec.structs.replace(self.rules, payload_kept_bytes=0)
        self.work = msgspec.structs.replace(Workload.draw(rng), **work)
        self.witness.tenant_bytes_max = self.work.tenant_bytes_max
        self.rules = msgspec.structs.replace(self.rules, tenant_bytes_max=self.work.tenant_bytes_max)
        self.brokers = [SimBroker(self, f"broker-{number}") for number in range(rng.choice((2, 3)))]
        self.workers = [
            SimWorker(self, f"worker-{number}", self.draw_offer(), is_killable=rng.random() < 0.6)
            for number in range(rng.choice((2, 3, 5)))
        ]
        if self.work.bound_workers:
            for worker in self.workers:
                if rng.random() < self.work.bound_workers:
                    worker.tenants = tuple(rng.sample(TENANTS, rng.choice((1, 2))))
        self.clients = [SimClient(self, f"c{number}") for number in range(3)]
        self.nemesis = BrokerNemesis(self, random.Random(rng.random()))
        self._vacant_ms = 0

    def begin(self) -> None:
        """Start everybody."""
        for process in (*self.brokers, *self.workers, *self.clients):
            process.start()
        self._elect()
        self.nemesis.begin()

    def tell(self, what: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.time.now_ms / 1000:8.3f} {what}")
        self.time.note(what.encode())

    def _on_entry(self, payload: bytes) -> None:
        self.time.note(payload)
        self.auditor.take(payload)
        for broker in self.brokers:
            broker.after(self.rng.uniform(0, 200), broker.catch_up)

    # ---- who leads

    @property
    def leader(self) -> SimBroker | None:
        """Return who leads by the highest epoch, if it is up."""
        for broker in self.brokers:
            if broker.is_up and broker.role is not SimRole.FOLLOWER and broker.epoch == self.log.epoch:
                return broker
        return None

    def leader_address(self, asker: SimBroker) -> str:
        """Return what a broker knows of who else leads."""
        leader = self.leader
        return leader.name if leader is not None and leader is not asker else ""

    def _elect(self) -> None:
        """Have somebody claim the log when nobody has been seen leading for a while."""
        leader = self.leader
        if leader is not None and not leader.is_paused:
            self._vacant_ms = 0
        else:
            self._vacant_ms += _ELECTION_MS
        able = [one for one in self.brokers if one.is_up and not one.is_paused and one.role is SimRole.FOLLOWER]
        if able and (self._vacant_ms >= 1_500 or self.log.epoch == 0):
            self._vacant_ms = 0
            self.rng.choice(able).lead()
        self.time.after(_ELECTION_MS, self._elect)

    # ---- parts

    def _is_alive(self, worker_id: str, incarnation: str) -> bool:
        worker = next(one for one in self.workers if one.name == worker_id)
        return worker.is_up and worker.protocol.incarnation == incarnation and not worker.protocol.has_left

    def broker(self, address: str) -> SimBroker:
        """Return the broker at an address."""
        return next(broker for broker in self.brokers if broker.name == address)

    def make_machine(self) -> BrokerMachine:
        """Return a machine for a process that starts."""
        return BrokerMachine(self.rules)

    def open_stream(self, worker: SimWorker, broker: SimBroker, stream_id: int) -> SimStream:
        """Open a stream."""
        return SimStream(random.Random(self.rng.random()), self.network, worker, broker, stream_id)

    def start_again(self, process: SimBroker | SimWorker) -> None:
        """Start a process again, after a while."""
        life = process.life

        def _start() -> None:
            if not process.is_up and process.life == life:
                process.start()

        self.time.after(self.rng.uniform(100, 4_000), _start)

    def draw_offer(self) -> WorkerOffer:
        """Draw what a worker offers."""
        rng = self.rng
        threads = rng.choice((1, 3, 8))
        return WorkerOffer(
            threads_max=threads,
            threads_by_type=rng.choice(({}, {"mail": 1, "call": 2})),
            any_type_threads=rng.choice((None, 2)),
            groups=rng.choice(((0,), (0,), (2, 1), (1, 0))),
            excluded_groups=rng.choice(((), (3,))),
            resources=rng.choice(({}, {"gpu": 1}, {"db": 2})),
            tenant_share_percent=rng.choice((0, 0, 50)),
        )

    # ---- calm

    def calm(self) -> None:
        """Let nothing fail any more."""
        self.tell("calm")
        self.is_calm = True
        self.nemesis.end()
        self.log.rates.calm()
        self.network.calm()
        self.faults = BrokerFaults()
        self.runs = RunRates(200, 0.0, 0.0, 1.0)
        everything = WorkerOffer(threads_max=20, resources={})
        for worker in self.workers:
            worker.change_offer(everything)
            if worker.tenants is not None:
                worker.unbind()

    @property
    def is_settled(self) -> bool:
        """Whether everything has come to its end."""
        return (
            all(client.is_done for client in self.clients)
            and not self.auditor.unfinished
            and 1 not in self.auditor.transactions.values()
            and all(broker.is_up and broker.applied == len(self.log.entries) for broker in self.brokers)
            and all(worker.is_up and worker.protocol.unacknowledged_count == 0 for worker in self.workers)
        )


def _validate(state: Any) -> None:
    state.machine.validate()
    state.validate()
