"""Rules of a broker, such as retentions: set by an operator, read by the leader's decisions only."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ledger.options import MIB, SECONDS, Option


class BrokerRules(msgspec.Struct, frozen=True):
    """Rules of a broker; replicas may differ in them, since what is decided by them is logged.

    Attributes:
        ended_max: Ended tasks kept, dead letters too; of more, those go first whose time would be over first.
        requests_max: Replies kept; of more the oldest go first.
        timeout_grace_ms: Given to a worker to end a run that has taken too long, before the broker asks it to.
        purge_tasks_max: Tasks removed in one entry.

    """

    retention_ms: Annotated[
        int, Option("Ended tasks are kept for this time.", name="task_retention_s", unit=SECONDS, ge=0)
    ] = 3_600_000
    dead_retention_ms: Annotated[
        int, Option("Dead letters are kept for this time.", name="dead_retention_s", unit=SECONDS, ge=0)
    ] = 7 * 24 * 3_600_000
    ended_max: int = 500_000
    request_retention_ms: Annotated[
        int, Option("Replies to request keys are kept for this time.", name="request_retention_s", unit=SECONDS, ge=0)
    ] = 3_600_000
    requests_max: int = 500_000
    worker_retention_ms: Annotated[
        int, Option("Dead workers are remembered for this time.", name="worker_retention_s", unit=SECONDS, ge=0)
    ] = 24 * 3_600_000
    timeout_grace_ms: int = 5_000
    purge_tasks_max: int = 1_000
    waiting_max: Annotated[
        int, Option("Most tasks that have not ended. Above it, no task is taken; 0 = no limit.", ge=0)
    ] = 5_000_000
    tenant_waiting_max: Annotated[
        int, Option("Most tasks of one tenant that have not ended, unless its policy says another number.", ge=0)
    ] = 2_000_000
    bytes_max: Annotated[
        int,
        Option(
            "Most MiB of tasks, ended ones too. Above it, no task is taken; 0 = a quarter of the memory limit.",
            name="tasks_mib_max",
            unit=MIB,
            ge=0,
        ),
    ] = 0
    tenant_bytes_max: Annotated[
        int,
        Option(
            "Most MiB of tasks of one tenant, unless its policy says otherwise; 0 = half of what all may have.",
            name="tenant_tasks_mib_max",
            unit=MIB,
            ge=0,
        ),
    ] = 0
    payload_kept_bytes: Annotated[
        int,
        Option(
            "Payloads of finished and cancelled tasks stay until the purge up to this size; larger ones leave at the "
            "end. 1048576 keeps all.",
            name="keep_payload_bytes",
            ge=0,
        ),
    ] = 1_024
