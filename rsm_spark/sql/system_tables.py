"""Tables that tell of the log itself: which there are, who is shown what, and their rows. Pure.

They are read by queries as other tables are, and joined with those; nobody writes them, and no record of the log has
them. A replica makes them for the query that names them, on the connection that reads: see `engine.system_rows`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from ledger.rights.principal import ANYBODY, CLUSTER, Principal, Role
from ledger.rights.table import Right, may
from rsm_spark.core.chain import LogChain
from rsm_spark.sql.messages import SqlValue

NODES: Final = "rsm_nodes"
LEDGERS: Final = "rsm_ledgers"
SNAPSHOTS: Final = "rsm_snapshots"
SESSIONS: Final = "rsm_sessions"
LOCKS: Final = "rsm_locks"

COLUMNS: Final[Mapping[str, str]] = {
    NODES: "name TEXT, address TEXT, role TEXT, revision INTEGER, behind INTEGER, lag_ms INTEGER, row_count INTEGER, "
    "alarms TEXT, error TEXT",
    LEDGERS: "ledger_id INTEGER, state TEXT, first_revision INTEGER, last_revision INTEGER, bytes INTEGER, "
    "leader_epoch INTEGER, created_at TIMESTAMPTZ, bookies TEXT",
    SNAPSHOTS: "place TEXT, revision INTEGER, state TEXT, row_count INTEGER, created_at TIMESTAMPTZ, reason TEXT",
    SESSIONS: "name TEXT, opened_at TIMESTAMPTZ, used_at TIMESTAMPTZ, commands INTEGER, unanswered INTEGER",
    LOCKS: "name TEXT, kind TEXT, owner TEXT, is_own BOOLEAN, began_at TIMESTAMPTZ, used_at TIMESTAMPTZ, "
    "waits_for TEXT, revision INTEGER, has_written BOOLEAN",
}
"""System tables -> their columns as CREATE TABLE has them."""

SystemRows = Mapping[str, Sequence[tuple[SqlValue, ...]]]
"""System tables -> rows."""

_NAMES = re.compile(rf"\b(?:{'|'.join(COLUMNS)})\b", re.IGNORECASE)
_SHOWN_ID_CHARS: Final = 12


def system_names(sql: str) -> frozenset[str]:
    """Return the system tables that a statement may read: those whose names stand in it."""
    return frozenset(found.lower() for found in _NAMES.findall(sql))


def sees_all(principal: Principal) -> bool:
    """Return whether a principal is told who the others are. Where all have one identity, all are."""
    if principal in (ANYBODY, CLUSTER):
        return True
    # A replica asks for clients of its own, whom the leader does not know.
    return principal.role is not Role.REPLICA and may(principal, Right.CLUSTER_READ)


class SystemAsker(NamedTuple):
    """Caller that is shown system tables.

    Attributes:
        owner: As it takes turns with others.
        sees_all: See the function of this name.

    """

    owner: str
    sees_all: bool


class HeldCommit(NamedTuple):
    """A transaction, or a result that is read in slices, which is open and holds a commit.

    Attributes:
        kind: "transaction" or "result".
        name: 16 bytes.
        owner: Whose it is.
        began_s: Time of the event loop.
        used_s: The same, of its last step.
        waits_for: "its client", "a thread"; None = it runs.
        revision: Of the commit.
        has_written: It has changed something.

    """

    kind: str
    name: bytes
    owner: str
    began_s: float
    used_s: float
    waits_for: str | None
    revision: int
    has_written: bool


def moment(ms: int) -> str:
    """Return a time of the wall clock as SQLite keeps it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")


def shown_id(name: bytes) -> str:
    """Return the beginning of an id: it tells two apart, and gives nobody the whole of it."""
    return name.hex()[:_SHOWN_ID_CHARS]


def node_rows(statuses: Iterable[Mapping[str, Any]]) -> list[tuple[SqlValue, ...]]:
    """Return rows of `rsm_nodes`, by what the replicas say of themselves; one that does not answer has an "error"."""
    known = list(statuses)
    newest = max((one.get("revision", 0) for one in known), default=0)
    rows: list[tuple[SqlValue, ...]] = []
    for one in known:
        name, address = one["replica_id"], one["address"]
        if "revision" not in one:
            rows.append((name, address, None, None, None, None, None, None, one["error"]))
            continue
        alarms = "\n".join(one.get("alarms", ())) or None
        revision = one["revision"]
        behind, lag_ms = newest - revision, one["lag_ms"] if one["logged_ms"] else None
        failure = one.get("failure") or None
        rows.append((name, address, one["role"], revision, behind, lag_ms, one["row_count"], alarms, failure))
    return rows


def snapshot_rows(statuses: Iterable[Mapping[str, Any]]) -> list[tuple[SqlValue, ...]]:
    """Return rows of `rsm_snapshots`: what each replica has, then the newest ones that others have read back."""
    rows: list[tuple[SqlValue, ...]] = []
    verified: dict[str, int] = {}
    for one in statuses:
        place = one["replica_id"]
        rows += [
            (place, found["revision"], "whole", found["rows"], moment(found["created_ms"]), None)
            for found in one.get("snapshots", ())
        ]
        rows += [(place, None, "damaged", None, None, found["reason"]) for found in one.get("damaged_snapshots", ())]
        for where, revision in one.get("verified", {}).items():
            verified[where] = max(revision, verified.get(where, 0))
    return rows + [(place, revision, "verified", None, None, None) for place, revision in sorted(verified.items())]


def ledger_rows(chain: LogChain, bookies: Mapping[int, Collection[str]]) -> list[tuple[SqlValue, ...]]:
    """Return rows of `rsm_ledgers`, oldest first.

    Args:
        chain: Of the log.
        bookies: That have the newest entries of a ledger, as far as they were looked up.

    """
    rows: list[tuple[SqlValue, ...]] = []
    for ledger in chain.ledgers:
        end, found = ledger.closed, bookies.get(ledger.ledger_id)
        rows.append((
            ledger.ledger_id, "open" if end is None else "closed", ledger.first_revision,
            None if end is None else end.last_revision, None if end is None else end.length, ledger.leader_epoch,
            moment(ledger.created_ms), None if found is None else msgspec.json.encode(list(found)).decode(),
        ))  # fmt: skip
    return rows


def lock_rows(holds: Iterable[HeldCommit], asker: SystemAsker, now_s: float, now_ms: int) -> list[tuple[SqlValue, ...]]:
    """Return rows of `rsm_locks`; `now_s` and `now_ms` are the same moment by two clocks."""
    rows: list[tuple[SqlValue, ...]] = []
    for one in holds:
        is_own = one.owner == asker.owner
        began, used = (moment(now_ms - round((now_s - at_s) * 1000)) for at_s in (one.began_s, one.used_s))
        rows.append((
            shown_id(one.name), one.kind, one.owner if is_own or asker.sees_all else None, int(is_own), began, used,
            one.waits_for, one.revision, int(one.has_written),
        ))  # fmt: skip
    return rows
