"""Result of a task of type `spark_submit`, and how much of what an application writes is kept."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

OUTPUT_BYTES = 64 * 1024
LOG_BYTES = 16 * 1024
_ERROR_BYTES = 3_000
"""Ends of what was written, in an error, which has 4 KiB."""


class SubmittedResult(msgspec.Struct, frozen=True):
    """Result of a task.

    Attributes:
        application_id: Spark's; "" = it was not told.
        submission_id: By which a cluster knows the driver; "" = it ran here.
        ui: Where the driver's pages were; "" = they were not seen.
        seconds: From the start of spark-submit to its end.
        output: End of what it wrote to standard output; of a driver on a cluster the launcher's.
        log: End of what it wrote to standard error; the same.
        session_id: That it had at a warm server; "" = it had a driver of its own.

    """

    application_id: str
    submission_id: str
    ui: str
    seconds: float
    output: str
    log: str
    session_id: str = ""


def failure_text(how: str, names: Sequence[str], *, log: str, output: str) -> str:
    """Return the error of an application that has failed.

    Args:
        how: It ended.
        names: By which Spark knows it; empty ones are left out.
        log: What it and Spark complained of.
        output: What it wrote: of a program in Python that spark-submit runs its complaints are here, too.

    """
    named = ", ".join(name for name in names if name)
    # Each has half, and what the other leaves.
    logged, written = log.strip().encode(errors="replace"), output.strip().encode(errors="replace")
    half = _ERROR_BYTES // 2
    for_log = max(half, _ERROR_BYTES - len(written))
    for_output = max(half, _ERROR_BYTES - min(len(logged), for_log))
    ends = [logged[-for_log:], written[-for_output:]]
    said = "\n".join(end.decode(errors="ignore") for end in ends if end)
    return f"SparkSubmit: {how}{f' ({named})' if named else ''}\n{said}".strip()
