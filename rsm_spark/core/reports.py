"""Judgement of a leader on others' findings: a snapshot read back, one that is gone, a replica whose state differs.

A snapshot counts as verified when its rows, its place in the log and their digest agree with a checkpoint of that
very revision; the checkpoints are those that this replica has itself checked while applying them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rsm_spark.core.commands import Report, ReportDiverged, ReportVerified, ReportWithdrawn
from rsm_spark.core.kernel_tables import Checkpoint
from rsm_spark.core.records import KernelRecord
from rsm_spark.core.state import ReplicatedState

PLACES_MAX = 1_000
"""Places with a verified snapshot: each is a row of the state."""

NAME_CHARS_MAX = 512
"""Characters in the name of a place, a domain or a reporter."""

CONTRADICTIONS_MAX = 2
"""So many distinct replicas that contradict a leader depose it: one may be wrong itself."""

_DIGEST_BYTES = 16
_HASH_BYTES = 32


class Judgement(NamedTuple):
    """Judgement on a report.

    Attributes:
        refusal: Why it is not accepted; "" if it is.
        record: (type, fields) to be logged first; None if there is nothing to log.

    """

    refusal: str = ""
    record: tuple[int, tuple[Any, ...]] | None = None


def judge_report(state: ReplicatedState, report: Report) -> Judgement:
    """Judge a report on the present state of a leader, without changing it."""
    if isinstance(report, ReportVerified):
        return _judge_verified(state, report)
    if isinstance(report, ReportWithdrawn):
        if report.place not in state.verified:
            return Judgement()
        return Judgement(record=(KernelRecord.SNAPSHOT_WITHDRAWN, (report.place,)))
    return Judgement(_diverged_refusal(state.checkpoints.get(report.revision), report))


def _judge_verified(state: ReplicatedState, report: ReportVerified) -> Judgement:
    names = (report.place, report.domain, report.by)
    if not all(0 < len(name) <= NAME_CHARS_MAX for name in names):
        return Judgement(f"place, domain and reporter need 1 to {NAME_CHARS_MAX} characters each")
    if (len(report.digest), len(report.prefix_hash)) != (_DIGEST_BYTES, _HASH_BYTES):
        return Judgement(f"a digest has {_DIGEST_BYTES} bytes, a prefix hash {_HASH_BYTES}")
    at = f"snapshot of revision {report.revision} at {report.place}"
    known = state.verified.get(report.place)
    if known is not None and known.revision > report.revision:
        return Judgement(f"{at}: that of revision {known.revision} is verified there already")
    if known is None and len(state.verified) >= PLACES_MAX:
        return Judgement(f"{at}: {PLACES_MAX} places are verified already, withdraw those that are gone")
    if known is not None and known.revision == report.revision:
        seen = Checkpoint(known.revision, known.digest, known.row_count, known.prefix_hash)
        return Judgement(_difference(at, seen, report))
    checkpoint = state.checkpoints.get(report.revision)
    if checkpoint is None:
        return Judgement(f"{at}: the leader knows no checkpoint of that revision, verify a newer snapshot")
    refusal = _difference(at, checkpoint, report)
    if refusal:
        return Judgement(refusal)
    fields = (
        report.place,
        report.domain,
        report.revision,
        report.digest,
        report.prefix_hash,
        report.row_count,
        report.by,
    )
    return Judgement(record=(KernelRecord.SNAPSHOT_VERIFIED, fields))


def _difference(at: str, logged: Checkpoint, report: ReportVerified) -> str:
    """Return in what a report contradicts what is logged, or ""."""
    for what, is_, should in (
        ("prefix hash", report.prefix_hash.hex(), logged.prefix_hash.hex()),
        ("row count", report.row_count, logged.row_count),
        ("digest", report.digest.hex(), logged.digest.hex()),
    ):
        if is_ != should:
            return f"{at} is wrong: {report.by} found {what} {is_}, the checkpoint of that revision says {should}"
    return ""


def _diverged_refusal(checkpoint: Checkpoint | None, report: ReportDiverged) -> str:
    if checkpoint is None:
        return f"the leader knows no checkpoint of revision {report.revision}"
    if checkpoint.digest == report.digest:
        return f"the digest of revision {report.revision} is the leader's too"
    return ""
