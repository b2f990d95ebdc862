"""One replica of a state machine: leads or follows its log, in one process, changing roles as the chain demands."""

# Longer than 400 lines: one object holds the life of a replica and its public face.

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError
from ledger.ports import SessionState
from rsm_spark.core.beats import BeatAnswer
from rsm_spark.core.chain import Leadership
from rsm_spark.core.commands import Answer, AnswerStatus, ReadIndex, Report, Request
from rsm_spark.core.confirmed_tail import TailStatus, ToldEntries
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.core.leadership_ends import SAID_CHARS_MAX, ElectionFinding, EndedLeadership, LeaderEnd
from rsm_spark.core.machine import StateMachine
from rsm_spark.core.position import LogPosition
from rsm_spark.core.submissions import RequestQueue
from rsm_spark.errors import MissingLogError, NoRoomError, StateDivergedError
from rsm_spark.log.discovery import MemberKeeper
from rsm_spark.log.election import Election
from rsm_spark.log.ended_leaderships import note_end
from rsm_spark.log.liveness_probe import LivenessProbe
from rsm_spark.log.member import Member
from rsm_spark.runtime.beating import BeatListener, BeatPeers, until_any
from rsm_spark.runtime.boot import boot, first_boot
from rsm_spark.runtime.context import ROOM_ALARM, ReplicaContext, ignore, subscribe
from rsm_spark.runtime.describing import describe_replica
from rsm_spark.runtime.divergence import keep_evidence, tell_leader
from rsm_spark.runtime.following import Follower
from rsm_spark.runtime.key_rotation import advertise_keys
from rsm_spark.runtime.leader_tail import TailPeers
from rsm_spark.runtime.leading import LeaderDriver
from rsm_spark.runtime.log_maintenance import LogMaintenance
from rsm_spark.runtime.memory_sharing import share_memory_marks
from rsm_spark.runtime.peers import LogIndex, Peers
from rsm_spark.runtime.relaying import LeaderPlace, RelayRoom
from rsm_spark.runtime.serving import Serving
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.snapshot_service import SnapshotService
from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus
from rsm_spark.snapshots.manifest import SnapshotManifest, SnapshotStore

_LOGGER = logging.getLogger(__name__)
_LEAVE_S_MAX = 3.0
_NOTE_S_MAX = 1.0
"""Time that a leader takes to note why it has ended."""
_ROOM_S = 2.0
"""Pause of a replica whose disk is full: longer than others take to elect one that has room."""
_FOLLOWERS = "followers"
"""Owner of questions how far the log is, when requests take turns."""


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


async def _then(end: LeaderEnd, ending: Coroutine[Any, Any, None]) -> LeaderEnd:
    """Return how a process ended, when it has."""
    await ending
    return end


