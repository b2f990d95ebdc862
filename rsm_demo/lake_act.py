"""An act between the two: the log proves what was made of it, and answers for its own past."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from rsm_demo.child import Child, ChildFailedError
from rsm_demo.stack import LOG, Stack

_PROOF_S_MAX = 600.0
_PART = 0.5


class LakeOutcome(msgspec.Struct):
    """Part of the last JSON line about the proof and about the past.

    Attributes:
        ok: Nothing differs, and the past holds less than the present.
        proved_entries: Entries whose hashes were linked.
        proved_checkpoints: Checkpoints of the leaders that the fold came to as well.
        proved_commits: Commits of the Delta table, likewise.
        records_per_s: Records proved, by the time it took.
        differences: What does not agree, in words.
        asked_revision: The past that was asked for.
        rows_then: Rows of the map right after that record.
        rows_now: Rows now.
        flights_then: Flights in these rows, then.
        flights_now: And now.

    """

    ok: bool
    proved_entries: int
    proved_checkpoints: int
    proved_commits: int
    records_per_s: float
    differences: list[str]
    asked_revision: int
    rows_then: int
    rows_now: int
    flights_then: int
    flights_now: int


class LakeAct:
    """One run of it; the materializer has stopped or stands still.

    Args:
        stack: The processes; bookies run.
        tell: Called with what happened.

    """

    def __init__(self, stack: Stack, tell: Callable[[str], None]) -> None:
        self._stack = stack
        self._tell = tell

    async def run(self, newest_revision: int) -> LakeOutcome:
        """Prove the log, then ask for the state of half of it.

        Args:
            newest_revision: Of the log, at least.

        """
        asked = max(1, int(newest_revision * _PART))
        self._tell("Spark proves the log from the log alone: hashes, checkpoints, every commit of the Delta table")
        command = [sys.executable, "-P", "-m", "rsm_demo.prover", self._stack.metadata_uri, LOG, str(self._stack.table)]
        child = await Child.start("prover", [*command, str(asked)], log_dir=self._stack.log_dir)
        try:
            await child.until(lambda said: "verdict" in said, timeout_s=_PROOF_S_MAX, what="proving the log")
            self._tell_proof(child.said["verdict"])
            await child.until(
                lambda said: "tail" in said, timeout_s=_PROOF_S_MAX, what=f"the state at revision {asked}"
            )
        except ChildFailedError:
            self._tell("the proof could not be made")
            raise
        finally:
            await child.stop()
        outcome = _outcome(child.said, asked)
        tail, then, now = (child.said[name] for name in ("tail", "then", "now"))
        self._tell(
            f"asked for the past: at revision {asked:,} the map had {then['rows']:,} aircraft and {then['flights']:,} "
            f"flights, now {now['rows']:,} and {now['flights']:,}"
        )
        self._tell(f"{tail} was then {_account(then['account'])}, and is now {_account(now['account'])}")
        return outcome

    def _tell_proof(self, verdict: dict[str, object]) -> None:
        covered = msgspec.convert(verdict["covered"], dict[str, int | str])
        if not verdict["ok"]:
            for one in msgspec.convert(verdict["differences"], list[dict[str, object]])[:3]:
                self._tell(f"NOT what the log says: {one['text']}")
            return
        self._tell(
            f"proved: {covered['entries']:,} entries, {covered['last_revision']:,} records, {verdict['checkpoints']} "
            f"checkpoints, {sum(msgspec.convert(verdict['tables'], dict[str, int]).values())} commits of the table; "
            f"{verdict['records_per_s']:,.0f} records/s"
        )


def _outcome(said: dict[str, object], asked: int) -> LakeOutcome:
    verdict = msgspec.convert(said["verdict"], dict[str, object])
    then, now = (msgspec.convert(said[name], dict[str, object]) for name in ("then", "now"))
    differences = msgspec.convert(verdict["differences"], list[dict[str, object]])
    counts = {name: msgspec.convert(value, int) for name, value in (
        ("rows_then", then["rows"]), ("rows_now", now["rows"]),
        ("flights_then", then["flights"]), ("flights_now", now["flights"]),
    )}  # fmt: skip
    return LakeOutcome(
        ok=bool(verdict["ok"]) and counts["flights_then"] < counts["flights_now"],
        proved_entries=msgspec.convert(verdict["covered"], dict[str, object])["entries"],  # type: ignore[arg-type]
        proved_checkpoints=msgspec.convert(verdict["checkpoints"], int),
        proved_commits=sum(msgspec.convert(verdict["tables"], dict[str, int]).values()),
        records_per_s=msgspec.convert(verdict["records_per_s"], float),
        differences=[str(one["text"]) for one in differences],
        asked_revision=asked,
        **counts,
    )


def _account(account: list[object] | None) -> str:
    return "not there yet" if account is None else f"at {account[0]} after {account[1]:,} flights"
