"""Context that the parts of one replica share: its state, its place in the log, its ports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ledger.client.client import LedgerClient
from rsm_spark.core.chain import Leadership
from rsm_spark.core.commands import Answer
from rsm_spark.core.evolution import level_needed
from rsm_spark.core.machine import StateMachine, evolving
from rsm_spark.core.position import NO_REVISION, LogPosition
from rsm_spark.core.records import FORMAT_LEVEL
from rsm_spark.core.state import ReplicatedState, StateTip
from rsm_spark.core.trimming import TrimPlan
from rsm_spark.errors import CorruptLogError, ForkedLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogEntry, LogReader, quarantine_hint, shown_place
from rsm_spark.log.discovery import Discovery
from rsm_spark.runtime.memory import MemoryGauge
from rsm_spark.runtime.memory_watch import MemoryWatch
from rsm_spark.runtime.peers import Peers
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.snapshots.manifest import SnapshotStore

_LOGGER = logging.getLogger(__name__)
ROOM_ALARM = "room"
"""Alarm of a replica whose disk has no room for its state; it ends with the next entry that is kept."""


class ReplicaContext:
    """Shared by the follower, the leader and the replica around them; only one of the two first is at work.

    Attributes:
        state: Live: on a leader with a batch in flight ahead of `tip`, else at `tip`.
        tip: Confirmed.
        position: Last confirmed entry applied, or None.
        digest: State digest at `tip`, as far as `state_is_confirmed` or a leader has settled it.
        state_is_confirmed: The state shows nothing that is not confirmed.
        has_state: False until there is a whole state, and while another one takes its place.
        known_revision: Highest revision that a follower has heard of, applied or not.
        leader: Who claimed the log last, as far as known.
        leader_address: Its address, as far as known.
        leader_framed: That of its framed port, as far as known; "" = none.
        leader_http: That of its HTTP API, as far as known; None or "" = none.
        leader_http_is_tls: Whether that is encrypted; None = its entry does not say.
        role: Of the replica; change by `set_role`.
        phase: Of the take-over protocol.
        log_bytes: Payload bytes applied since the process began: paces snapshots.
        format_level: Highest format of the log that this process reads and writes.
        level_needed: Lowest format that a log of the machine's description must have; a machine may name a higher one.
        password_mark: Of the ledger password, once it is known of which log; see `rsm_spark.core.admission`.
        trim: What this leader found last of what may be trimmed; None before, and on a follower.
        alarms: What an operator has to look at, by name.
        declined_at: Loop time when this replica last left the log to others because of its clock; None = never.
        reads_by_check: Linearizable reads that this leader answered without an entry, once bookies were asked.
        reads_by_lease: Those that it answered without a message.
        reads_by_entry: Reads that it answered with one.
        reads_by_index: Linearizable reads that this replica answered as a follower.
        entries_told: Entries that this replica applied as a follower by the leader's word.
        entries_read: Entries that it applied as a follower out of the ledger.
        lapsed_consumers: Consumers from under which this leader trimmed what they had not read; each time counts.
        machine_failures: Requests on which the machine raised an error: bugs of its code.
        memory: What this process uses, and may use.
        peers: The other replicas; None = not asked.
        quarantine: Where the state is written aside as evidence if it turns out wrong; None = nowhere.
        batch_ended: Called when the live state is confirmed, after each entry.
        before_entry: Called with each committed entry before it is applied: the state is then that of `tip`. An entry
            that begins with a checkpoint (`peek_checkpoint`) says what that state is.
        want_checkpoint: On a leader the next entry begins with a checkpoint of the present revision; else nothing.

    """

    def __init__(
        self,
        machine: StateMachine,
        *,
        log: str,
        me: Leadership,
        client: LedgerClient,
        snapshots: SnapshotStore,
        lake: SnapshotStore | None,
        settings: ReplicaSettings,
        clock_ms: Callable[[], int],
        rng: random.Random,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self.machine = machine
        self.log = log
        self.me = me
        self.client = client
        self.snapshots = snapshots
        self.lake = lake
        self.settings = settings
        self.clock_ms = clock_ms
        self.rng = rng
        self.run_blocking = run_blocking
        self.chains = ChainStore(client.store, log, settings.rsm_root)
        self.discovery = Discovery(client.store, log, settings.rsm_root)
        self.log_id = ""
        self.state = ReplicatedState(machine, bytes(16))
        self.tip = self.state.tip
        self.position: LogPosition | None = None
        self.digest = 0
        self.state_is_confirmed = True
        self.has_state = False
        self.known_revision = NO_REVISION
        self.leader: Leadership | None = None
        self.leader_address: str | None = None
        self.leader_framed = ""
        self.leader_http: str | None = None
        self.leader_http_is_tls: bool | None = None
        self.role = ReplicaRole.FOLLOWER
        self.phase = "follow"
        self.log_bytes = 0
        self.format_level = FORMAT_LEVEL
        self.level_needed = max(level_needed(machine.description), getattr(machine, "level_needed", 1))
        self.password_mark = ""
        self.trim: TrimPlan | None = None
        self.alarms: dict[str, str] = {}
        self.declined_at: float | None = None
        self.machine_failures = 0
        self.reads_by_check = 0
        self.reads_by_lease = 0
        self.reads_by_entry = 0
        self.reads_by_index = 0
        self.entries_told = 0
        self.entries_read = 0
        self.lapsed_consumers = 0
        self.memory = MemoryWatch(MemoryGauge(settings.memory_limit_mib), self.alarms, run_blocking)
        self.peers: Peers | None = None
        self.quarantine: SnapshotStore | None = None
        self.role_listeners: list[Callable[[ReplicaRole], None]] = []
        self.applied_listeners: list[Callable[[int], None]] = []
        self.payload_listeners: list[Callable[[bytes], None]] = []
        self.batch_ended: Callable[[], None] = ignore
        self.before_entry: Callable[[LogEntry], None] = ignore
        self.want_checkpoint: Callable[[], None] = ignore
        self.protect_snapshots: Callable[[], None] = ignore

    @property
    def log_extra(self) -> dict[str, object]:
        """Fields that every line of this replica's log carries."""
        return {"log": self.log, "replica": self.me.replica_id, "revision": self.tip.revision}

    @property
    def outdated(self) -> str:
        """Return why this process must not lead: a newer version of the machine has described the log; "" = it may."""
        logged, own = self.state.description, self.machine.description
        if logged is None or logged.version <= own.version or evolving(self.machine) is None:
            return ""
        return (
            f"log {self.log} is of version {logged.version} of machine {own.name!r}, this replica runs version "
            f"{own.version}: it follows, and does not lead. Start it with the newer version"
        )

    def adopt(self, state: ReplicatedState, position: LogPosition | None) -> None:
        """Take a state that was just booted, confirmed by its nature."""
        self.state = state
        self.tip = state.tip
        self.position = position
        state.keep(position)
        self.digest = state.digest
        self.state_is_confirmed = True
        self.has_state = True

    def apply(self, entry: LogEntry) -> None:
        """Apply a committed entry.

        Raises:
            CorruptLogError, ForkedLogError, StateDivergedError: The replica must stop.

        """
        assert self.state_is_confirmed
        self.before_entry(entry)
        try:
            self.state.apply_entry(entry.payload, entry.prefix_hash)
        except (CorruptLogError, ForkedLogError) as error:
            said = f"log {self.log}: {shown_place(entry.position)}: {error}"
            raise type(error)(f"{said}. {quarantine_hint(self.log, entry.position)}") from error
        self.tip = self.state.tip
        self.position = entry.position
        self.state.keep(entry.position)
        self.log_bytes += len(entry.payload)
        self._keep(entry.payload)
        self.entry_applied()

    def confirm(self, tip: StateTip, position: LogPosition, payload: bytes) -> None:
        """Note that the leader's batch is confirmed, so that the live state is."""
        assert self.state.revision == tip.revision
        self.tip, self.position = tip, position
        self.state.keep(position)
        self.digest = self.state.digest
        self.state_is_confirmed = True
        self.log_bytes += len(payload)
        self._keep(payload)
        self.entry_applied()

    def _keep(self, payload: bytes) -> None:
        """Hand a confirmed entry to those who want its records."""
        for keep in self.payload_listeners:
            keep(payload)

    def entry_applied(self) -> None:
        """Tell those who wait for revisions, and whoever takes snapshots."""
        if ROOM_ALARM in self.alarms:
            del self.alarms[ROOM_ALARM]  # An entry was kept.
        for listener in self.applied_listeners:
            listener(self.tip.revision)
        self.batch_ended()
        self.memory.look()

    def machine_failed(self, failures: list[Exception]) -> None:
        """Tell of errors that the machine raised where it must not; the requests were refused."""
        self.machine_failures += len(failures)
        for error in failures:
            _LOGGER.error("the machine failed on a request, which is refused", exc_info=error, extra=self.log_extra)
        failures.clear()

    def set_role(self, role: ReplicaRole, phase: str) -> None:
        """Change the role; tell the listeners if it is another one."""
        self.phase = phase
        if role is self.role:
            return
        self.role = role
        _LOGGER.info("role changed to %s", role.value, extra=self.log_extra)
        for listener in list(self.role_listeners):
            listener(role)

    def reader(self) -> LogReader:
        """Return a reader that goes on where this state is."""
        return LogReader(
            self.client,
            self.chains,
            password=self.settings.ledger_password,
            keys=self.settings.log_keys,
            position=self.position,
            revision=self.tip.revision,
            poll_s=self.settings.poll_s,
            entries_max=self.settings.tail_entries_max,
        )


def ignore(*_: object) -> None:
    """Stand where nobody listens."""


def subscribe(listeners: list[Callable[[Any], None]], listener: Callable[[Any], None]) -> Callable[[], None]:
    """Add a listener; return what takes it away again."""
    listeners.append(listener)

    def _unsubscribe() -> None:
        with contextlib.suppress(ValueError):
            listeners.remove(listener)

    return _unsubscribe


def resolve(ticket: asyncio.Future[Sequence[Answer]], answers: Sequence[Answer]) -> None:
    """Answer a submission, unless its client has gone."""
    if not ticket.done():
        ticket.set_result(answers)
