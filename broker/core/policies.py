"""What tenants and workers are entitled to and offer: data, changed by one logged command, in force from then on."""

from __future__ import annotations

import msgspec

__all__ = [
    "ErrorRule",
    "RetryPolicy",
    "TenantPolicy",
    "WorkerOffer",
]


class ErrorRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of a run that failed in a certain way.

    Attributes:
        error: Beginning of the error text, such as "ValueError"; or an outcome in brackets: "[timed_out]".
        retry: Whether it is run again at all.
        max_attempts: Instead of the task's; None = the task's.
        backoff_ms: Instead of the policy's; None = the policy's.

    """

    error: str
    retry: bool = True
    max_attempts: int | None = None
    backoff_ms: int | None = None


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a failed run is repeated: after `backoff_ms`, then `factor` times as long, at most `backoff_ms_max`.

    Attributes:
        backoff_ms: Before the second attempt; 0 = at once. A task whose run was lost is run again at once, unless a
            rule for "[worker_died]" or "[stalled]" names a backoff.
        factor: From one backoff to the next; at least 1.
        backoff_ms_max: Longest backoff.
        jitter: Share of a backoff, 0 to 1, that is spread by the task's id and attempt.
        rules: The first one that fits an error decides.

    """

    backoff_ms: int = 1_000
    factor: float = 2.0
    backoff_ms_max: int = 3_600_000
    jitter: float = 0.1
    rules: tuple[ErrorRule, ...] = ()


class TenantPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Service level of a tenant; a tenant of whom nothing was said has this one as it stands here.

    Attributes:
        weight: Share among tenants with runnable work, relative to the others'; above 0.
        running_max: Tasks running at once; 0 = no bound.
        running_max_by_type: The same by task type.
        waiting_max: Tasks not ended, beyond which submits are refused; 0 = no bound.
        group: Of submitted tasks that name none.
        priority: Of submitted tasks that name none.
        max_attempts: Of submitted tasks that name none; 0 = unlimited.
        retry: Of submitted tasks that name none.
        retention_ms: How long ended tasks are kept; None = the broker's.
        dead_retention_ms: How long dead letters are kept; None = the broker's.

    """

    weight: float = 1.0
    running_max: int = 0
    running_max_by_type: dict[str, int] = {}
    waiting_max: int = 0
    group: int = 1
    priority: int = 0
    max_attempts: int = 0
    retry: RetryPolicy = RetryPolicy()
    retention_ms: int | None = None
    dead_retention_ms: int | None = None


class WorkerOffer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker can run; it may change while the worker is connected.

    Attributes:
        threads_max: Tasks at once.
        threads_by_type: Tasks at once of one type. With `any_type_threads` 0 nothing but these types is run.
        any_type_threads: Tasks at once of each type that `threads_by_type` does not name; None = `threads_max`
            if `threads_by_type` is empty, else 0.
        groups: Groups served, best first; 0 stands for all that are not named, where it stands.
        excluded_groups: Groups that 0 does not stand for.
        resources: Amounts at once on this worker, by resource; others are not limited here.
        tenant_share_percent: Most of a type's threads that one tenant may have here; 0 = all. At least one thread.

    """

    threads_max: int = 1
    threads_by_type: dict[str, int] = {}
    any_type_threads: int | None = None
    groups: tuple[int, ...] = (0,)
    excluded_groups: tuple[int, ...] = ()
    resources: dict[str, int] = {}
    tenant_share_percent: int = 0

    def threads_for(self, task_type: str) -> int:
        """Return how many tasks of a type it runs at once, others aside."""
        named = self.threads_by_type.get(task_type)
        if named is not None:
            return min(named, self.threads_max)
        if self.any_type_threads is not None:
            return min(self.any_type_threads, self.threads_max)
        return 0 if self.threads_by_type else self.threads_max

    def rank_of(self, group: int) -> int | None:
        """Return the place of a group in the order of preference, 0 first; None if it is not served."""
        if group in self.groups:
            return self.groups.index(group)
        if 0 in self.groups and group not in self.excluded_groups:
            return self.groups.index(0)
        return None
