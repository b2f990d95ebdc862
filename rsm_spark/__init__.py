"""Replicated state machines on a ledger, and the replicated state store.

Names are loaded when they are first used: importing this package loads nothing, and a client needs neither pyarrow nor
Spark. A service of one's own is a `Service` with typed commands, or any other `StateMachine`, run by `serve` and called
through a `ServiceClient`; `MapClient` is the client of the map that comes along. `Replica` is the part below: a state
machine that leads or follows its log.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rsm_spark.own_packages import check_own_packages

check_own_packages("ledger")

if TYPE_CHECKING:
    from rsm_spark.client.service_client import Reply, ServiceClient
    from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query
    from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness, at_least, bounded
    from rsm_spark.core.machine import (
        Decision,
        Field,
        FieldType,
        Fold,
        MachineDescription,
        RecordDescription,
        Row,
        RowChange,
        StateMachine,
        TableDescription,
        TimedMachine,
    )
    from rsm_spark.core.position import LogPosition
    from rsm_spark.core.table_machine import TableMachine, delete, note, upsert
    from rsm_spark.core.typed_calls import command, encode_call, query
    from rsm_spark.core.typed_service import Service, compose, part
    from rsm_spark.core.typed_tables import StateTable, column, table
    from rsm_spark.core.typed_timers import due
    from rsm_spark.errors import DomainError
    from rsm_spark.map.client.client import MapClient
    from rsm_spark.runtime.replica import Replica
    from rsm_spark.runtime.settings import ReplicaSettings
    from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus
    from rsm_spark.server.replica_server import StoreService, StoreSettings
    from rsm_spark.server.serve import serve, wait_for_signal

__all__ = [
    "LINEARIZABLE",
    "STALE",
    "Answer",
    "AnswerStatus",
    "Command",
    "Decision",
    "DomainError",
    "Field",
    "FieldType",
    "Fold",
    "Freshness",
    "LogPosition",
    "MachineDescription",
    "MapClient",
    "OpenSession",
    "Query",
    "RecordDescription",
    "Replica",
    "ReplicaSettings",
    "ReplicaStatus",
    "Reply",
    "ReplicaRole",
    "Row",
    "RowChange",
    "Service",
    "ServiceClient",
    "StateMachine",
    "StateTable",
    "StoreService",
    "StoreSettings",
    "TableDescription",
    "TableMachine",
    "TimedMachine",
    "at_least",
    "bounded",
    "column",
    "command",
    "compose",
    "delete",
    "due",
    "encode_call",
    "migrate",
    "note",
    "part",
    "query",
    "serve",
    "table",
    "upsert",
    "wait_for_signal",
]

_PLACES = {
    "client.service_client": ("Reply", "ServiceClient"),
    "core.commands": ("Answer", "AnswerStatus", "Command", "OpenSession", "Query"),
    "core.freshness": ("LINEARIZABLE", "STALE", "Freshness", "at_least", "bounded"),
    "core.machine": (
        "Decision", "Field", "FieldType", "Fold", "MachineDescription", "RecordDescription", "Row", "RowChange",
        "StateMachine", "TableDescription", "TimedMachine",
    ),
    "core.migrations": ("migrate",),
    "core.position": ("LogPosition",),
    "core.table_machine": ("TableMachine", "delete", "note", "upsert"),
    "core.typed_calls": ("command", "encode_call", "query"),
    "core.typed_service": ("Service", "compose", "part"),
    "core.typed_tables": ("StateTable", "column", "table"),
    "core.typed_timers": ("due",),
    "errors": ("DomainError",),
    "runtime.replica": ("Replica",),
    "runtime.settings": ("ReplicaSettings",),
    "runtime.status": ("ReplicaStatus", "ReplicaRole"),
    "server.serve": ("serve", "wait_for_signal"),
    "map.client.client": ("MapClient",),
    "server.replica_server": ("StoreService", "StoreSettings"),
}  # fmt: skip
_MODULES = {name: f"{__name__}.{module}" for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
