"""Notes of a leader in the log about operators' acts past every server: orders, and entries that were set aside."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ledger.audit_lines import tell
from rsm_spark.core.batching import Composer, audit_fields
from rsm_spark.core.commands import Audited
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.records import AUDIT_LEVEL, KernelRecord
from rsm_spark.log.admin_requests import PlacedOrder, TrimRequest, WritersRequest
from rsm_spark.log.quarantine import told_by_next_leader
from rsm_spark.runtime.context import ReplicaContext


class LeaderNotes:
    """Notes of one leadership.

    Args:
        context: Of the replica.
        protocol: The leadership.
        wake: Makes the leader compose an entry soon.

    Attributes:
        composer: Of its entries, once it has begun.

    """

    def __init__(self, context: ReplicaContext, protocol: LeaderProtocol, wake: Callable[[], None]) -> None:
        self.composer: Composer | None = None
        self._context = context
        self._protocol = protocol
        self._wake = wake

    def order(self, placed: PlacedOrder, outcome: str) -> None:
        """Have the next entry tell of an order: that it was asked, or what came of it."""
        order, by, log = placed.order, placed.by, self._context.log
        if isinstance(order, WritersRequest) or (isinstance(order, TrimRequest) and order.is_dry_run):
            return
        target = f"log {log}{f': {by.reason}' if by.reason else ''}"
        action = f"order {msgspec.json.encode(order).decode()}"
        audited = Audited(by.name, "operator", by.source, action, target, outcome)
        tell(msgspec.structs.asdict(audited), log=log)
        assert self._protocol.chain is not None
        assert self.composer is not None
        if self._protocol.chain.format_level >= AUDIT_LEVEL:
            self.composer.wanted.append((KernelRecord.AUDITED, audit_fields(audited)))
            self._wake()

    def of_quarantine(self) -> list[tuple[int, tuple[object, ...]]]:
        """Return the records of the first entry that tell who has set entries aside since the last leader began."""
        chain, context = self._protocol.chain, self._context
        assert chain is not None
        told = told_by_next_leader(chain, context.tip.leader_epoch, context.log)
        for one in told:
            tell(msgspec.structs.asdict(one), log=context.log)
        known = told if chain.format_level >= AUDIT_LEVEL else []
        return [(KernelRecord.AUDITED, audit_fields(one)) for one in known]
