"""Settings of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from broker.machine.limits import NAME_BYTES_MAX
from broker.machine.policies import WorkerOffer
from broker.worker.core.protocol_limits import ProtocolLimits
from broker.worker.executors.children import ChildLimits
from broker.worker.jail.jails import JailSettings
from broker.worker.option_units import amounts_unit, numbers_unit
from broker.worker.submit.settings import SubmitSettings
from ledger.errors import UsageError
from ledger.options import Option
from rsm_spark.core.chain import DEFAULT_RSM_ROOT

THREADS_MAX = 10_000


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a worker: what it is and what it offers.

    Attributes:
        types: Tasks at once by type; "*" stands for each type that is not named. Empty = `threads` of each type that
            the executor can run.
        children: How the processes of code pools are treated.
        jail: What code that comes with tasks may do.
        submit: How applications of Spark are submitted.
        limits: Times and sizes of the protocol.

    """

    worker_id: Annotated[str, Option("Stable name of this worker.", shown="host and process id")] = ""
    location: Annotated[str, Option("Text that tells people where it runs.", shown="host and process id")] = ""
    threads: Annotated[int, Option("Most tasks at once.", ge=1, le=THREADS_MAX)] = 4
    types: dict[str, int] = {}
    groups: Annotated[
        tuple[int, ...],
        Option(
            "Groups that are served, the best first; 0 = all that are not named.",
            unit=numbers_unit("--groups"),
            metavar="N,…",
        ),
    ] = (0,)
    excluded_groups: Annotated[
        tuple[int, ...],
        Option(
            "Groups that are not served where 0 stands for all others.",
            unit=numbers_unit("--excluded-groups"),
            metavar="N,…",
        ),
    ] = ()
    resources: Annotated[
        dict[str, int],
        Option("Amounts of resources that this worker has.", unit=amounts_unit("--resources"), metavar="NAME=N,…"),
    ] = {}
    tenant_share_percent: Annotated[
        int, Option("Most of a type's threads that one tenant may have, in percent; 0 = all.", ge=0, le=100)
    ] = 0
    drain_s: Annotated[float, Option("After SIGTERM, running tasks have this time to end.", ge=0)] = 60.0
    code_dir: Annotated[
        Path | None, Option("Where archives of code pools are unpacked.", shown="the folder for temporary files")
    ] = None
    children: ChildLimits = ChildLimits()
    jail: JailSettings = JailSettings()
    submit: SubmitSettings = SubmitSettings()
    log: Annotated[str, Option("Name of the broker's log, by which ZooKeeper names the leader.")] = "broker"
    rsm_root: Annotated[str, Option("Root of the logs in ZooKeeper.")] = DEFAULT_RSM_ROOT
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
        self.submit.check()

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
