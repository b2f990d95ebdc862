"""A log proved from the log alone: the work behind `jobs/verify.py`.

One pass over the entries links them by their hashes and folds them; a second one, over one change a key and range,
comes to the digest at every checkpoint, snapshot and commit of a follower table at once. What was claimed is compared
with that. Nothing of the service's code takes part: only the formats are shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.delta.proof import FollowerEvidence, follower_evidence
from connectors.errors import ForeignTableError
from connectors.source.look import LogLook
from connectors.state.as_of import AsOf, AsOfKind, LogRange, find_range
from connectors.state.bisection import Bisection
from connectors.state.differences import Difference
from connectors.state.frame import RangeFrames, look_at, sum_rows
from connectors.state.histories import HistoryProof, HistorySums
from connectors.state.lake import lake_of
from connectors.state.links import LinkEnd, Run, link_runs
from connectors.state.steps import BLOCK, CHECKPOINT, PLACE, RUN
from connectors.state.sums import RowSum, StateSums
from ledger.decoding import msgpack_decoder
from rsm_spark.snapshots.manifest import SnapshotManifest

Say = Callable[..., None]


class VerifySettings(msgspec.Struct, frozen=True):
    """Settings of a proof.

    Attributes:
        log: Name of the log.
        lake: Folder or URI of its snapshots; None = none.
        tables: Follower tables.
        revision: Up to this record; None = to the newest.
        source: Further options of the source `ledger`.
        storage_options: For `deltalake`.

    """

    log: str
    lake: str | None = None
    tables: tuple[str, ...] = ()
    revision: int | None = None
    source: dict[str, str] = {}
    storage_options: dict[str, str] = {}


class Covered(msgspec.Struct, frozen=True):
    """Range of the log that the proof covers.

    Attributes:
        first_revision: First record that was folded.
        last_revision: Last one.
        entries: Entries that were linked.
        payload_bytes: Of these.
        begins: With what the fold began, in words.

    """

    first_revision: int
    last_revision: int
    entries: int
    payload_bytes: int
    begins: str


class Verdict(msgspec.Struct, frozen=True):
    """Verdict of a proof.

    Attributes:
        ok: Nothing differs.
        covered: What the proof is about.
        digest: Of the state at the last record, 32 hex digits.
        row_count: Its rows.
        prefix_hash: After the last entry, 64 hex digits.
        checkpoints: Of the leaders, compared.
        snapshots: Revisions of lake snapshots whose place, digest and rows agree.
        tables: Positions compared, by follower table.
        differences: What does not agree, the earliest first.
        verified: The newest snapshot that agrees with a checkpoint of its own revision; None = none does.
        records_per_s: Records folded, by the time it took.
        seconds: All in all.

    """

    ok: bool
    covered: Covered
    digest: str
    row_count: int
    prefix_hash: str
    checkpoints: int
    snapshots: tuple[int, ...]
    tables: dict[str, int]
    differences: tuple[Difference, ...]
    verified: SnapshotManifest | None
    records_per_s: float
    seconds: float


class Claim(NamedTuple):
    """A digest that somebody claims for a state.

    Attributes:
        what: Who claims it.
        revision: Of the state.
        table: One table of it; None = all.
        sum: Digest and count; None = of a history: see `connectors.state.histories`.
        prefix_hash: Of the log up to there, hex; "" = not claimed.
        place: Ledger and entry up to which that hash goes.

    """

    what: str
    revision: int
    table: str | None
    sum: RowSum | None
    prefix_hash: str = ""
    place: tuple[int, int] = (-1, -1)


def verify_log(spark: SparkSession, settings: VerifySettings, say: Say | None = None) -> Verdict:
    """Prove a log, its checkpoints, its snapshots in the lake and its follower tables.

    Args:
        spark: Session.
        settings: What is to be proved.
        say: Told of the progress, as fields of a JSON line.

    Raises:
        ForkedLogError, CorruptLogError: The log is not one unbroken history; the message names ledger and entry.
        MissingLogError: Its beginning was trimmed, and no snapshot takes its place.
        ForeignTableError: A table follows no log, or another one.

    """
    began = time.monotonic()
    tell = say or (lambda **_fields: None)
    options = {**settings.source, "log": settings.log}
    as_of = AsOf() if settings.revision is None else AsOf(AsOfKind.REVISION, revision=settings.revision)
    access, look = look_at(options)
    try:
        lake = lake_of(settings.lake, settings.log, settings.storage_options, access)
        manifests = lake.manifests() if lake is not None else []
        damaged = [
            Difference(f"lake {one.place}", 0, f"{one.place}: {one.reason}") for one in (lake.damaged() if lake else [])
        ]
        while True:
            log_range = find_range(look, settings.log, as_of, manifests, from_oldest=True)
            frames = RangeFrames(spark, log_range, options, lake, settings.storage_options)
            damage = _damage_of_base(frames)
            if damage is None:
                break
            # What is proved must not rest on it: the next one may do.
            damaged.append(damage)
            manifests = [one for one in manifests if one != log_range.base]
        evidence = [_evidence(one, log_range, settings.storage_options) for one in settings.tables]
        return _Proof(frames, look, manifests, evidence, tell).verdict(began, damaged)
    finally:
        access.close()


def _damage_of_base(frames: RangeFrames) -> Difference | None:
    base = frames.log_range.base
    if base is None:
        return None
    name = _snapshot_name(base)
    try:
        found = sum_rows(frames.rows_of(base))
    except PySparkException as error:
        return Difference(name, base.revision, f"{name} cannot be read: {error}")
    if found == (base.digest, base.row_count):
        return None
    return Difference(
        name,
        base.revision,
        f"{name} is damaged: its rows come to digest {found.digest}, {found.row_count} rows, its manifest says "
        f"{base.digest}, {base.row_count} rows; the log before it is gone, so nothing tells which row it is",
    )


def _evidence(place: str, log_range: LogRange, storage_options: Mapping[str, str]) -> FollowerEvidence:
    found = follower_evidence(place, storage_options)
    of_other = next((p for _, p in found.positions if p.log_id != log_range.log_id.hex()), None)
    if of_other is not None:
        raise ForeignTableError(
            f"{place}: this table follows log {of_other.log} with id {of_other.log_id}, not {log_range.log} with id "
            f"{log_range.log_id.hex()}"
        )
    return found


class _Proof:
    """One proof, from what is read to what is found."""

    def __init__(
        self,
        frames: RangeFrames,
        look: LogLook,
        manifests: list[SnapshotManifest],
        evidence: list[FollowerEvidence],
        say: Say,
    ) -> None:
        self._frames, self._log_range, self._look, self._say = frames, frames.log_range, look, say
        first, last = self._log_range.first_revision - 1, self._log_range.revision
        log_id = self._log_range.log_id.hex()
        self._manifests = [
            one
            for one in sorted(manifests, key=lambda one: one.revision)
            if one.log_id == log_id and not one.contradiction and first <= one.revision <= last
        ]
        self._evidence = evidence
        self._positions = {
            one.place: [(v, p) for v, p in one.positions if first <= p.revision <= last and p.entry >= 0]
            for one in evidence
        }

    def verdict(self, began: float, damaged: list[Difference]) -> Verdict:
        """Read, link, fold, compare.

        Args:
            began: When, by the monotonic clock.
            damaged: What was found before.

        """
        claims = [*self._claimed_by_lake(), *self._claimed_by_tables()]
        cuts = sorted(
            {claim.revision for claim in claims} | {self._log_range.revision, self._log_range.first_revision - 1}
        )
        places = frozenset(claim.place for claim in claims if claim.prefix_hash)
        histories = frozenset(one.shape.table for one in self._evidence if one.shape.is_history)
        steps = self._frames.steps(cuts=cuts, places=places, is_summed=True, histories=histories)
        steps = steps.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            others = steps.where(F.col("kind") != BLOCK).collect()
            linked = link_runs(
                [msgpack_decoder(Run).decode(bytes(row.row)) for row in others if row.kind == RUN],
                self._log_range.ledger_ids,
                self._log_range.before,
                self._log_range.first_revision,
                self._log_range.last,
            )
            self._say(linked_entries=linked.entry_count, linked_revision=self._log_range.revision)
            checkpoints = sorted(
                Claim("checkpoint", row.revision, None, RowSum(bytes(row.key).hex(), row.row_count))
                for row in others
                if row.kind == CHECKPOINT and row.revision >= self._log_range.first_revision - 1
            )
            points = sorted({*cuts, *(claim.revision for claim in checkpoints)})
            sums = self._frames.sums_of_steps(steps, points, is_summed=True)
            self._say(folded_states=len(points), checkpoints=len(checkpoints))
            hashes = {(row.ledger_id, row.entry_id): bytes(row.row).hex() for row in others if row.kind == PLACE}
            differences = [*damaged]
            whole = self._compare(sums, [*checkpoints, *claims], hashes, steps, differences)
            return self._verdict(began, sums, linked, {claim.revision for claim in checkpoints}, whole, differences)
        finally:
            steps.unpersist()

    def _claimed_by_lake(self) -> list[Claim]:
        return [
            Claim(
                _snapshot_name(one),
                one.revision,
                None,
                RowSum(one.digest, one.row_count),
                one.prefix_hash,
                (one.ledger_id, one.entry_id),
            )
            for one in self._manifests
        ]

    def _claimed_by_tables(self) -> list[Claim]:
        return [
            Claim(
                f"table {one.place}",
                position.revision,
                position.table,
                None if one.shape.is_history else RowSum(position.digest, position.row_count),
                position.prefix_hash,
                (position.ledger, position.entry),
            )
            for one in self._evidence
            for _, position in self._positions[one.place]
        ]

    def _compare(
        self,
        sums: StateSums,
        claims: list[Claim],
        hashes: Mapping[tuple[int, int], str],
        steps: DataFrame,
        differences: list[Difference],
    ) -> list[SnapshotManifest]:
        """Add what differs to `differences`; return the snapshots that are right."""
        wrong = [claim for claim in claims if claim.sum not in (None, sums.at(claim.revision, claim.table))]
        forked = [
            claim
            for claim in claims
            if claim.prefix_hash and claim.prefix_hash != hashes.get(claim.place, self._hash_before(claim))
        ]
        bisection = Bisection(self._frames, self._look, sums, steps)
        differences += [_fork(claim, hashes.get(claim.place)) for claim in forked]
        checkpoints = [(c.revision, c.sum) for c in claims if c.what == "checkpoint" and c.sum is not None]
        differences += bisection.of_checkpoints(checkpoints)
        whole: list[SnapshotManifest] = []
        for manifest in self._manifests:
            name = _snapshot_name(manifest)
            is_claim_right = not any(claim.what == name for claim in (*wrong, *forked))
            if manifest == self._log_range.base:
                found: list[Difference] = []  # Its rows were read before anything else.
            else:
                rows = self._frames.rows_of(manifest)
                found = bisection.of_rows(name, manifest.revision, rows, None, is_claim_right)
            differences += found
            if not found and is_claim_right:
                whole.append(manifest)
        is_any = any(one.shape.is_history for one in self._evidence)
        histories = HistoryProof(self._frames, sums, HistorySums.of(steps) if is_any else HistorySums(()), bisection)
        for one in self._evidence:
            if one.shape.is_history:
                differences += histories.of_table(one, self._positions[one.place])
                continue
            claims_wrong = {claim.revision for claim in wrong if claim.what == f"table {one.place}"}
            differences += bisection.of_table(one, self._positions[one.place], claims_wrong)
        return whole

    def _verdict(
        self,
        began: float,
        sums: StateSums,
        linked: LinkEnd,
        checkpoints: set[int],
        whole: list[SnapshotManifest],
        differences: list[Difference],
    ) -> Verdict:
        log_range = self._log_range
        total, seconds = sums.at(log_range.revision), time.monotonic() - began
        return Verdict(
            not differences,
            self._covered(linked),
            total.digest,
            total.row_count,
            linked.prefix_hash.hex(),
            len(checkpoints),
            tuple(one.revision for one in whole),
            {one.place: len(self._positions[one.place]) for one in self._evidence},
            tuple(sorted(differences, key=lambda one: (one.revision, one.record))),
            next((one for one in reversed(whole) if one.revision in checkpoints), None),
            round((log_range.revision - log_range.first_revision + 1) / max(seconds, 1e-9), 1),
            round(seconds, 3),
        )

    def _hash_before(self, claim: Claim) -> str:
        """Return the hash where the range begins, which no entry of it ends with."""
        base = self._log_range.base
        is_base = base is not None and claim.place == (base.ledger_id, base.entry_id)
        return self._log_range.before.hex() if is_base else ""

    def _covered(self, linked: LinkEnd) -> Covered:
        log_range, base = self._log_range, self._log_range.base
        begins = "the first record of the log"
        if base is not None:
            begins = (
                f"the lake's snapshot of revision {base.revision}: its rows come to its digest, and the log's next "
                f"entry names its prefix hash; what made it, records 1 to {base.revision}, is not proved again"
            )
        return Covered(log_range.first_revision, log_range.revision, linked.entry_count, linked.payload_bytes, begins)


def _snapshot_name(manifest: SnapshotManifest) -> str:
    return f"lake snapshot of revision {manifest.revision}"


def _fork(claim: Claim, found: str | None) -> Difference:
    ledger, entry = claim.place
    said = f"the log has {found}" if found else "the log has no such entry there"
    return Difference(
        claim.what,
        claim.revision,
        f"{claim.what} names the prefix hash {claim.prefix_hash} after ledger {ledger}, entry {entry}: {said}",
        ledger=ledger,
        entry=entry,
    )
