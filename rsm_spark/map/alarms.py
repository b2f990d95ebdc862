"""Alarms of the map: administrators raise and end them, and what they forbid is refused until then.

    nospace    nothing is put, and no lease begins; what removes is done
    corrupt    nothing is changed at all, and time ends nothing

They stand in the log, so every leader holds to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from rsm_spark.core.machine import Decision, Row, RowChange
from rsm_spark.core.records import pack
from rsm_spark.map.commands import GrantLease, KeepLease, MapCommand, SetAlarm, Written
from rsm_spark.map.messages import encode
from rsm_spark.map.queries import AlarmShown
from rsm_spark.map.records import ALARM_ENDED, ALARM_RAISED, ALARMS_TABLE, PUT

ALARMS_MAX: Final = 64
NO_SPACE: Final = (
    "an alarm says that there is no space: deletes are taken, but no puts and no leases (no-space). Nothing was "
    "changed: whoever administers the log ends the alarm (`etcdctl alarm disarm`)"
)
CORRUPT: Final = (
    "an alarm says that the state is corrupt: nothing is changed until whoever administers the log ends it "
    "(`etcdctl alarm disarm`) (corrupt)"
)
_TOO_MANY: Final = f"{ALARMS_MAX} alarms are raised, more are not kept: end some"
_KEY: Final = msgspec.msgpack.Decoder(tuple[str, int])
_ROW: Final = msgspec.msgpack.Decoder(tuple[int])
_UNCHANGED: Final = encode(Written(0))


class AlarmRow(msgspec.Struct, frozen=True):
    """An alarm that is raised: the logged time at which it was, and the revision of the record that says so."""

    since_ms: int
    revision: int


class Alarms:
    """See the module.

    Attributes:
        raised: By kind, and number of the member that it is about.

    """

    def __init__(self) -> None:
        self.raised: dict[tuple[str, int], AlarmRow] = {}

    @property
    def is_corrupt(self) -> bool:
        """True while nothing may change."""
        return any(kind == "corrupt" for kind, _ in self.raised)

    @property
    def shown(self) -> list[AlarmShown]:
        """Alarms that are raised, by kind and member."""
        return [AlarmShown(kind, member, self.raised[kind, member].since_ms) for kind, member in sorted(self.raised)]

    def decide(self, command: SetAlarm, revision: int, now_ms: int) -> Decision | str:
        """Decide on an alarm; return why not, where it is refused."""
        place = (command.kind, command.member)
        if command.is_raised == (place in self.raised):
            return Decision((), _UNCHANGED)
        if command.is_raised and len(self.raised) >= ALARMS_MAX:
            return _TOO_MANY
        record = (ALARM_RAISED, (*place, now_ms)) if command.is_raised else (ALARM_ENDED, place)
        return Decision((record,), encode(Written(revision)))

    def forbids(self, command: MapCommand) -> str:
        """Return why a command is not even looked at; "" = it is."""
        is_free = isinstance(command, SetAlarm | KeepLease)
        if self.is_corrupt and not is_free:
            return CORRUPT
        return NO_SPACE if isinstance(command, GrantLease) else ""

    @staticmethod
    def forbids_records(records: Iterable[tuple[int, tuple[Any, ...]]]) -> str:
        """Return why what was decided is not done, while any alarm is raised; "" = it is."""
        return NO_SPACE if any(record_type == PUT for record_type, _ in records) else ""

    def raise_alarm(self, kind: str, member: int, since_ms: int, revision: int) -> RowChange:
        """Fold a record."""
        old = self.raised.get((kind, member))
        self.raised[kind, member] = AlarmRow(since_ms, revision)
        return RowChange(ALARMS_TABLE, pack((kind, member)), None if old is None else _packed(old), pack((since_ms,)))

    def end(self, kind: str, member: int) -> RowChange:
        """Fold a record."""
        old = self.raised.pop((kind, member), None)
        return RowChange(ALARMS_TABLE, pack((kind, member)), None if old is None else _packed(old), None)

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        return [Row(ALARMS_TABLE, pack(place), _packed(row), row.revision) for place, row in self.raised.items()]

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace all alarms.

        Raises:
            MsgspecError: A row is none.

        """
        self.raised = {_KEY.decode(row.key): AlarmRow(_ROW.decode(row.row)[0], row.revision) for row in rows}


def _packed(row: AlarmRow) -> bytes:
    return pack((row.since_ms,))
