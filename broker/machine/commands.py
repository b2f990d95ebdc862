"""Commands of the broker: msgpack arrays whose first element is the kind (see `broker.machine.messages`).

Every command is decided whole or refused whole. Tasks that a tenant names are looked for among that tenant's only;
an empty tenant in `Cancel`, `Change`, `ReplayDead` stands for the administrator, who names any.
"""

from __future__ import annotations

import msgspec

from broker.machine.holds import OPERATOR, Author
from broker.machine.policies import TenantPolicy, WorkerOffer


class TaskSpec(msgspec.Struct, frozen=True, array_like=True):
    """One task to submit.

    Attributes:
        type: Routed by it.
        payload: At most `PAYLOAD_BYTES_MAX`.
        at_most_once: It is never run again once it may have run; else it is run until it ends.
        max_attempts: Runs at most; 0 = unlimited; None = the tenant's.
        priority: Among the tenant's own; None = the tenant's.
        group: Of workers' preferences; None = the tenant's.
        resources: Amounts by name, held while it runs.
        slot: Refused while another task of the tenant that is not ended has it; "" = none.
        key: By which the tenant may hold tasks back; "" = none.
        start_ms: Not before; 0 = now.
        delay_ms: Not before so long after now; 0 = none. Only one of the two is given.
        deadline_ms: An error if it has not ended by then; 0 = none.
        ttl_ms: The same, counted from now.
        timeout_ms: Longest run; 0 = none.
        heartbeat_ms: A run of which nothing is heard for so long is lost; 0 = not watched.
        code: Code pool that it needs; "" = the worker's own code.
        mode: How the code is entered: see `broker.worker`.
        retry: JSON of a `RetryPolicy`; "" = the tenant's.

    """

    type: str
    payload: bytes = b""
    at_most_once: bool = False
    max_attempts: int | None = None
    priority: int | None = None
    group: int | None = None
    resources: dict[str, int] = {}
    slot: str = ""
    key: str = ""
    start_ms: int = 0
    delay_ms: int = 0
    deadline_ms: int = 0
    ttl_ms: int = 0
    timeout_ms: int = 0
    heartbeat_ms: int = 0
    code: str = ""
    mode: str = ""
    retry: str = ""


class SubmitTasks(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=1):
    """Submit tasks of one tenant, all or none, but for those whose slot is taken: see `Submitted.refused`.

    Attributes:
        tenant: Whose they are.
        tasks: 1 to `BATCH_TASKS_MAX`.
        request_key: Submitting again with the same key answers the same and submits nothing; "" = none. Kept for
            the broker's request retention.
        transaction: Open transaction of the tenant that they become part of; 0 = none.
        is_bound: The tenant's policy says which types, code pools, resources and groups may be named: of all that a
            tenant submits by itself; what an operator submits for it may be anything.

    """

    tenant: str
    tasks: list[TaskSpec]
    request_key: str = ""
    transaction: int = 0
    is_bound: bool = False


class BeginTransaction(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=2):
    """Begin a transaction; it is rolled back by itself after `ttl_ms`."""

    tenant: str
    ttl_ms: int = 300_000


class CommitTransaction(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=3):
    """Have the tasks of a transaction wait to be run, all at once.

    Committing again what was committed is answered so for as long as requests are kept.
    """

    tenant: str
    transaction: int


class RollbackTransaction(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=4):
    """Forget the tasks of a transaction."""

    tenant: str
    transaction: int


class CancelTasks(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=5):
    """Cancel tasks: those that wait at once, those that run by asking their worker, which confirms."""

    tenant: str
    task_ids: list[int]


class ChangeTasks(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=6):
    """Change tasks that have not ended; None = as it is. What runs already keeps its resources.

    `is_bound`: as of `SubmitTasks`.
    """

    tenant: str
    task_ids: list[int]
    priority: int | None = None
    group: int | None = None
    resources: dict[str, int] | None = None
    deadline_ms: int | None = None
    is_bound: bool = False


class ReplayDead(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=7):
    """Have dead letters (ERROR) wait again, all of them or none; their attempts begin anew.

    Attributes:
        tenant: Whose.
        task_ids: Which; empty = all that fit the rest, at most `BATCH_TASKS_MAX` a command, oldest first.
        type: Only of this type; "" = any.
        outcome: Only with this outcome; "" = any.
        is_bound: As of `SubmitTasks`.

    """

    tenant: str
    task_ids: list[int] = []
    type: str = ""
    outcome: str = ""
    is_bound: bool = False


class DeleteDead(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=9):
    """Forget dead letters (ERROR) before their time; what is none, or none any more, is passed over."""

    tenant: str
    task_ids: list[int]


class SubmitForTenants(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=8):
    """Submit tasks of many tenants, all or none, but for those whose slot is taken.

    Attributes:
        submits: One for each tenant, without a request key and a transaction; `BATCH_TASKS_MAX` tasks in all.

    """

    submits: list[SubmitTasks]


