"""The version of the machine that a log is of: raised by the leader once every live replica runs the newer one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ledger.errors import LedgerError
from rsm_spark.core.batching import Composer
from rsm_spark.core.chain import LogChain
from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.leadership_events import Event, RollDue
from rsm_spark.core.machine import MachineDescription, evolving
from rsm_spark.core.migrations import steps_between
from rsm_spark.core.records import MIGRATIONS_LEVEL
from rsm_spark.core.table_machine import TableMachine
from rsm_spark.errors import InvalidDescriptionError, RsmError
from rsm_spark.runtime.context import ReplicaContext, subscribe

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 1.0


class MachineVersion:
    """The version during one leadership.

    A new description begins a ledger, as every description does: a reader that opens that ledger finds it there, and
    reads those before it by the one of before. It comes into force when nothing is in flight: an entry that has to be
    appended again would begin the new ledger, and stand before it.

    Args:
        context: Of the replica.
        want: Makes the leader ask `take_event` soon.
        raise_format: Raises the format level of the log to at least this one.

    Attributes:
        has_work: `take_event` has something.

    """

    def __init__(
        self, context: ReplicaContext, want: Callable[[], None], raise_format: Callable[[int], Awaitable[int]]
    ) -> None:
        self.has_work = False
        self._context = context
        self._want = want
        self._raise_format = raise_format
        self._composer: Composer | None = None

    def begin(self, composer: Composer, chain: LogChain | None) -> None:
        """Have the first entry of the leadership describe the version that the log is of.

        Args:
            composer: Of the leadership.
            chain: Of the log.

        Raises:
            InvalidDescriptionError: The own version cannot follow that one.

        """
        self._composer = composer
        logged, own = self._context.state.description, self._context.machine.description
        if logged is None:
            return
        if evolving(self._context.machine) is None:
            assert chain is not None, "the leadership has begun"
            level = chain.format_level
            if self._context.level_needed > level:
                raise InvalidDescriptionError(
                    f"machine {own.name!r}: version {own.version} describes columns of newer types, "
                    f"log {self._context.log} has format level {level}: run `rsm log raise-format` first"
                )
            return
        check_evolution(logged, own)
        running = self._context.state.migration
        if running is not None and not self._steps(running.from_version, running.version):
            raise InvalidDescriptionError(
                f"machine {own.name!r}: log {self._context.log} is in a migration from version {running.from_version} "
                f"to {running.version}, version {own.version} declares none: keep its migrate(…) until it has ended"
            )
        composer.description = logged

    def _steps(self, older: int, newer: int) -> bool:
        """Return whether the machine declares migrations between two versions."""
        machine = self._context.machine
        return isinstance(machine, TableMachine) and bool(steps_between(machine.migrations, older, newer))

    @property
    def _level_needed(self) -> int:
        """Format level of a log of the own version, raised from the one that it has."""
        composer = self._composer
        assert composer is not None
        migrates = self._steps(composer.description.version, self._own.version)
        return max(self._context.level_needed, MIGRATIONS_LEVEL if migrates else 1)

    @property
    def _is_due(self) -> bool:
        composer = self._composer
        return composer is not None and composer.description.version < self._own.version

    @property
    def _own(self) -> MachineDescription:
        return self._context.machine.description

    async def rounds(self) -> None:
        """Raise the version once every live replica runs the own one; until cancelled."""
        while self._is_due and self._context.settings.raise_version:
            try:
                behind = await self.behind() or self._migrating
                if not behind:
                    await self._raise_format(self._level_needed)
            except (LedgerError, RsmError) as error:
                _LOGGER.info("a newer version has to wait: %s", error, extra=self._context.log_extra)
            else:
                if not behind:
                    self._raise()
                    return
            await asyncio.sleep(_LOOK_S)

    async def behind(self) -> list[str]:
        """Return the live replicas that run an older version of the machine.

        Raises:
            MetadataError: Nobody knows which replicas are live.

        """
        return [name for name, version in await self._versions() if version < self._own.version]

    @property
    def _migrating(self) -> list[str]:
        """The migration that has to end first, in words."""
        running = self._context.state.migration
        return [] if running is None else [f"the migration to version {running.version}"]

    async def _versions(self) -> list[tuple[str, int]]:
        members = await self._context.discovery.members()
        return [(member.replica_id, member.machine_version) for member in members]

    async def raise_version(self, *, force: bool) -> int:
        """Raise the version now; return it once the log is of it.

        Args:
            force: Also where a live replica runs an older one: it goes on following, and cannot lead.

        Raises:
            RsmError: A live replica runs an older version, does not know the format level that this one needs, or runs
                a newer one and does not lead.
            MetadataError: Nobody knows which replicas are live.

        """
        own = self._own
        if self._is_due:
            behind = [] if force else await self.behind()
            if behind:
                raise RsmError(
                    f"log {self._context.log}: not every live replica runs version {own.version} of machine "
                    f"{own.name!r}: {', '.join(behind)}. Upgrade them first, or say --force: they follow on, and "
                    "cannot lead"
                )
            if self._migrating:
                raise RsmError(f"log {self._context.log}: {self._migrating[0]} has not ended: wait for it")
            await self._raise_format(self._level_needed)
            self._raise()
        elif ahead := [name for name, version in await self._versions() if version > own.version]:
            me = self._context.me.replica_id
            raise RsmError(
                f"log {self._context.log}: its leader {me} runs version {own.version} of machine {own.name!r}, that of "
                f"the log. A newer one is run by {', '.join(ahead)}: upgrade {me} too"
            )
        await self._confirmed()
        return own.version

    def _raise(self) -> None:
        self.has_work = True
        self._want()

    def take_event(self) -> Event | None:
        """Return the roll that begins with the new description; nothing is in flight."""
        composer, own = self._composer, self._own
        assert composer is not None
        self.has_work = False
        _LOGGER.info(
            "the log is of version %d of its machine from the next ledger on, it was of %d",
            own.version,
            composer.description.version,
            extra=self._context.log_extra,
        )
        composer.description = own
        composer.checkpoint_wanted = True  # An entry at once, and replicas of both versions compare their states.
        return RollDue()

    async def _confirmed(self) -> None:
        """Wait until the log is of the own version."""
        confirmed = asyncio.Event()

        def _look(_revision: int) -> None:
            logged = self._context.state.description
            if logged is not None and logged.version >= self._own.version:
                confirmed.set()

        unsubscribe = subscribe(self._context.applied_listeners, _look)
        try:
            if self._context.state_is_confirmed:
                _look(0)
            await confirmed.wait()
        finally:
            unsubscribe()
