"""Bounds of what clients may ask; over them a clear refusal, never a truncation."""

from __future__ import annotations

__all__ = [
    "AMOUNT_MAX",
    "BATCH_TASKS_MAX",
    "CODE_BYTES_MAX",
    "DECISION_BYTES_MAX",
    "DURATION_MS_MAX",
    "ERROR_BYTES_MAX",
    "GROUP_MAX",
    "ID_MAX",
    "NAME_BYTES_MAX",
    "PAYLOAD_BYTES_MAX",
    "PRIORITY_MAX",
    "RESOURCES_MAX",
    "RESULT_BYTES_MAX",
    "RETRY_BYTES_MAX",
    "THREADS_MAX",
    "TIME_MS_MAX",
    "TRANSACTION_TASKS_MAX",
]

PAYLOAD_BYTES_MAX = 1024 * 1024
RESULT_BYTES_MAX = 1024 * 1024
ERROR_BYTES_MAX = 4 * 1024
"""Longer error texts are cut by the worker, which says so: they are for people."""
NAME_BYTES_MAX = 200
"""Of tenants, types, slots, keys, request keys, resources, worker ids; UTF-8."""
BATCH_TASKS_MAX = 5_000
"""Tasks of one submit; their records have to fit one entry of the log."""
TRANSACTION_TASKS_MAX = 50_000
RESOURCES_MAX = 16
"""Different resources that one task asks for."""
PRIORITY_MAX = 1_000_000
"""Of a task; -PRIORITY_MAX to PRIORITY_MAX, higher first."""
CODE_BYTES_MAX = 3 * 1024 * 1024
"""Of one code pool."""

AMOUNT_MAX = 1_000_000_000
"""Of a resource, of attempts, of any other count."""
GROUP_MAX = 2**31 - 1
ID_MAX = 2**63 - 1
TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999."""
DURATION_MS_MAX = 100 * 366 * 24 * 3_600_000
"""A hundred years."""
THREADS_MAX = 4_000
"""Of one worker: what becomes of all its runs when it is lost has to fit one entry of the log."""
RETRY_BYTES_MAX = 4 * 1024
"""Of one task's own retry policy, JSON."""
DECISION_BYTES_MAX = 4 * 1024 * 1024 - 64 * 1024
"""Of all records of one command, about: they are in one entry."""