class SetTenant(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=10):
    """Set the policy of a tenant, for waiting tasks too."""

    tenant: str
    policy: TenantPolicy


class RemoveTenant(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=11):
    """Go back to the default policy."""

    tenant: str


class SetHold(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=12):
    """Hold tasks back by tenant, type and key ("" = any; a key needs its tenant).

    Attributes:
        is_paused: Nothing of it is dispatched; what runs goes on.
        is_draining: Nothing of it is accepted any more.
        until_ms: It ends by itself then; 0 = when it is cleared.
        reason: Shown to people.
        by: Who sets it; what an operator has set a tenant can neither end nor replace.

    """

    tenant: str
    type: str
    key: str = ""
    is_paused: bool = True
    is_draining: bool = False
    until_ms: int = 0
    reason: str = ""
    by: Author = OPERATOR


class ClearHold(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=13):
    """End a hold; `by`: see `SetHold`."""

    tenant: str
    type: str
    key: str = ""
    by: Author = OPERATOR


class LimitResource(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=14):
    """Limit what all workers together use of a resource; for one tenant or type, or both, if they are named.

    Attributes:
        amount_max: At once; None = no limit.

    """

    resource: str
    amount_max: int | None
    tenant: str = ""
    type: str = ""


class DeployCode(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=15):
    """Keep an archive under a name; the same name with other bytes is refused.

    Attributes:
        code: Its name.
        archive: A zip, at most `CODE_BYTES_MAX`.
        sha256: Of it, hex.
        ttl_ms: Removed when it is so old and no task that is not ended needs it; 0 = never.

    """

    code: str
    archive: bytes
    sha256: str
    ttl_ms: int = 0


class RemoveCode(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=16):
    """Forget an archive; refused while a task that is not ended needs it."""

    code: str


# ---- what the broker tells itself of its workers


class HeldRun(msgspec.Struct, frozen=True, array_like=True):
    """A run that a worker has in its hands, or has ended without having heard that the broker knows."""

    task_id: int
    assignment_id: int


class EndedRun(msgspec.Struct, frozen=True, array_like=True):
    """The end of a run.

    Attributes:
        task_id: Its task.
        assignment_id: Its assignment; of an older one it is late.
        status: FINISHED, ERROR or CANCELLED.
        outcome: See `broker.machine.statuses.Outcome`.
        error: For people; at most `ERROR_BYTES_MAX`.
        result: At most `RESULT_BYTES_MAX`.

    """

    task_id: int
    assignment_id: int
    status: int
    outcome: str = ""
    error: str = ""
    result: bytes = b""


class ProgressOf(msgspec.Struct, frozen=True, array_like=True):
    """A sign of life of a run.

    Attributes:
        task_id: Its task.
        assignment_id: Its assignment.
        fraction: 0 to 1; -1 = not known.
        message: For people.

    """

    task_id: int
    assignment_id: int
    fraction: float = -1.0
    message: str = ""


class WorkerAppeared(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=20):
    """A worker has opened its stream and said what it has.

    Attributes:
        worker_id: Stable name.
        incarnation: Of its process.
        location: For people: host, or what it likes.
        offer: What it can run.
        delivered_up_to: Highest assignment id that this incarnation ever received; higher ones were not delivered.
        held: Runs in its hands.
        ended: Runs that ended, whose end was not acknowledged.
        stream: The process's number of its stream, above those before; 0 = not said. A hello of a stream that was
            given up may arrive behind that of the next one: what it says was delivered is out of date.

    """

    worker_id: str
    incarnation: str
    location: str
    offer: WorkerOffer
    delivered_up_to: int = 0
    held: list[HeldRun] = []
    ended: list[EndedRun] = []
    stream: int = 0


class WorkerChanged(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=21):
    """A connected worker offers something else, or wants nothing more (`is_draining`)."""

    worker_id: str
    incarnation: str
    offer: WorkerOffer | None = None
    is_draining: bool = False


class WorkerLost(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=22):
    """The stream of a worker is down; `is_dead`: its lease has run out, or it said goodbye."""

    worker_id: str
    incarnation: str
    is_dead: bool = False


class RemoveWorker(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=23):
    """Forget a dead worker."""

    worker_id: str


class ReportRuns(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=24):
    """Report of a worker on its runs; reports on others' runs are ignored.

    Attributes:
        worker_id: Its name.
        incarnation: Its process.
        ended: Ends.
        progress: Signs of life.

    """

    worker_id: str
    incarnation: str
    ended: list[EndedRun] = []
    progress: list[ProgressOf] = []


BrokerCommand = (
    SubmitTasks
    | BeginTransaction
    | CommitTransaction
    | RollbackTransaction
    | CancelTasks
    | ChangeTasks
    | ReplayDead
    | DeleteDead
    | SubmitForTenants
    | SetTenant
    | RemoveTenant
    | SetHold
    | ClearHold
    | LimitResource
    | DeployCode
    | RemoveCode
    | WorkerAppeared
    | WorkerChanged
    | WorkerLost
    | RemoveWorker
    | ReportRuns
)
