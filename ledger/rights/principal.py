"""A principal: who calls, which role it has, and how far that reaches. Pure: no IO, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec


class Role(StrEnum):
    """Role of a principal.

    REPLICA: a process of the cluster itself: a replica, a broker, auto-recovery. It writes the log.
    WORKER: runs tasks. CLIENT: reads or writes keys of the map, or ledgers of its own.
    TENANT: what is its own at a broker. OPERATOR: administers. AUDITOR: reads, and proves.
    """

    REPLICA = "replica"
    WORKER = "worker"
    CLIENT = "client"
    TENANT = "tenant"
    OPERATOR = "operator"
    AUDITOR = "auditor"


class ClientAccess(StrEnum):
    """Access of a client; each value contains the one before."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Reach of a principal's role. What is None has no bound.

    Attributes:
        tenant: Of a tenant: whose tasks are its own. Of an auditor: what alone it sees; "" = all.
        workers: Of a worker: names that it may work under, with `*` for any letters; empty = its own name, and that
            with `-` and more behind it.
        types: Of a worker: task types that it may offer to run.
        groups: Of a worker: groups that it may offer to serve.
        tenants: Of a worker: whose tasks alone it is given.
        logs: Of a client: names of logs.
        access: Of a client: to the keys of the map that begin with its prefix.
        ledgers: Of a client: to the ledgers of the bookies, all of them.
        tables_read: Of a client: names of SQL tables and views whose rows it may read, with `*` for any letters. If
            none of the three is given, a client has all tables; else it has those that are named, and what is left
            out is none.
        tables_write: Of a client: the same, whose rows it may insert, change and delete.
        tables_schema: Of a client: the same, which it may make, alter and drop, with their indexes and triggers.
        rate_per_s: Requests a second at a broker; None = the broker's default, 0 = no limit.
        rate_burst: Requests at once; None = the broker's default.
        rate_tasks_per_s: Tasks submitted a second; the same as of requests.
        rate_bytes_per_s: Bytes of requests' bodies a second; the same.

    """

    tenant: str = ""
    workers: tuple[str, ...] = ()
    types: tuple[str, ...] | None = None
    groups: tuple[int, ...] | None = None
    tenants: tuple[str, ...] | None = None
    logs: tuple[str, ...] | None = None
    access: ClientAccess = ClientAccess.NONE
    ledgers: ClientAccess = ClientAccess.NONE
    tables_read: tuple[str, ...] | None = None
    tables_write: tuple[str, ...] | None = None
    tables_schema: tuple[str, ...] | None = None
    rate_per_s: float | None = None
    rate_burst: int | None = None
    rate_tasks_per_s: float | None = None
    rate_bytes_per_s: float | None = None


class Principal(Scope, frozen=True, kw_only=True):
    """Caller of a server.

    Attributes:
        name: Of the principal; logs and audit name it.
        role: See `Role`.
        prefix: Of a client: how the keys of the map begin that it may touch.
        expires_s: Wall clock from which on it is nobody; 0 = never.

    """

    name: str
    role: Role
    prefix: bytes = b""
    expires_s: float = 0.0

    def __str__(self) -> str:
        """Return the name and the role, for messages."""
        return f"{self.name!r} ({self.role.value})"

    def is_over(self, wall_s: float) -> bool:
        """Return whether it has expired."""
        return bool(self.expires_s) and wall_s >= self.expires_s

    def may_log(self, log: str) -> bool:
        """Return whether it may touch a log by its name."""
        return self.logs is None or log in self.logs

    def may_work_as(self, worker_id: str) -> bool:
        """Return whether a worker's name is one of its own. Only a worker's names are bound to its credential."""
        if self.role is not Role.WORKER:
            return True
        if not self.workers:
            return worker_id == self.name or worker_id.startswith(f"{self.name}-")
        return any(fnmatchcase(worker_id, "*".join(map(_literal, one.split("*")))) for one in self.workers)

    @property
    def has_table_bounds(self) -> bool:
        """True if it has some SQL tables, and not all."""
        given = (self.tables_read, self.tables_write, self.tables_schema)
        return any(names is not None for names in given)

    def has_key(self, key: bytes) -> bool:
        """Return whether a key of the map is in its scope."""
        return key.startswith(self.prefix)

    def has_range(self, start: bytes, end: bytes | None) -> bool:
        """Return whether all keys from `start` on, up to `end` (exclusive; None = to the end), are in its scope."""
        prefix = self.prefix
        if not prefix:
            return True
        if not start.startswith(prefix):
            return False
        last = _after(prefix)
        return last is None or (end is not None and end <= last)

    def strange(self, types: Iterable[str], groups: Iterable[int]) -> str:
        """Return what of an offer is beyond a worker's scope, in words; "" = nothing."""
        for what, offered, allowed in (("type", types, self.types), ("group", groups, self.groups)):
            beyond = [one for one in offered if allowed is not None and one not in allowed]
            if beyond:
                return f"{what} {beyond[0]!r}"
        return ""


CLUSTER = Principal(name="cluster", role=Role.REPLICA)
"""Whoever knows the one token of a cluster without a file of principals."""
ANYBODY = Principal(name="anybody", role=Role.OPERATOR)
"""Whoever reaches a port on loopback where nothing is demanded, at a door for people."""


def turns_name(principal: Principal, address: str) -> str:
    """Return as whom a caller takes turns: by its principal, or by its address where nobody says who it is.

    "" = neither is known.
    """
    if principal.name and principal not in (ANYBODY, CLUSTER):
        return f"principal {principal.name}"
    return f"address {address}" if address else ""


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "?[" else letter for letter in name)


def _after(prefix: bytes) -> bytes | None:
    """Return the first key behind all that begin with a prefix; None = there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
