"""Policies of tenants and offers of workers: data, changed by one logged command, in force from then on."""

from __future__ import annotations

import msgspec

SPARK_PYTHON = "spark_python"
"""Type of functions of code pools that are given a session of Spark."""
SPARK_SUBMIT = "spark_submit"
"""Type of whole applications that a worker hands to Spark."""
GUARDED_TYPES = frozenset({"spark_sql", SPARK_PYTHON, SPARK_SUBMIT})
"""Types whose tasks reach further than a task should: a statement calls Java's methods on the pool's driver, and with a
session of Spark a function, or an application, reaches what executors do."""


class ErrorRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rule for runs that failed with a certain error.

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
    """Policy for repeating failed runs: after `backoff_ms`, then `factor` times as long, at most `backoff_ms_max`.

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
        waiting_max: Tasks not ended, beyond which submits are refused; 0 = the broker's bound for one tenant.
        group: Of submitted tasks that name none.
        priority: Of submitted tasks that name none.
        max_attempts: Of submitted tasks that name none; 0 = unlimited.
        retry: Of submitted tasks that name none.
        retention_ms: How long ended tasks are kept; None = the broker's.
        dead_retention_ms: How long dead letters are kept; None = the broker's.
        bytes_max: Bytes of tasks kept, their payloads, results and errors included, beyond which submits are refused;
            0 = the broker's bound for one tenant.
        types: Types that the tenant may name; None = all but `GUARDED_TYPES`. "mail*" stands for all that begin so,
            but never for a guarded one: those are named in full.
        codes: Code pools that it may name; the same.
        resources: Resources that it may name; None = all. The same.
        groups: Groups that it may name beside `group`; None = all.

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
    bytes_max: int = 0
    types: tuple[str, ...] | None = None
    codes: tuple[str, ...] = ()
    resources: tuple[str, ...] | None = None
    groups: tuple[int, ...] | None = None

    @property
    def format_level(self) -> int:
        """Lowest format level of a log that can hold it: older versions do not know all of it."""
        newer = (self.bytes_max, self.types, self.codes, self.resources, self.groups)
        return 1 if newer == (0, None, (), None, None) else 2


class WorkerOffer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Offer of a worker: what it can run; it may change while the worker is connected.

    Attributes:
        threads_max: Tasks at once.
        threads_by_type: Tasks at once of one type. With `any_type_threads` 0 nothing but these types is run.
        any_type_threads: Tasks at once of each type that `threads_by_type` does not name; None = `threads_max`
            if `threads_by_type` is empty, else 0.
        groups: Groups served, best first; 0 stands for all that are not named, where it stands.
        excluded_groups: Groups that 0 does not stand for.
        resources: Amounts at once on this worker, by resource; others are not limited here.
        tenant_share_percent: Most of a type's threads that one tenant may have here; 0 = all. At least one thread.
        tenants: Whose tasks alone it is given; None = of all. The broker says so by the worker's credential, never the
            worker itself.

    """

    threads_max: int = 1
    threads_by_type: dict[str, int] = {}
    any_type_threads: int | None = None
    groups: tuple[int, ...] = (0,)
    excluded_groups: tuple[int, ...] = ()
    resources: dict[str, int] = {}
    tenant_share_percent: int = 0
    tenants: tuple[str, ...] | None = None

    @property
    def format_level(self) -> int:
        """Lowest format level of a log that can hold it; see `TenantPolicy.format_level`."""
        return 1 if self.tenants is None else 2

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
