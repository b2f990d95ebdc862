"""Bounds of what clients may ask; over them a clear refusal, never a truncation."""

from __future__ import annotations

__all__ = [
    "BATCH_TASKS_MAX",
    "CODE_BYTES_MAX",
    "ERROR_BYTES_MAX",
    "NAME_BYTES_MAX",
    "PAYLOAD_BYTES_MAX",
    "PRIORITY_MAX",
    "RESOURCES_MAX",
    "RESULT_BYTES_MAX",
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
