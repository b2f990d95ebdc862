"""The way of a Python process to the leader of a log: one client for all tasks that run in it, one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from connectors.sink.options import SinkOptions
from ledger.loop_thread import LoopThread
from rsm_spark.core.writer_marks import MarkedReply, WriterMark

BusyReply = Callable[[bytes], bool]
"""Tells of a refusal of the machine whether it may be over soon."""


class LeaderLink:
    """Connection to the leader of one log.

    Args:
        options: Of the query.

    """

    _present: dict[tuple[str, str | None, str], LeaderLink] = {}  # noqa: RUF012 - of the process

    def __init__(self, options: SinkOptions) -> None:
        from rsm_spark.client.writer_client import WriterClient  # noqa: PLC0415 - most tasks send nothing themselves

        self._pid = os.getpid()
        self._thread = LoopThread("ledger-sink")
        self._client = self._thread.run(
            WriterClient.connect(options.log, options.metadata_uri, rsm_root=options.rsm_root)
        )

    @classmethod
    def of_process(cls, options: SinkOptions) -> LeaderLink:
        """Return that of this process; a forked child has none of its parent's threads and makes its own.

        Raises:
            MetadataUnavailableError: ZooKeeper does not answer.

        """
        key = (options.log, options.metadata_uri, options.rsm_root)
        found = cls._present.get(key)
        if found is None or found._pid != os.getpid():
            found = cls._present[key] = cls(options)
        return found

    def start(self, mark: WriterMark, patience_s: float, is_busy: BusyReply | None = None) -> Future[bytes]:
        """Send a mark; the future has the machine's reply, see `WriterClient.send`."""
        return self._thread.start(self._client.send(mark, patience_s=patience_s, is_busy=is_busy))

    def start_calls(self, marks: Sequence[WriterMark], patience_s: float) -> Future[list[MarkedReply]]:
        """Send calls; the future has what became of each, see `WriterClient.send_calls`."""
        return self._thread.start(self._client.send_calls(marks, patience_s=patience_s))

    def send(self, mark: WriterMark, patience_s: float, is_busy: BusyReply | None = None) -> bytes:
        """Send a mark and wait; see `WriterClient.send`."""
        return self._thread.run(self._client.send(mark, patience_s=patience_s, is_busy=is_busy))
