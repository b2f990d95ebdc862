"""What tenants may not do, judged by rules of its own: end an operator's hold, keep more bytes than their quota.

* `hold-owner`   a ban ends or changes only after an operator asked for it
* `quota`        no task is taken while its tenant keeps as many bytes as it may, a submit's own overhead aside
"""

from __future__ import annotations

from typing import Any

from broker.machine.holds import AuthorRole, author_of
from rsm_spark.core.records import pack
from tests.broker_sim.witness import Witness, fail

__all__ = ["AuditedLocks"]

_SLACK_BYTES = 2_000
"""Rows are a little longer than what was sent, and a submit is taken whole."""


class AuditedLocks:
    """See the module.

    Args:
        witness: Knows the bans that nobody asked to end, and the quota.

    """

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._tenants: dict[int, str] = {}
        self._sizes: dict[int, dict[str, int]] = {}
        self._kept: dict[str, int] = {}

    # ---- holds

    def set_hold(self, row: dict[str, Any]) -> None:
        """Judge a hold that is set."""
        hold = (row["tenant"], row["type"], row["key"])
        if hold in self._witness.bans and author_of(row["reason"])[1].role != AuthorRole.OPERATOR:
            fail("hold-owner", f"the ban {hold} is replaced: {row['reason']}")

    def end_hold(self, row: dict[str, Any]) -> None:
        """Judge the end of a hold."""
        hold = (row["tenant"], row["type"], row["key"])
        if hold in self._witness.bans:
            fail("hold-owner", f"the ban {hold} has ended, no operator asked for it")

    # ---- bytes

    def submitted(self, row: dict[str, Any]) -> None:
        """Judge a task that is taken."""
        tenant, bound = row["tenant"], self._witness.tenant_bytes_max
        kept = self._kept.get(tenant, 0)
        if bound and kept > bound + _SLACK_BYTES:
            fail("quota", f"task {row['task_id']} is taken, tenant {tenant} keeps {kept:,} bytes of {bound:,}")
        self._tenants[row["task_id"]] = tenant
        self.weigh("tasks", row)

    def weigh(self, table: str, row: dict[str, Any]) -> None:
        """Note the present row of a task."""
        task_id = row["task_id"]
        sizes = self._sizes.setdefault(task_id, {})
        self._add(task_id, -sizes.get(table, 0))
        sizes[table] = len(pack([value for name, value in row.items() if name != "task_id"]))
        self._add(task_id, sizes[table])

    def removed(self, task_id: int) -> None:
        """Note that a task is gone."""
        self._add(task_id, -sum(self._sizes.pop(task_id).values()))
        del self._tenants[task_id]

    def _add(self, task_id: int, count: int) -> None:
        tenant = self._tenants[task_id]
        self._kept[tenant] = self._kept.get(tenant, 0) + count
