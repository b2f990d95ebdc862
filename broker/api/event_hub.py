"""Events made of the records of the log: once for all readers, with the tenant that may see them.

What is bytes (payloads, results, archives) is left out. Whose a task is, records of its states do not say: it is
remembered from its submission, or asked of the state; what was purged since, only the administrator sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from broker.api.documents import status_word, worker_word
from broker.api.ports import Broker
from broker.machine.queries import GetTask
from broker.machine.tables import BROKER_DESCRIPTION, RecordType, Table
from broker.machine.views import TaskView
from rsm_spark.core.machine import FieldType
from rsm_spark.runtime.change_feed import FeedEntry

_OWNERS_MAX = 200_000
_PREPARED_MAX = 8
_HIDDEN = frozenset({RecordType.REQUEST_NOTED, RecordType.REQUEST_FORGOTTEN})


class _Kind(NamedTuple):
    name: bytes
    word: str
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
        kinds[record.type] = _Kind(record.name.encode(), record.name, told, tenant, task, transaction, word)
    return kinds


_KINDS = _kinds()


class _Item:
    """One record that is told: whose it is, and its text once somebody reads it."""

    __slots__ = ("fields", "kind", "revision", "task_id", "tenant", "text")

    def __init__(self, revision: int, kind: _Kind, fields: tuple[Any, ...], tenant: str | None, task_id: int) -> None:
        self.revision = revision
        self.kind = kind
        self.fields = fields
        self.tenant = tenant  # None: it has to be asked; "" = the cluster's, or nobody's who is known
        self.task_id = task_id
        self.text = b""

    def event(self, logged_ms: int) -> bytes:
        """Return the event as it is sent."""
        if not self.text:
            kind = self.kind
            told: dict[str, Any] = {"revision": self.revision, "logged_ms": logged_ms}
            for place, name in kind.fields:
                value = self.fields[place]
                told[name] = kind.status_word(value) if name == "status" else value
            self.text = b"id: %d\nevent: %s\ndata: %s\n\n" % (self.revision, kind.name, msgspec.json.encode(told))
        return self.text


class EventHub:
    """Makes events of entries: what several readers want of a recent entry is made once.

    Args:
        broker: Whose feed it is.

    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # Whose tasks are, and transactions (negative): the most recent ones.
        self._owners: dict[int, str] = {}
        self._prepared: dict[int, list[_Item]] = {}

    async def events(self, entry: FeedEntry, tenant: str, from_revision: int) -> list[bytes]:
        """Return the events of an entry as they are sent.

        Args:
            entry: The entry.
            tenant: Only this one's; "" = all.
            from_revision: Only from this one on.

        """
        items = await self._items(entry, tenant)
        return [
            item.event(entry.logged_ms)
            for item in items
            if item.revision >= from_revision and (not tenant or item.tenant == tenant)
        ]

    async def counts(self, entry: FeedEntry, tenant: str, from_revision: int) -> dict[str, int]:
        """Return how many events of each name an entry has; see `events`."""
        counts: dict[str, int] = {}
        for item in await self._items(entry, tenant):
            if item.revision >= from_revision and (not tenant or item.tenant == tenant):
                name = item.kind.word
                counts[name] = counts.get(name, 0) + 1
        return counts

    async def _items(self, entry: FeedEntry, tenant: str) -> list[_Item]:
        items = self._prepared.get(entry.first_revision)
        if items is None:
            items = self._prepared[entry.first_revision] = self._prepare(entry)
            while len(self._prepared) > _PREPARED_MAX:
                del self._prepared[next(iter(self._prepared))]
        if tenant:
            for item in items:
                if item.tenant is None:
                    item.tenant = await self._ask(item.task_id)
        return items

    def _prepare(self, entry: FeedEntry) -> list[_Item]:
        items: list[_Item] = []
        for revision, record in enumerate(entry.records(), entry.first_revision):
            kind = _KINDS.get(record.type)
            if kind is not None:
                task_id: int = record.fields[kind.task_place] if kind.task_place >= 0 else 0
                tenant = self._owner(kind, record.type, record.fields, task_id)
                items.append(_Item(revision, kind, record.fields, tenant, task_id))
        return items

    def _owner(self, kind: _Kind, record_type: int, fields: tuple[Any, ...], task_id: int) -> str | None:
        transaction: int = fields[kind.transaction_place] if kind.transaction_place >= 0 else 0
        if kind.tenant_place >= 0:
            tenant: str = fields[kind.tenant_place]
            if record_type == RecordType.TASK_SUBMITTED:
                self._remember(task_id, tenant)
            if transaction:
                self._remember(-transaction, tenant)
            return tenant
        if not task_id:
            return self._owners.get(-transaction, "") if transaction else ""
        return self._owners.pop(task_id, None) if record_type == RecordType.TASK_REMOVED else self._owners.get(task_id)

    async def _ask(self, task_id: int) -> str:
        known = self._owners.get(task_id)
        if known is None:
            result, _ = await self._broker.query(GetTask("", task_id, whole=False))
            known = result.tenant if isinstance(result, TaskView) else ""
            self._remember(task_id, known)
        return known

    def _remember(self, number: int, tenant: str) -> None:
        if number not in self._owners and len(self._owners) >= _OWNERS_MAX:
            del self._owners[next(iter(self._owners))]
        self._owners[number] = tenant
