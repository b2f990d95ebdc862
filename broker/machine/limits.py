"""Bounds of what clients may ask; over them a clear refusal, never a truncation."""

from __future__ import annotations

DEFAULT_LOG = "broker"
"""Name of a broker's log, where nobody gives another one."""
PAYLOAD_BYTES_MAX = 1024 * 1024
RESULT_BYTES_MAX = 1024 * 1024
ERROR_BYTES_MAX = 4 * 1024
"""Longer error texts are cut by the worker, which says so: they are for people."""
NAME_BYTES_MAX = 200
"""Bytes in UTF-8 of tenants, types, slots, keys, request keys, resources and worker ids."""
BATCH_TASKS_MAX = 5_000
"""Tasks of one submit; their records have to fit one entry of the log."""
TRANSACTION_TASKS_MAX = 50_000
RESOURCES_MAX = 16
"""Different resources that one task asks for."""
PRIORITY_MAX = 1_000_000
"""Bound of a task's priority; -PRIORITY_MAX to PRIORITY_MAX, higher first."""
CODE_BYTES_MAX = 3 * 1024 * 1024
"""Bytes of one code pool."""

AMOUNT_MAX = 1_000_000_000
"""Bound of a resource's amount, of attempts, of any other count."""
GROUP_MAX = 2**31 - 1
ID_MAX = 2**63 - 1
TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999."""
DURATION_MS_MAX = 100 * 366 * 24 * 3_600_000
"""A hundred years."""
THREADS_MAX = 4_000
"""Threads of one worker: the ends of all its runs, if it is lost, have to fit one entry of the log."""
RETRY_BYTES_MAX = 4 * 1024
"""Bytes of one task's own retry policy, JSON."""
DECISION_BYTES_MAX = 4 * 1024 * 1024 - 64 * 1024
"""Bytes of all records of one command, about: they are in one entry."""
