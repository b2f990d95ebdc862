"""The way of a Python process to the gateways of a plain log: one client for all tasks that run in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import msgspec

from connectors.sink.log_rows import rows_of
from connectors.sink.options import SinkOptions
from ledger.loop_thread import LoopThread
from ledger.tls import TlsSettings
from rsm_spark.core.writer_marks import MarkedReply, MarkedStatus, MarkKind, WriterMark
from rsm_spark.errors import WriterRefusedError

_ENDINGS = frozenset({MarkKind.END, MarkKind.FORGET})
"""Of a writer that is gone, an earlier sending of these was carried out."""


class GatewayLink:
    """Connection to gateways; what they ask for, token and certificates, is found as for replicas.

    Args:
        options: Of the query.

    """

    _present: dict[tuple[str, ...], GatewayLink] = {}  # noqa: RUF012 - of the process

    def __init__(self, options: SinkOptions) -> None:
        from rsm_spark.gateway_client.client import LogGatewayClient  # noqa: PLC0415 - other kinds do without
        from rsm_spark.transport.security import Security  # noqa: PLC0415

        security = Security.from_environment()
        tls = None
        if security.calls_encrypted and all(url.startswith("https:") for url in options.gateways):
            tls = TlsSettings(cert=security.tls_cert, key=security.tls_key, ca=security.tls_ca)
        self._log = options.log
        self._pid = os.getpid()
        self._thread = LoopThread("ledger-sink")
        self._client = self._thread.run(
            LogGatewayClient.connect(options.gateways, token_file=security.token_file, tls=tls)
        )

    @classmethod
    def of_process(cls, options: SinkOptions) -> GatewayLink:
        """Return that of this process; a forked child has none of its parent's threads and makes its own.

        Raises:
            UsageError: An address is none, or would have the token travel in plain text.

        """
        key = (options.log, *options.gateways)
        found = cls._present.get(key)
        if found is None or found._pid != os.getpid():
            found = cls._present[key] = cls(options)
        return found

    def start(
        self,
        mark: WriterMark,
        patience_s: float,
        is_busy: Callable[[bytes], bool] | None = None,  # noqa: ARG002 - as `LeaderLink` has it
    ) -> Future[bytes]:
        """Send a mark and its rows; the future has b"", or how it failed."""
        return self._thread.start(self._send(mark, patience_s))

    def send(
        self,
        mark: WriterMark,
        patience_s: float,
        is_busy: Callable[[bytes], bool] | None = None,  # noqa: ARG002 - as `LeaderLink` has it
    ) -> bytes:
        """Send a mark and its rows, and wait.

        Raises:
            WriterRefusedError: It breaks a rule of writers: another checkpoint, a later run, other rows.
            TransactionIdError: The first row's transaction id is below the log's last one.
            LogError: The gateway refuses it: there is no such log, it has ended, a program writes it.
            GatewayUnavailableError, OutcomeUnknownError: It was not answered in time; running it again is safe.

        """
        return self._thread.run(self._send(mark, patience_s))

    def start_calls(self, marks: Sequence[WriterMark], patience_s: float) -> Future[list[MarkedReply]]:
        """Raise: a plain log takes no calls."""
        raise NotImplementedError(f"{len(marks)} calls of {patience_s} s to a plain log")

    async def _send(self, mark: WriterMark, patience_s: float) -> bytes:
        rows = rows_of(mark.payload)
        if mark.is_passing and mark.kind is MarkKind.WHOLE:
            # A passing writer is gone behind its end: only of one whose rows were taken before does that say nothing.
            chunks = (msgspec.structs.replace(mark, kind=MarkKind.CHUNK),) if rows else ()
            end = msgspec.structs.replace(mark, kind=MarkKind.END, parts=((0, 1),) if rows else (), payload=b"")
            for one in (*chunks, end):
                await self._send(one, patience_s)
            return b""
        payloads, keys = [payload for _, payload, _ in rows], [key for key, _, _ in rows]
        # All rows of a query have transaction ids, or none has.
        txids = [txid for _, _, txid in rows if txid is not None] or None
        reply = await self._client.write_marked(self._log, mark, payloads, keys=keys, txids=txids, timeout_s=patience_s)
        is_gone = reply.status is MarkedStatus.GONE and mark.kind in _ENDINGS
        if reply.status not in (MarkedStatus.APPLIED, MarkedStatus.DONE) and not is_gone:
            raise WriterRefusedError(reply.reason)
        return b""
