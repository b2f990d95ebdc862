"""The map's tables and record types, as its log describes them.

    map          key -> value, revision that created the key, number of its writes since, mod revision
    expiries     key -> how long it lives: for a time of its own, or as long as a lease. No row: until it is deleted
    leases       number -> its full time, and since when it counts
    compactions  keyspace -> revision below which nobody may ask for the map as it was
    alarms       kind and member -> since when it is raised

What expires is in tables of its own, so that `map` is what clients put, and how often, and nothing else.

All keys that one command writes have one *mod revision*: that of its last record. So the map at that revision is the
map right after the command, and a watch from the revision behind it tells of nothing twice. A put that is the last
record of its command has None there, which is shorter.

Version 3 has added `create_revision` and `version`, version 4 `mod_revision` and `compactions`, version 5 `alarms`. A
log of a version of before is read as it is, and gets records of that version until it is raised.
"""

from __future__ import annotations

from typing import Any

from rsm_spark.core.machine import Field, FieldType, Fold, MachineDescription, RecordDescription, TableDescription
from rsm_spark.core.records import MACHINE_TYPE_FIRST

MAP_TABLE = "map"
EXPIRIES_TABLE = "expiries"
LEASES_TABLE = "leases"
COMPACTIONS_TABLE = "compactions"
ALARMS_TABLE = "alarms"

PUT = MACHINE_TYPE_FIRST
"""Record ``[key, value, create_revision, version, mod_revision | nil]``; of version 3 without the last,
of version 2 ``[key, value]``."""
DELETED = MACHINE_TYPE_FIRST + 1
"""Record ``[key, mod_revision]``, or ``[key]`` as the last one of its command, and before version 4: by a command."""
EXPIRED = MACHINE_TYPE_FIRST + 2
"""The same: deleted by time, or with its lease."""
EXPIRY_SET = MACHINE_TYPE_FIRST + 3
"""Record ``[key, lease, ttl_ms, since_ms]``: either a lease, or a time and the logged time from which it counts."""
EXPIRY_CLEARED = MACHINE_TYPE_FIRST + 4
"""Record ``[key]``: it is gone, or lives until it is deleted."""
LEASE_KEPT = MACHINE_TYPE_FIRST + 5
"""Record ``[lease, ttl_ms, since_ms]``: granted or kept, at this logged time."""
LEASE_ENDED = MACHINE_TYPE_FIRST + 6
"""Record ``[lease]``: revoked or expired; its keys go with the records behind this one."""

COMPACTED = MACHINE_TYPE_FIRST + 7
"""Record ``[keyspace, revision]``: what was before this revision may be forgotten; there is one keyspace, 0."""
ALARM_RAISED = MACHINE_TYPE_FIRST + 8
"""Record ``[kind, member, since_ms]``: what `rsm_spark.map.alarms` says is forbidden from here on."""
ALARM_ENDED = MACHINE_TYPE_FIRST + 9
"""Record ``[kind, member]``."""

_KEY = Field("key", FieldType.BYTES)
_VALUE = Field("value", FieldType.BYTES)
# None in rows of before: nobody has told.
_CREATED = Field("create_revision", FieldType.INT, nullable=True)
_VERSION = Field("version", FieldType.INT, nullable=True)
_MODIFIED = Field("mod_revision", FieldType.INT, nullable=True)
_LEASE = Field("lease", FieldType.INT)
_TTL = Field("ttl_ms", FieldType.INT)
_SINCE = Field("since_ms", FieldType.INT)
_KEYSPACE = Field("keyspace", FieldType.INT)
_REVISION = Field("revision", FieldType.INT)
_KIND = Field("kind", FieldType.STR)
_MEMBER = Field("member", FieldType.INT)

COUNTS_VERSION = 3
"""Version of the map from which on its rows have a create revision and a version."""

DATES_VERSION = 4
"""Version of the map from which on all keys that one command writes have one mod revision."""

ALARMS_VERSION = 5
"""Version of the map from which on alarms are kept in the log."""

COUNTS_LEVEL = 3
"""Format level of a log of version 3 and above: replicas of versions before refuse it by name."""

MAP_DESCRIPTION = MachineDescription(
    name="map",
    version=ALARMS_VERSION,
    tables=(
        TableDescription(MAP_TABLE, (_KEY,), (_VALUE, _CREATED, _VERSION, _MODIFIED)),
        TableDescription(EXPIRIES_TABLE, (_KEY,), (_LEASE, _TTL, _SINCE)),
        TableDescription(LEASES_TABLE, (_LEASE,), (_TTL, _SINCE)),
        TableDescription(COMPACTIONS_TABLE, (_KEYSPACE,), (_REVISION,)),
        TableDescription(ALARMS_TABLE, (_KIND, _MEMBER), (_SINCE,)),
    ),
    records=(
        RecordDescription(
            PUT,
            "put",
            (_KEY, _VALUE, _CREATED, _VERSION, _MODIFIED),
            MAP_TABLE,
            Fold.UPSERT,
            ("key",),
            ("value", "create_revision", "version", "mod_revision"),
        ),
        RecordDescription(DELETED, "deleted", (_KEY, _MODIFIED), MAP_TABLE, Fold.DELETE, ("key",)),
        RecordDescription(EXPIRED, "expired", (_KEY, _MODIFIED), MAP_TABLE, Fold.DELETE, ("key",)),
        RecordDescription(
            EXPIRY_SET,
            "expiry_set",
            (_KEY, _LEASE, _TTL, _SINCE),
            EXPIRIES_TABLE,
            Fold.UPSERT,
            ("key",),
            ("lease", "ttl_ms", "since_ms"),
        ),
        RecordDescription(EXPIRY_CLEARED, "expiry_cleared", (_KEY,), EXPIRIES_TABLE, Fold.DELETE, ("key",)),
        RecordDescription(
            LEASE_KEPT,
            "lease_kept",
            (_LEASE, _TTL, _SINCE),
            LEASES_TABLE,
            Fold.UPSERT,
            ("lease",),
            ("ttl_ms", "since_ms"),
        ),
        RecordDescription(LEASE_ENDED, "lease_ended", (_LEASE,), LEASES_TABLE, Fold.DELETE, ("lease",)),
        RecordDescription(
            COMPACTED,
            "compacted",
            (_KEYSPACE, _REVISION),
            COMPACTIONS_TABLE,
            Fold.UPSERT,
            ("keyspace",),
            ("revision",),
        ),
        RecordDescription(
            ALARM_RAISED,
            "alarm_raised",
            (_KIND, _MEMBER, _SINCE),
            ALARMS_TABLE,
            Fold.UPSERT,
            ("kind", "member"),
            ("since_ms",),
        ),
        RecordDescription(ALARM_ENDED, "alarm_ended", (_KIND, _MEMBER), ALARMS_TABLE, Fold.DELETE, ("kind", "member")),
    ),
)


def said_revision(record_type: int, fields: tuple[Any, ...]) -> int | None:
    """Return the mod revision that a change of the table `map` says; None = the revision of its record."""
    place = 4 if record_type == PUT else 1
    said: int | None = fields[place] if len(fields) > place else None
    return said
