"""Waiting for the auditor's answer to a request for a look at all ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ledger.errors import CorruptMetadataError, LedgerError, RetryableError
from ledger.replication.audit_records import AuditKind, AuditLook, AuditRecord, AuditRecords
from ledger.replication.election import AuditorElection
from ledger.replication.hints import Hints
from ledger.replication.marks import MarkStore
from ledger.zookeeper.ledgers import LedgerStore

SILENT_S_MAX: Final = 30.0
"""An auditor of ours begins within this time, or tells how far it is."""
_LOOK_S: Final = 5.0


async def wait_for_look(
    ledgers: LedgerStore,
    kind: AuditKind,
    request: int,
    on_progress: Callable[[AuditLook], None],
    *,
    silent_s: float = SILENT_S_MAX,
) -> AuditLook:
    """Wait until a request is answered; return the look that answers it.

    Args:
        ledgers: The cluster.
        kind: Of look.
        request: Its number.
        on_progress: Told of each change of the look under way.
        silent_s: An auditor that says nothing new for this time is not waited for any longer.

    Raises:
        RetryableError: Nobody audits, or the auditor says nothing: it may be BookKeeper's own. The request stands.
        LedgerError: Auto-recovery is switched off for the cluster.

    """
    records = AuditRecords(ledgers.store, ledgers.root)
    marks = MarkStore(ledgers.store, ledgers.root, "")
    hints = Hints()
    loop = asyncio.get_running_loop()
    heard: AuditRecord | None = None
    heard_s = loop.time()
    while True:
        if not await marks.is_enabled(hints):
            raise LedgerError("auto-recovery is switched off for the cluster, nobody audits: rsm autorecovery enable")
        try:
            record = await records.read(kind, hints)
        except CorruptMetadataError:
            record = AuditRecord()  # The look writes it anew.
        if record.last is not None and record.last.request >= request:
            return record.last
        auditor = await AuditorElection(marks).leader()
        if record != heard:
            heard, heard_s = record, loop.time()
            if record.running is not None and record.running.by == auditor:
                on_progress(record.running)
        if loop.time() - heard_s >= silent_s:
            raise RetryableError(_silence(kind, auditor, record, silent_s))
        await hints.wait(min(_LOOK_S, silent_s))


def _silence(kind: AuditKind, auditor: str | None, record: AuditRecord, silent_s: float) -> str:
    if auditor is None:
        return (
            f"nobody audits, so nobody has answered within {silent_s:.0f} s; the request stands. Start one: rsm "
            "autorecovery run, or a bookie without --no-autorecovery"
        )
    why = f"; it said: {record.problem}" if record.problem else ""
    return (
        f"the auditor {auditor} has said nothing of this {kind} for {silent_s:.0f} s{why}; the request stands. If it "
        "is BookKeeper's own, it hears no requests: ask its HTTP port, PUT /api/v1/autorecovery/trigger_audit"
    )
