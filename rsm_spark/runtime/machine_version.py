"""The version of the machine that a log is of: raised by the leader once every live replica runs the newer one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ledger.errors import LedgerError
from rsm_spark.core.batching import Composer
from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.leadership_events import Event, RollDue
from rsm_spark.core.machine import evolving
from rsm_spark.errors import RsmError
from rsm_spark.runtime.context import ReplicaContext

_LOGGER = logging.getLogger(__name__)
_LOOK_S = 1.0


class MachineVersion:
    """The version during one leadership.

    A new description begins a ledger, as every description does: a reader that opens that ledger finds it there, and
    reads those before it by the one of before.

    Args:
        context: Of the replica.
        want: Makes the leader ask `take_event` soon.

    Attributes:
        has_work: `take_event` has something.

    """

    def __init__(self, context: ReplicaContext, want: Callable[[], None]) -> None:
        self.has_work = False
        self._context = context
        self._want = want
        self._composer: Composer | None = None

    def begin(self, composer: Composer) -> None:
        """Have the first entry of the leadership describe the version that the log is of.

        Raises:
            InvalidDescriptionError: The own version cannot follow that one.

        """
        self._composer = composer
        logged, own = self._context.state.description, self._context.machine.description
        if logged is None or evolving(self._context.machine) is None:
            return
        check_evolution(logged, own)
        composer.description = logged

    @property
    def _is_due(self) -> bool:
        composer = self._composer
        return composer is not None and composer.description.version < self._context.machine.description.version

    async def rounds(self) -> None:
        """Raise the version once every live replica runs the own one; until cancelled."""
        while self._is_due and self._context.settings.raise_version:
            try:
                behind = await self.behind()
            except LedgerError as error:
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
        own = self._context.machine.description.version
        members = await self._context.discovery.members()
        return [member.replica_id for member in members if member.machine_version < own]

    async def raise_version(self, *, force: bool) -> int:
        """Raise the version now; return the one that the log is of from its next ledger on.

        Args:
            force: Also where a live replica runs an older one: it goes on following, and cannot lead.

        Raises:
            RsmError: A live replica runs an older version.
            MetadataError: Nobody knows which replicas are live.

        """
        composer = self._composer
        assert composer is not None
        if self._is_due:
            behind = [] if force else await self.behind()
            if behind:
                own = self._context.machine.description
                raise RsmError(
                    f"log {self._context.log}: not every live replica runs version {own.version} of machine "
                    f"{own.name!r}: {', '.join(behind)}. Upgrade them first, or say --force: they follow on, and "
                    "cannot lead"
                )
            self._raise()
        return composer.description.version

    def _raise(self) -> None:
        composer, own = self._composer, self._context.machine.description
        assert composer is not None
        _LOGGER.info(
            "the log is of version %d of its machine from the next ledger on, it was of %d",
            own.version,
            composer.description.version,
            extra=self._context.log_extra,
        )
        composer.description = own
        self.has_work = True
        self._want()

    def take_event(self) -> Event | None:
        """Return the roll that begins with the new description; nothing is in flight."""
        self.has_work = False
        return RollDue()
