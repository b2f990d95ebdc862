"""Verification as a matter of course: each replica reads back what another one wrote, and tells the leader.

Replicas stand in a ring, by their ids, the leader among them: each copies the newest snapshot of the one after it,
reads the copy's files, and compares what the rows come to with the manifest and with the checkpoint that the log holds
for that revision. The copy becomes a local snapshot, the finding a record of the log (`state.verified`), by which
ledgers are trimmed. A finding that could not be told is told again, to whoever leads then. What is wrong is never
installed, never reported as verified, stays where it is as evidence, and is an alarm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from ledger.errors import LedgerError
from rsm_spark.core.commands import Answer, AnswerStatus, Report, ReportVerified, ReportWithdrawn
from rsm_spark.core.digest import digest_bytes
from rsm_spark.errors import ConnectionLostError, CorruptSnapshotError, RsmError, SnapshotError, SnapshotGoneError
from rsm_spark.log.member import Member
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.peers import Peers
from rsm_spark.runtime.snapshot_proof import checkpoint_difference, unproven
from rsm_spark.runtime.snapshotting import own_place
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest

_LOGGER = logging.getLogger(__name__)
_PASSED_OVER_MAX = 1_000


class Verifier:
    """Verifies the snapshots of the next replica in the ring, and watches over the own ones.

    Args:
        context: Of the replica.
        report_here: Takes a report as the leader that this replica is.
        protect: Tells the local store what is verified.
        hold: Is told the revision of the own verified snapshot when it was found to be there.

    Attributes:
        refused_count: Reports that a leader refused.

    """

    def __init__(
        self,
        context: ReplicaContext,
        report_here: Callable[[Report], Awaitable[Sequence[Answer]]],
        protect: Callable[[], None],
        hold: Callable[[int], None],
    ) -> None:
        self._context = context
        self._report_here = report_here
        self._protect = protect
        self._hold = hold
        self._untold: dict[str, Report] = {}
        # (place, revision) that need not be looked at again. Invariant: at most _PASSED_OVER_MAX.
        self._passed_over: dict[tuple[str, int], None] = {}
        self._scrub_at = 0.0
        self.refused_count = 0

    async def run(self) -> None:
        """Verify, until cancelled."""
        context, settings = self._context, self._context.settings
        self._scrub_at = asyncio.get_running_loop().time() + settings.scrub_s * context.rng.uniform(0.5, 1.0)
        while True:
            await asyncio.sleep(settings.verify_s * context.rng.uniform(0.75, 1.25))
            await self.round()

    async def round(self) -> None:
        """Do once what is due. What fails is logged, and tried again in the next round."""
        for step in (self._tell_untold, self._check_own, self._verify_next):
            try:
                await step()
            except (ConnectionLostError, SnapshotGoneError, LedgerError) as error:
                _LOGGER.info("verification waits: %s", error, extra=self._context.log_extra)
            except RsmError as error:
                _LOGGER.warning("verification failed: %s", error, extra=self._context.log_extra)
            except Exception as error:
                # Whatever a disk or a library raises: verification must not end by it, and not silently.
                self.alarm("verification", f"{type(error).__name__}: {error}")
                _LOGGER.exception("verification failed", extra=self._context.log_extra)
                return
        self._context.alarms.pop("verification", None)

    async def tell(self, report: Report) -> None:
        """Report to the leader, now or as soon as there is one; per place only the newest finding is told.

        Raises:
            ConnectionLostError: Not yet told.

        """
        place = getattr(report, "place", "")
        self._untold[place] = report
        answer = await self._ask(report)
        if answer.status not in (AnswerStatus.OK, AnswerStatus.REFUSED):
            raise ConnectionLostError(f"the report on {place} was answered {answer.status.name}")
        if self._untold.get(place) is report:
            del self._untold[place]
        if answer.status is AnswerStatus.REFUSED:
            self.refused_count += 1
            if isinstance(report, ReportVerified):
                self.pass_over(place, report.revision)
            _LOGGER.warning("report refused: %s", answer.payload.decode(), extra=self._context.log_extra)
        elif isinstance(report, ReportVerified):
            self._context.alarms.pop(place, None)

    async def _ask(self, report: Report) -> Answer:
        context = self._context
        if context.role is ReplicaRole.LEADER or context.peers is None:
            (answer,) = await self._report_here(report)
            return answer
        return await context.peers.report(report)

    async def _tell_untold(self) -> None:
        for report in list(self._untold.values()):
            await self.tell(report)

    # ---- the own disk

    async def _check_own(self) -> None:
        """Withdraw what is verified here if it is gone or damaged."""
        context = self._context
        place = own_place(context.me.replica_id)
        verified = context.state.verified.get(place)
        self._protect()
        if verified is None or not context.state_is_confirmed:
            return
        manifests: list[SnapshotManifest] = await context.run_blocking(context.snapshots.manifests)
        known = (verified.revision, verified.prefix_hash.hex())
        manifest = next((one for one in manifests if (one.revision, one.prefix_hash) == known), None)
        damage: SnapshotDamage | None = None
        loop = asyncio.get_running_loop()
        if manifest is not None and loop.time() >= self._scrub_at:
            self._scrub_at = loop.time() + context.settings.scrub_s
            whole = manifest
            damage = await context.run_blocking(lambda: context.snapshots.scrub(whole))
        if manifest is not None and damage is None:
            self._hold(manifest.revision)
            return
        if context.state.verified.get(place) != verified:
            return  # A newer one was verified meanwhile, and this one need not stay.
        reason = f"the verified snapshot of revision {verified.revision} is gone or damaged"
        if damage is not None:
            reason = f"{reason}: {damage.reason}"
        self.alarm(place, reason)
        await self.tell(ReportWithdrawn(place, context.me.replica_id, reason))

    # ---- the next in the ring

    async def _verify_next(self) -> None:
        context = self._context
        if context.peers is None:
            return
        source = self._next_in_ring(await context.discovery.members())
        if source is None:
            return
        place = own_place(source.replica_id)
        found = await context.peers.list(source.replica_id)
        manifest = self.choose(place, list(found.manifests))
        if manifest is not None:
            await self._verify_replica(context.peers, source, place, manifest)

    def _next_in_ring(self, members: list[Member]) -> Member | None:
        """Return the replica after this one, in the order of ids, the first after the last; None if it is alone."""
        me = self._context.me.replica_id
        others = sorted(
            (one for one in members if one.replica_id != me and one.address), key=lambda one: one.replica_id
        )
        return next((one for one in others if one.replica_id > me), others[0] if others else None)

    def choose(self, place: str, manifests: list[SnapshotManifest]) -> SnapshotManifest | None:
        """Return the newest snapshot of a place that is worth reading: newer than what is verified there."""
        context = self._context
        state = context.state
        verified = state.verified.get(place)
        worth = [
            one
            for one in manifests
            if one.log_id == context.log_id
            and (verified is None or one.revision > verified.revision)
            and (place, one.revision) not in self._passed_over
            and one.revision < context.tip.revision  # The checkpoint comes after it.
        ]
        # One whose checkpoint this replica has applied is certain not to be refused as unknown.
        known = [one for one in worth if state.checkpoints.get(one.revision) is not None]
        return next(iter(known or worth), None)

    async def _verify_replica(self, peers: Peers, source: Member, place: str, manifest: SnapshotManifest) -> None:
        self._protect()
        try:
            self.compare(place, manifest)
            if not await self.is_proven(place, manifest):
                return
            await peers.download(source.replica_id, manifest, read_back=True)
        except CorruptSnapshotError as error:
            self.reject(place, manifest, error)
            return
        await self.tell(finding(manifest, place, source.failure_domain, self._context.me.replica_id))

    # ---- what is found

    def compare(self, place: str, manifest: SnapshotManifest) -> None:
        """Compare a manifest with the checkpoint of its revision, as far as this replica has applied it.

        Raises:
            CorruptSnapshotError: They differ.

        """
        checkpoint = self._context.state.checkpoints.get(manifest.revision)
        if checkpoint is None:
            return  # The leader may know it.
        difference = checkpoint_difference(
            manifest, checkpoint.digest.hex(), checkpoint.row_count, checkpoint.prefix_hash.hex()
        )
        if difference:
            raise CorruptSnapshotError(f"{place}: snapshot of revision {manifest.revision} {difference}")

    async def is_proven(self, place: str, manifest: SnapshotManifest) -> bool:
        """Return whether the log vouches for a snapshot, if it has a key: what is verified is believed later on."""
        context = self._context
        if not context.tip.is_sealed:
            return True
        chain, _ = await context.chains.read()
        reason = await unproven(context, chain, manifest)
        if reason:
            self.pass_over(place, manifest.revision)
            text = f"{place}: snapshot of revision {manifest.revision} is not to be believed: {reason}"
            _LOGGER.warning("%s", text, extra=context.log_extra)
        return not reason

    def reject(self, place: str, manifest: SnapshotManifest, error: SnapshotError) -> None:
        """Note that a snapshot is not what it should be: it is not looked at again, and is an alarm."""
        self.pass_over(place, manifest.revision)
        self.alarm(place, f"snapshot of revision {manifest.revision} is wrong: {error}")

    def alarm(self, place: str, text: str) -> None:
        """Tell the operator, once."""
        alarms, said = self._context.alarms, f"{place}: {text}"
        if alarms.get(place) != said:
            alarms[place] = said
            _LOGGER.error("%s", said, extra=self._context.log_extra)

    def pass_over(self, place: str, revision: int) -> None:
        """Do not look at this snapshot again."""
        self._passed_over[place, revision] = None
        while len(self._passed_over) > _PASSED_OVER_MAX:
            del self._passed_over[next(iter(self._passed_over))]


def finding(manifest: SnapshotManifest, place: str, domain: str, by: str) -> ReportVerified:
    """Return the report on a snapshot whose files were read back and are what the manifest says."""
    return ReportVerified(
        place,
        domain,
        manifest.revision,
        digest_bytes(int(manifest.digest, 16)),
        bytes.fromhex(manifest.prefix_hash),
        manifest.row_count,
        by,
    )
