"""Settings of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from broker.core.limits import NAME_BYTES_MAX
from broker.core.policies import WorkerOffer
from broker.worker.core.protocol import ProtocolLimits
from broker.worker.executors.children import ChildLimits
from ledger.errors import UsageError
from rsm_spark.core.chain import DEFAULT_RSM_ROOT

__all__ = ["THREADS_MAX", "WorkerSettings"]

THREADS_MAX = 10_000


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker is and offers.

    Attributes:
        worker_id: Stable name; two processes of one name replace each other.
        location: For people; "" = the host's name and the process id.
        threads: Tasks at once.
        types: Tasks at once by type; "*" stands for each type that is not named. Empty = `threads` of each type that
            the executor can run.
        groups: Groups served, best first; 0 stands for all that are not named, where it stands.
        excluded_groups: Groups that 0 does not stand for.
        resources: Amounts at once on this worker.
        tenant_share_percent: Most of a type's threads that one tenant may have here; 0 = all.
        drain_s: When it is asked to end, what runs may take so long to end.
        code_dir: Where archives of code pools are unpacked; None = a folder of its own, removed with it.
        children: How the processes of code pools are treated.
        log: Name of the broker's log, by which the leader is found in the metadata store.
        rsm_root: Root of the logs there.
        limits: Times and sizes of the protocol.

    """

    worker_id: str
    location: str = ""
    threads: int = 4
    types: dict[str, int] = {}
    groups: tuple[int, ...] = (0,)
    excluded_groups: tuple[int, ...] = ()
    resources: dict[str, int] = {}
    tenant_share_percent: int = 0
    drain_s: float = 60.0
    code_dir: Path | None = None
    children: ChildLimits = ChildLimits()
    log: str = "broker"
    rsm_root: str = DEFAULT_RSM_ROOT
    limits: ProtocolLimits = ProtocolLimits()

    def check(self) -> None:
        """Look at the values.

        Raises:
            UsageError: One makes no sense.

        """
        if not self.worker_id or len(self.worker_id.encode()) > NAME_BYTES_MAX:
            raise UsageError(f"worker id {self.worker_id[:80]!r}: expected 1 to {NAME_BYTES_MAX} bytes of UTF-8")
        if not 1 <= self.threads <= THREADS_MAX:
            raise UsageError(f"a worker runs 1 to {THREADS_MAX:,} tasks at once, not {self.threads}")
        if not self.groups:
            raise UsageError("a worker serves one group at least; 0 stands for all")
        for what, amounts in (("type", self.types), ("resource", self.resources)):
            for name, amount in amounts.items():
                if not name or amount < 0:
                    raise UsageError(f"{what} {name!r}: {amount} is no amount; expected a name and 0 or more")
        if not 0 <= self.tenant_share_percent <= 100:
            raise UsageError(f"a tenant's share is 0 to 100 percent, not {self.tenant_share_percent}")

    def offer(self, known_types: Sequence[str] | None) -> WorkerOffer:
        """Return what is offered to the broker.

        Args:
            known_types: What the executor can run; None = whatever comes.

        """
        types = self.types
        if not types and known_types is not None:
            types = dict.fromkeys(known_types, self.threads)
        others = types.get("*")
        return WorkerOffer(
            threads_max=self.threads,
            threads_by_type={name: amount for name, amount in types.items() if name != "*"},
            any_type_threads=others if others is not None else (0 if types else None),
            groups=self.groups,
            excluded_groups=self.excluded_groups,
            resources=self.resources,
            tenant_share_percent=self.tenant_share_percent,
        )