class Replica:
    """A replica. Everything happens on the event loop that called `start`.

    Args:
        machine: The state, empty; the replica alone calls it from now on.
        log: Name of the log.
        replica_id: Stable name of this replica within the log.
        client: Connected ledger client; stays the caller's to close.
        snapshots: Local snapshots.
        lake: Snapshots to boot from when there is no local one.
        quarantine: Where the state is kept as evidence if it differs from the log's; never booted from.
        peers: The other replicas: their snapshots are booted from and verified.
        beats: The same for their beats; None = only the sessions of others tell whether they live.
        tails: The same for the leader's confirmed entries; None = bookies alone are read.
        advertised: Address that clients should use ("host:port").
        settings: See `ReplicaSettings`.
        clock_ms: Wall clock.
        rng: Entropy for ids and for the spread of retries.
        run_blocking: Runs a blocking function elsewhere (snapshots); default `asyncio.to_thread`.

    Attributes:
        memory: How much this process uses, and may use.
        http: "host:port" of the HTTP API beside it, told to others; "" = none. Set it before `start`.
        etcd: "host:port" that etcd's clients use, told to others; "" = none. Set it before `start`.
        is_tls: Whether the advertised address is encrypted, told to others; None = not said. Set it before `start`.
        http_is_tls: The same of `http`.
        framed: "host:port" of its framed port, told to others; "" = none. Set it before `start`.
        relays: Streams that it passes on to the leader.

    """

    def __init__(
        self,
        machine: StateMachine,
        *,
        log: str,
        replica_id: str,
        client: LedgerClient,
        snapshots: SnapshotStore,
        lake: SnapshotStore | None = None,
        quarantine: SnapshotStore | None = None,
        peers: Peers | None = None,
        beats: BeatPeers | None = None,
        tails: TailPeers | None = None,
        advertised: str = "",
        settings: ReplicaSettings | None = None,
        clock_ms: Callable[[], int] = _wall_clock_ms,
        rng: random.Random | None = None,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        rng = rng or random.Random(os.urandom(16))  # noqa: S311  # ids and pauses, no secrets
        self._context = ReplicaContext(
            machine,
            log=log,
            me=Leadership(replica_id, rng.randbytes(16).hex()),
            client=client,
            snapshots=snapshots,
            lake=lake,
            settings=settings or ReplicaSettings(),
            clock_ms=clock_ms,
            rng=rng,
            run_blocking=run_blocking,
        )
        self._context.quarantine = quarantine
        self.memory = self._context.memory
        self._advertised = advertised
        self.http = ""
        self.etcd = ""
        self.is_tls: bool | None = None
        self.http_is_tls: bool | None = None
        self.framed = ""
        self.relays = RelayRoom()
        self._queue = RequestQueue()
        self._serving = Serving(self._context, self._queue)
        self._driver: LeaderDriver | None = None
        self._context.peers = peers
        is_listening = beats is not None and self._context.settings.beat_silence_s > 0
        self._listener = BeatListener(self._context, beats) if is_listening and beats is not None else None
        self._tails = tails if self._context.settings.told_entries else None
        self._care = SnapshotService(self._context, self.report)
        self._main: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._advertising: list[asyncio.Task[None]] = []
        self._election: Election | None = None
        self._finding: ElectionFinding | None = None  # What became of the one before in the election.
        # Its last leadership, if that ended by its own will; and whether it is not noted yet.
        self._ended: EndedLeadership | None = None
        self._is_end_untold = False
        self._keeper: MemberKeeper | None = None
        self._stopping = False

    # ---- what it is

    @property
    def role(self) -> ReplicaRole:
        return self._context.role

    @property
    def leader_epoch(self) -> int:
        """Own epoch on a leader, else that of the last entry applied."""
        return self._driver.protocol.epoch if self._driver is not None else self._context.tip.leader_epoch

    @property
    def revision(self) -> int:
        """Last revision applied and confirmed."""
        return self._context.tip.revision

    @property
    def has_state(self) -> bool:
        """True if there is a whole state; not while one is booted."""
        return self._context.has_state

    @property
    def logged_ms(self) -> int:
        """Logged time of the last entry applied and confirmed."""
        return self._context.tip.logged_ms

    @property
    def position(self) -> LogPosition | None:
        """Last confirmed entry applied, or None."""
        return self._context.position

    @property
    def prefix_hash(self) -> bytes:
        """Hash of the log up to `position`."""
        return self._context.tip.prefix_hash

    @property
    def digest(self) -> int:
        """Digest of the state at `revision`."""
        context = self._context
        return context.state.digest if context.state_is_confirmed else context.digest

    @property
    def level_needed(self) -> int:
        """Format level that a new log has at least, because of the machine."""
        return self._context.level_needed

    @property
    def leader(self) -> Leadership | None:
        """Replica that claimed the log last, as far as known."""
        return self._context.leader

    @property
    def leader_address(self) -> str | None:
        """Advertised address of the leader, as far as known."""
        return self._advertised if self.role is ReplicaRole.LEADER else self._context.leader_address

    @property
    def leader_place(self) -> LeaderPlace | None:
        """Addresses of another replica that leads, as far as known; None = this one leads, or nobody is known to."""
        context = self._context
        if self.role is ReplicaRole.LEADER or not context.leader_address:
            return None
        if context.leader is not None and context.leader.incarnation == self.incarnation:
            return None
        return LeaderPlace(context.leader_address, context.leader_framed)

    @property
    def leader_http(self) -> str | None:
        """Advertised address of the leader's HTTP API; None if it has none, or is not known."""
        return (self.http if self.role is ReplicaRole.LEADER else self._context.leader_http) or None

    @property
    def leader_http_is_tls(self) -> bool | None:
        """True if `leader_http` is encrypted, by its leader's own word; None = it has not said."""
        return self.http_is_tls if self.role is ReplicaRole.LEADER else self._context.leader_http_is_tls

    @property
    def upkeep(self) -> LogMaintenance | None:
        """Maintenance that trims the log and raises its format; None unless this replica leads."""
        return self._driver.upkeep if self._driver is not None and self.role is ReplicaRole.LEADER else None

    @property
    def incarnation(self) -> str:
        """Id of this process as a replica, 32 hex digits."""
        return self._context.me.incarnation

    # ---- life

    async def start(self) -> None:
        """Boot from a snapshot and the log, then follow, and lead when elected.

        Returns when the state is loaded and the replica follows; catching up and elections go on behind.

        Raises:
            MissingLogError: No snapshot reaches what is left of the log.
            ForkedLogError: The local snapshots are of another log than the one that has this name now.
            CorruptLogError: The log or the state is not what it must be.
            MetadataError: The metadata store cannot be asked.

        """
        assert self._main is None, "a replica starts once"
        context, settings = self._context, self._context.settings
        store = context.client.store
        self._care.begin(await first_boot(context))
        name, level = context.me, context.format_level
        key_ids = () if settings.log_keys is None else settings.log_keys.ids
        me = Member(
            name.replica_id, name.incarnation, self._advertised, level, settings.domain, self.http, key_ids,
            self.is_tls, self.http_is_tls, machine_version=context.machine.description.version,
            framed=self.framed,
            etcd=self.etcd,
            machine=context.machine.description.name,
        )  # fmt: skip
        root, poll_s = settings.rsm_root, settings.poll_s
        self._election = Election(
            store, context.log, me.incarnation, rsm_root=root, poll_s=poll_s, until_dead=self._until_dead
        )
        self._keeper = MemberKeeper(store, context.log, me, rsm_root=root, poll_s=poll_s)
        loop = asyncio.get_running_loop()
        self._keeping = loop.create_task(self._keeper.run())
        self._advertising = [
            loop.create_task(advertise(context, self._keeper)) for advertise in (advertise_keys, share_memory_marks)
        ]
        if self._listener is not None:
            self._advertising.append(loop.create_task(self._listener.run()))
        self._main = loop.create_task(self._run())

    async def _until_dead(self, incarnation: str) -> LeaderEnd:
        """Return when a process is gone from its host, or is silent and the others agree; which of both."""
        probe = LivenessProbe(self._context.discovery, self._context.settings.poll_s)
        waits = [_then(LeaderEnd.PROCESS_GONE, probe.until_dead(incarnation))]
        if self._listener is not None:
            waits.append(_then(LeaderEnd.SILENT, self._listener.until_silent(incarnation)))
        return await until_any(*waits)

    def hears(self, incarnation: str) -> BeatAnswer:
        """Return what is heard of another process of this log, for a replica that asks."""
        return BeatAnswer.UNKNOWN if self._listener is None else self._listener.answer(incarnation)

    async def stop(self) -> None:
        """Leave in an orderly way: pending requests are answered, the election node goes at once."""
        self._stopping = True
        self._serving.stop()
        if self._main is None:
            return
        if self._driver is not None:
            await self._driver.finish(_LEAVE_S_MAX)
        if self._driver is not None:
            self._driver.resign("the replica stops")
        else:
            self._main.cancel()
        await asyncio.wait([self._main])
        await self._leave()
        await self._care.finish()
        if self._tails is not None:
            await self._tails.close()

    async def _leave(self) -> None:
        """Take the own nodes away, so that others need not wait for the session's end; best effort."""
        assert self._keeping is not None
        assert self._election is not None
        assert self._keeper is not None
        self._care.cease()
        ending = [self._keeping, *self._advertising]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S_MAX):
                await self._resign()
                await self._keeper.remove()

    async def _resign(self) -> None:
        """Give the place in the election away; then note why, if that is worth a note and can be written now."""
        assert self._election is not None
        await self._election.resign()
        context = self._context
        if self._is_end_untold and self._ended is not None:
            self._is_end_untold = False
            if context.client.store.session_state is SessionState.CONNECTED:
                with contextlib.suppress(LedgerError, TimeoutError):
                    async with asyncio.timeout(_NOTE_S_MAX):
                        await note_end(context.client.store, context.log, self._ended, context.settings.rsm_root)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def wait_stopped(self) -> None:
        """Wait until the replica has stopped.

        Raises:
            RsmError: It stopped by itself: a corrupt log, a state that differs from the leader's.

        """
        assert self._main is not None, "start the replica first"
        await asyncio.wait([self._main])
        if not self._main.cancelled():
            self._main.result()

    async def snapshot(self) -> SnapshotManifest | None:
        """Take a local snapshot now; None if a batch is on its way or nothing has been applied yet.

        Raises:
            SnapshotError: It could not be written.

        """
        return await self._care.snapshotter.take()

    def want_checkpoint(self) -> None:
        """Log a state digest with the next batch; a follower passes it over."""
        self._context.want_checkpoint()

    # ---- requests

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness = LINEARIZABLE, owner: str = ""
    ) -> asyncio.Future[Sequence[Answer]]:
        """Take requests and return one future of their answers, in order. Never raises for what a replica may be.

        Args:
            requests: Decided in this order, those of one session above all.
            owner: Who takes turns with others that wait; "" = this process itself.
            freshness: Of the queries. Anything but linearizable a follower answers too, from the state that it has
                applied, if that is new enough; else TOO_STALE, whose payload is the known lag in ms as decimal digits
                (empty: not known). NOT_READY while there is no whole state. Indexed reads it answers once the leader
                has told it how far the log is.

        """
        return self._serving.submit(requests, freshness, owner)

    def report(self, report: Report) -> asyncio.Future[Sequence[Answer]]:
        """Tell the leader what was found of a snapshot or of a state; answered as `submit` answers."""
        return self.submit([report])

    async def read_index(self) -> LogIndex:
        """Say how far the log is, and what logged time is, as a leader, to a follower that has reads to answer."""
        (answer,) = await self.submit([ReadIndex()], owner=_FOLLOWERS)
        driver = self._serving.driver
        clock = driver.clock if driver is not None and answer.status is AnswerStatus.OK else None
        return LogIndex(answer.status, answer.revision, clock)

    async def tell_entries(self, position: LogPosition) -> ToldEntries:
        """Return the confirmed entries that follow one, as a leader, to a follower; waits for a while for the first."""
        telling = None if self._driver is None else self._driver.telling
        return ToldEntries(TailStatus.NOT_LEADER) if telling is None else await telling.after(position)

    # ---- telling

    def status(self) -> ReplicaStatus:
        """Return what `rsm status` shows."""
        return describe_replica(
            self._context,
            self._care.snapshotter,
            leader_address=self.leader_address or "",
            leader_epoch=self.leader_epoch,
            digest=self.digest,
            queued=self._queue.request_count,
            failure=self._failure(),
        )

    def _failure(self) -> str:
        if self._main is None or not self._main.done() or self._main.cancelled():
            return ""
        error = self._main.exception()
        return "" if error is None else f"{type(error).__name__}: {error}"

    def on_role(self, listener: Callable[[ReplicaRole], None]) -> Callable[[], None]:
        """Call `listener` at every change of role; return what unsubscribes it."""
        return subscribe(self._context.role_listeners, listener)

    def on_entry(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        """Call `listener` with the payload of every confirmed entry applied; return what unsubscribes it."""
        return subscribe(self._context.payload_listeners, listener)

    def on_applied(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """Call `listener` with the revision after every confirmed entry applied; return what unsubscribes it."""
        return subscribe(self._context.applied_listeners, listener)

    # ---- roles

    async def _run(self) -> None:
        try:
            while not self._stopping:
                if await self._follow_until_elected():
                    await self._lead()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            _LOGGER.exception("the replica stops", extra=self._context.log_extra)
            await self._leave()
            if isinstance(error, StateDivergedError):
                await keep_evidence(self._context, error)
                await tell_leader(self._context, error)
            raise

    async def _follow_until_elected(self) -> bool:
        """Follow; return True when the election is won, False when the place in the log had to be found anew."""
        assert self._election is not None
        loop = asyncio.get_running_loop()
        follower = Follower(self._context, self._tails)
        following = loop.create_task(follower.run())
        elected = loop.create_task(self._be_elected(follower))
        try:
            await asyncio.wait([following, elected], return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            # A session lost since then took the election with it.
            return elected.result() == self._context.client.store.session_id
        except MissingLogError as error:
            _LOGGER.warning("booting again: %s", error, extra=self._context.log_extra)
            await self._rebuild()
            return False
        except NoRoomError as error:
            await self._wait_for_room(error)
            return False
        finally:
            for task in (following, elected):
                task.cancel()
            await asyncio.wait([following, elected])

    async def _be_elected(self, follower: Follower) -> int:
        """Stand for election once the state is near the end of the log; return the session that won."""
        assert self._election is not None
        if not self._context.settings.campaign:
            await asyncio.get_running_loop().create_future()
        await follower.is_near.wait()
        if not self._is_outdated():
            self._finding = await self._election.win()
            # While it waited another one may have raised the version.
            if self._is_outdated():
                await self._election.resign()
        if self._is_outdated():
            await asyncio.get_running_loop().create_future()
        return self._context.client.store.session_id

    def _is_outdated(self) -> bool:
        """Return whether the log's version of the machine is newer than this process: it follows, and never leads."""
        reason = self._context.outdated
        if reason and "version" not in self._context.alarms:
            _LOGGER.warning("%s", reason, extra=self._context.log_extra)
            self._context.alarms["version"] = reason
        return bool(reason)

    async def _lead(self) -> None:
        assert self._election is not None
        driver = self._driver = self._serving.driver = LeaderDriver(self._context, self._queue, self._found())
        self._context.want_checkpoint = driver.want_checkpoint
        outcome = no_room = None
        try:
            if self._stopping:
                driver.resign("the replica stops")
            outcome = await driver.run()
            self._note_end(driver.protocol.epoch, "" if outcome.deposed else outcome.reason)
        except MissingLogError as error:
            _LOGGER.warning("booting again: %s", error, extra=self._context.log_extra)
            self._note_end(driver.protocol.epoch, str(error))
        except NoRoomError as error:
            no_room = error
            self._note_end(driver.protocol.epoch, str(error))
        except Exception as error:
            self._note_end(driver.protocol.epoch, f"{type(error).__name__}: {error}")
            raise
        finally:
            self._driver = self._serving.driver = None
            self._context.want_checkpoint = ignore
        self._context.leader = self._context.leader_address = self._context.leader_http = None
        await self._resign()
        if no_room is not None:
            await self._wait_for_room(no_room)
        elif (outcome is None or outcome.rebuild) and not self._stopping:
            await self._rebuild()

    def _found(self) -> ElectionFinding | None:
        """Return what became of the one before; where nobody stood there, of the own leadership before, if any."""
        found, ended = self._finding, self._ended
        if found is None or found.end is not LeaderEnd.NOT_IN_LINE or ended is None:
            return found
        return ElectionFinding(ended.end, self.incarnation, ended.said)

    def _note_end(self, epoch: int, said: str) -> None:
        """Remember why the own leadership ended; nothing of one that never was, or that another claim ended."""
        self._is_end_untold = bool(epoch and said)
        self._ended = None
        if self._is_end_untold:
            end = LeaderEnd.STOPPED if self._stopping else LeaderEnd.GAVE_UP
            self._ended = EndedLeadership(epoch, end, self._context.clock_ms(), said[:SAID_CHARS_MAX])

    async def _rebuild(self) -> None:
        """Throw the state away: it shows what was not confirmed, or cannot be continued. Metadata may be away."""
        self._context.has_state = False
        while True:
            with contextlib.suppress(LedgerError, NoRoomError):
                await boot(self._context)
                return
            await asyncio.sleep(self._context.settings.retry_s)

    async def _wait_for_room(self, error: NoRoomError) -> None:
        """Go back to what the disk has, and on from there; meanwhile another replica may lead."""
        _LOGGER.warning("the replica waits: %s", error, extra=self._context.log_extra)
        self._context.alarms[ROOM_ALARM] = str(error)
        self._context.has_state = False
        await asyncio.sleep(_ROOM_S)
        await self._rebuild()
