"""Events made of the records of the log: once for all readers, with the tenant that may see them.

What is bytes (payloads, results, archives) is left out. Whose a task is, records of its states do not say: it is
remembered from its submission, or asked of the state; what was purged since, only the administrator sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from broker.core.queries import GetTask
from broker.core.shown import TaskShown
from broker.core.tables import BROKER_DESCRIPTION, RecordType, Table
from broker.http.documents import status_word, worker_word
from broker.http.ports import Broker
from rsm_spark.core.machine import FieldType
from rsm_spark.runtime.change_feed import FeedEntry

__all__ = ["Event", "EventDesk"]

_OWNERS_MAX = 200_000
_PREPARED_MAX = 64
_HIDDEN = frozenset({RecordType.REQUEST_NOTED, RecordType.REQUEST_FORGOTTEN})


class _Kind(NamedTuple):
    name: bytes
    fields: tuple[tuple[int, str], ...]  # place and name of what is told
    tenant_place: int  # -1 = the record does not say
    task_place: int
    transaction_place: int
    status_word: Callable[[int], str]


def _kinds() -> dict[int, _Kind]:
    kinds: dict[int, _Kind] = {}
    for record in BROKER_DESCRIPTION.records:
        if record.type in _HIDDEN:
            continue
        names = [field.name for field in record.fields]
        told = tuple((place, f.name) for place, f in enumerate(record.fields) if f.type is not FieldType.BYTES)
        tenant, task, transaction = (
            names.index(name) if name in names else -1 for name in ("tenant", "task_id", "transaction")
        )
        word = worker_word if record.table == Table.WORKERS else status_word
        kinds[record.type] = _Kind(record.name.encode(), told, tenant, task, transaction, word)
    return kinds


_KINDS = _kinds()


class Event(NamedTuple):
    """One event, ready to be sent.

    Attributes:
        revision: Of its record.
        tenant: Whose; "" = the cluster's, or not known.
        text: As it is sent.

    """

    revision: int
    tenant: str
    text: bytes


class EventDesk:
    """Makes events of entries, once for all readers.

    Args:
        broker: Whose feed it is.

    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # Whose tasks are, and transactions (negative): the most recent ones.
        self._owners: dict[int, str] = {}
        self._prepared: dict[int, list[Event]] = {}
        self._turn = asyncio.Lock()

    async def events(self, entry: FeedEntry) -> list[Event]:
        """Return the events of an entry."""
        async with self._turn:
            found = self._prepared.get(entry.first_revision)
            if found is None:
                found = await self._prepare(entry)
                self._prepared[entry.first_revision] = found
                while len(self._prepared) > _PREPARED_MAX:
                    del self._prepared[next(iter(self._prepared))]
        return found

    async def _prepare(self, entry: FeedEntry) -> list[Event]:
        events: list[Event] = []
        for revision, record in enumerate(entry.records(), entry.first_revision):
            kind = _KINDS.get(record.type)
            if kind is None:
                continue
            told: dict[str, Any] = {"revision": revision, "logged_ms": entry.logged_ms}
            for place, name in kind.fields:
                value = record.fields[place]
                told[name] = kind.status_word(value) if name == "status" else value
            tenant = await self._owner(kind, record.type, record.fields)
            text = b"id: %d\nevent: %s\ndata: %s\n\n" % (revision, kind.name, msgspec.json.encode(told))
            events.append(Event(revision, tenant, text))
        return events

    async def _owner(self, kind: _Kind, record_type: int, fields: tuple[Any, ...]) -> str:
        owners = self._owners
        task_id: int = fields[kind.task_place] if kind.task_place >= 0 else 0
        transaction: int = fields[kind.transaction_place] if kind.transaction_place >= 0 else 0
        if kind.tenant_place >= 0:
            tenant: str = fields[kind.tenant_place]
            if record_type == RecordType.TASK_SUBMITTED:
                self._remember(task_id, tenant)
            if transaction:
                self._remember(-transaction, tenant)
            return tenant
        if not task_id:
            return owners.get(-transaction, "") if transaction else ""
        known = owners.get(task_id)
        if known is None:
            known = await self._ask(task_id)
            self._remember(task_id, known)
        if record_type == RecordType.TASK_REMOVED:
            del owners[task_id]
        return known

    async def _ask(self, task_id: int) -> str:
        result, _ = await self._broker.query(GetTask("", task_id, whole=False))
        return result.tenant if isinstance(result, TaskShown) else ""

    def _remember(self, number: int, tenant: str) -> None:
        if number not in self._owners and len(self._owners) >= _OWNERS_MAX:
            del self._owners[next(iter(self._owners))]
        self._owners[number] = tenant
