"""Table of the rights that each role has. Pure.

A method of a port that names no right is refused. Scopes (a worker's types, a client's keys, a tenant's tasks) are
checked beside the table, where the content is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from ledger.rights.principal import ClientAccess, Principal, Role


class Right(StrEnum):
    """Right that a method needs."""

    LEDGER_READ = "read ledgers"
    LEDGER_WRITE = "write and fence ledgers"
    STATUS = "see the status of a process"
    STATE_READ = "read the state of a log"
    STATE_WRITE = "write the state of a log"
    SNAPSHOT_READ = "copy snapshots"
    REPORT = "report to the leader as a replica"
    WORK = "work for a broker"
    CODE_READ = "get the code of a task"
    TASKS_READ = "see tasks"
    TASKS_WRITE = "submit and change tasks"
    CLUSTER_READ = "see what belongs to all tenants"
    GOVERN = "administer"


ROLES_OF: Final[Mapping[Right, frozenset[Role]]] = MappingProxyType({
    # A replica writes the log: nothing that the log decides can be kept from it.
    Right.LEDGER_READ: frozenset({Role.REPLICA, Role.CLIENT, Role.OPERATOR, Role.AUDITOR}),
    Right.LEDGER_WRITE: frozenset({Role.REPLICA, Role.CLIENT, Role.OPERATOR}),
    Right.STATUS: frozenset(Role),
    Right.STATE_READ: frozenset({Role.REPLICA, Role.CLIENT, Role.OPERATOR, Role.AUDITOR}),
    Right.STATE_WRITE: frozenset({Role.REPLICA, Role.CLIENT, Role.OPERATOR}),
    Right.SNAPSHOT_READ: frozenset({Role.REPLICA, Role.OPERATOR, Role.AUDITOR}),
    Right.REPORT: frozenset({Role.REPLICA}),
    Right.WORK: frozenset({Role.REPLICA, Role.WORKER}),
    Right.CODE_READ: frozenset({Role.REPLICA, Role.WORKER}),
    Right.TASKS_READ: frozenset({Role.TENANT, Role.OPERATOR, Role.AUDITOR}),
    Right.TASKS_WRITE: frozenset({Role.TENANT, Role.OPERATOR}),
    Right.CLUSTER_READ: frozenset({Role.REPLICA, Role.OPERATOR, Role.AUDITOR}),
    Right.GOVERN: frozenset({Role.OPERATOR}),
})  # fmt: skip

_OF_CLIENTS: Final = MappingProxyType({
    Right.LEDGER_READ: (ClientAccess.READ, ClientAccess.WRITE),
    Right.LEDGER_WRITE: (ClientAccess.WRITE,),
    Right.STATE_READ: (ClientAccess.READ, ClientAccess.WRITE),
    Right.STATE_WRITE: (ClientAccess.WRITE,),
})  # fmt: skip
_OF_LEDGERS: Final = frozenset({Right.LEDGER_READ, Right.LEDGER_WRITE})


def may(principal: Principal, right: Right) -> bool:
    """Return whether a principal has a right, scopes of content aside."""
    role = principal.role
    if role not in ROLES_OF[right]:
        return False
    if role is Role.CLIENT and right in _OF_CLIENTS:
        given = principal.ledgers if right in _OF_LEDGERS else principal.access
        return given in _OF_CLIENTS[right]
    # Who sees one tenant's things alone sees nothing that belongs to all.
    one_tenant = role is Role.AUDITOR and bool(principal.tenant)
    return not one_tenant or right in (Right.TASKS_READ, Right.STATUS)
