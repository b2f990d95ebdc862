"""A replica of a map whose queue holds few requests, and which tells when it refused some of the sink.

python -m tests.spark.short_queue_store FILE …: FILE is there once it did; the rest is what `rsm store` takes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rsm_spark.core.commands import AnswerStatus
from rsm_spark.core.writer_marks import MAGIC
from rsm_spark.map.cli.store import app
from rsm_spark.runtime.serving import Serving
from rsm_spark.server.replica_options import ReplicaOptions

REQUESTS_MAX = 800
"""Requests that wait for their entry, half of them of one address; more are answered OVERLOADED."""


def _shorten(told: Path) -> None:
    complete, refused = ReplicaOptions.complete, Serving._refused

    def complete_with_few(self: ReplicaOptions, settings: Any) -> Any:
        settings = complete(self, settings)
        replica = msgspec.structs.replace(settings.replica, queue_requests_max=REQUESTS_MAX)
        return msgspec.structs.replace(settings, replica=replica)

    def refuse_and_tell(self: Serving, status: AnswerStatus, requests: Sequence[Any], reason: bytes = b"") -> Any:
        if status is AnswerStatus.OVERLOADED and requests[0].payload.startswith(MAGIC):
            told.touch()
        return refused(self, status, requests, reason)

    ReplicaOptions.complete = complete_with_few  # type: ignore[method-assign]
    Serving._refused = refuse_and_tell  # type: ignore[method-assign]


if __name__ == "__main__":
    _shorten(Path(sys.argv.pop(1)))
    app(prog_name="rsm store")
