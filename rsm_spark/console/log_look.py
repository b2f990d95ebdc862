"""Look at the logs of a cluster: what `rsm status` tells of each, and who reads it, as rows of the console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ledger.client.client import LedgerClient
from ledger.decoding import convert
from ledger.errors import LedgerError
from rsm_spark.cli.doctor import Finding, Grade, look_at_log
from rsm_spark.cli.log_consumers import described_consumers
from rsm_spark.cli.log_machines import LogMachines
from rsm_spark.cli.status import describe_log
from rsm_spark.console.core.view import ConsumerRow, FindingRow, LogRow, ReplicaRow
from rsm_spark.console.replica_links import ReplicaLinks
from rsm_spark.core.chain import LogChain
from rsm_spark.errors import NoSuchLogError, RsmError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.consumers import LogConsumers
from rsm_spark.log.partition_names import is_partitioned

PARTITIONED = "partitioned log"
_AT_ONCE = 16
_STAYS_MAX = 5
_ALARMS_MAX = 10
_REPLICAS_MAX = 50
_CONSUMERS_MAX = 100
_TEXT_MAX = 1_000
_ODD = (KeyError, TypeError, AttributeError, ValueError)


class _Snapshot(msgspec.Struct, frozen=True):
    revision: int
    created_ms: int = 0


class _Said(msgspec.Struct, frozen=True):
    """Status of a replica, as far as it is shown; what is left out is not known."""

    role: str = ""
    phase: str = ""
    revision: int = 0
    behind: int = 0
    lag_ms: int = -1
    logged_ms: int = 0
    row_count: int = 0
    session_count: int = 0
    queued: int = 0
    machine_version: int = 0
    snapshots: tuple[_Snapshot, ...] = ()
    damaged_snapshots: tuple[Any, ...] = ()
    failure: str = ""
    error: str = ""


class LogsLook:
    """See the module.

    Args:
        client: Connected.
        rsm_root: Root of the logs.
        logs_max: So many are looked at, by name.

    """

    def __init__(self, client: LedgerClient, rsm_root: str, logs_max: int) -> None:
        self._client = client
        self._root = rsm_root
        self._logs_max = logs_max
        self._channels = ReplicaLinks()
        self._machines = LogMachines(client, rsm_root)
        self._consumers: dict[str, tuple[ConsumerRow, ...]] = {}

    async def look(
        self, names: Sequence[str], bookies: list[str], *, is_thorough: bool
    ) -> tuple[list[LogRow], list[FindingRow]]:
        """Return the rows of logs, in the order of their names, and what the doctor finds about them.

        Args:
            names: Of the logs.
            bookies: That take entries.
            is_thorough: Look at consumers too.

        Raises:
            MetadataError: The metadata store cannot be asked.

        """
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> tuple[LogRow, list[Finding]] | None:
            async with turns:
                return await self._look_at(name, bookies, is_thorough=is_thorough)

        looked = await asyncio.gather(*(one(name) for name in names[: self._logs_max]))
        await self._channels.end_look()
        found = [each for each in looked if each is not None]
        known = {row.log for row, _ in found}
        self._consumers = {name: rows for name, rows in self._consumers.items() if name in known}
        self._machines.forget_others({row.log_id for row, _ in found})
        findings = [finding_row(finding, row.log) for row, findings in found for finding in findings]
        return [row for row, _ in found], findings

    async def close(self) -> None:
        """Close what was connected."""
        await self._channels.close()

    async def _look_at(
        self, name: str, bookies: list[str], *, is_thorough: bool
    ) -> tuple[LogRow, list[Finding]] | None:
        try:
            status = await describe_log(self._client, name, self._root, bookies, self._channels.ask, self._machines)
            if is_thorough or name not in self._consumers:
                self._consumers[name] = await self._consumer_rows(name, status["revision"])
            row = log_row(status, self._consumers[name])
            return row, look_at_log(status)
        except NoSuchLogError:
            return await self._without_chain(name)
        except (LedgerError, RsmError) as error:
            why = cut(str(error))
        except _ODD as error:
            why = f"what its replicas say is not understood: {cut(repr(error))}"
        return LogRow(log=name, problem=why), [Finding(f"log {name}", Grade.BAD, why)]

    async def _without_chain(self, name: str) -> tuple[LogRow, list[Finding]] | None:
        """Return the row of a partitioned log; None = the log has just been deleted."""
        if not await is_partitioned(self._client.store, name, self._root):
            return None
        seen = "a partitioned log: rsm log info shows its partitions"
        return LogRow(log=name, machine=PARTITIONED, is_plain=True), [Finding(f"log {name}", Grade.GOOD, seen)]

    async def _consumer_rows(self, name: str, revision: int) -> tuple[ConsumerRow, ...]:
        chain, _ = await ChainStore(self._client.store, name, self._root).read()
        present = await LogConsumers(self._client.store, chain.log_id, self._root).present()
        now_ms = time.time_ns() // 1_000_000
        last = max(revision, _last_closed(chain))
        return tuple(consumer_row(one, last) for one in described_consumers(chain, present[:_CONSUMERS_MAX], now_ms))


def log_row(status: Mapping[str, Any], consumers: tuple[ConsumerRow, ...]) -> LogRow:
    """Return the row of what `rsm status --json` says of a log."""
    trim = status["trim"] or {}
    replicas = status["replicas"][:_REPLICAS_MAX]
    machine, is_plain = status["machine"] or "", status["is_plain"]
    leader = status["leader"] or ""
    if is_plain and not leader and replicas:
        leader = str(replicas[0]["replica_id"])  # Its writer tells no status.
    return LogRow(
        log=status["log"],
        log_id=status["log_id"],
        machine=cut(machine),
        is_plain=is_plain,
        leader=cut(leader),
        leader_address=cut(status["leader_address"] or ""),
        epoch=status["leader_epoch"],
        revision=status["revision"],
        log_version=status["log_version"],
        ledger_count=status["ledgers"],
        deleting_count=status["deleting"],
        verified={cut(str(place)): int(revision) for place, revision in list(status["verified"].items())[:_STAYS_MAX]},
        trim_count=len(trim.get("ledger_ids", ())),
        stays=tuple(_stays(one) for one in list(trim.get("blocked", ()))[:_STAYS_MAX]),
        alarms=tuple(cut(str(one)) for one in status["alarms"][:_ALARMS_MAX]),
        replicas=() if is_plain else tuple(replica_row(one) for one in replicas),
        consumers=consumers,
        url=_url(replicas),
        forgotten_by="" if status["forgotten"] is None else cut(status["forgotten"]["by"]),
    )


def replica_row(told: Mapping[str, Any]) -> ReplicaRow:
    """Return the row of what a replica tells; what it should tell and does not is its problem."""
    name, address = cut(str(told["replica_id"])), cut(str(told["address"]))
    try:
        said = convert(dict(told), _Said)
    except msgspec.ValidationError as error:
        return ReplicaRow(replica_id=name, address=address, problem=f"what it says is not understood: {error}")
    problem = said.error or said.failure
    return ReplicaRow(
        replica_id=name,
        address=address,
        role=cut(said.role),
        phase=cut(said.phase),
        revision=said.revision,
        behind=said.behind,
        lag_ms=said.lag_ms if said.logged_ms else -1,
        row_count=said.row_count,
        session_count=said.session_count,
        queued=said.queued,
        machine_version=said.machine_version,
        snapshots=tuple(one.revision for one in said.snapshots[-_STAYS_MAX:]),
        snapshot_ms=max((one.created_ms for one in said.snapshots), default=0),
        damaged_snapshots=len(said.damaged_snapshots),
        problem=cut(problem),
    )


def consumer_row(told: Mapping[str, Any], revision: int) -> ConsumerRow:
    """Return the row of what `rsm log consumers list --json` says of one.

    Args:
        told: By it.
        revision: Of the log, as far as it is known.

    """
    problem = cut(told["problem"])
    return ConsumerRow(
        name=cut(told["name"]),
        what=cut(told["what"]),
        revision=told["revision"],
        behind=0 if problem else max(0, revision - told["revision"]),
        moved_ms=told["moved_ms"],
        held_bytes=told["held_bytes"],
        lost=told["lost_revisions"] or 0,
        problem=problem,
    )


def finding_row(finding: Finding, log: str = "") -> FindingRow:
    """Return a finding of the doctor as it is shown.

    Args:
        finding: What was found.
        log: Log that it is of; "" = it tells of the cluster.

    """
    return FindingRow(cut(finding.what), finding.verdict.value, cut(finding.seen), cut(finding.advice), log)


def _url(replicas: Sequence[Mapping[str, Any]]) -> str:
    leader_first = sorted(replicas, key=lambda one: one.get("role") != "leader")
    urls = [str(url) for one in leader_first if (url := one.get("http_url"))]
    return cut(urls[0]) if urls else ""


def _stays(blocked: Mapping[str, Any]) -> str:
    first, last = blocked["first_ledger_id"], blocked["last_ledger_id"]
    ledgers = f"ledger {first} stays" if first == last else f"ledgers {first} to {last} stay"
    return cut(f"{ledgers}: {blocked['text']}")


def _last_closed(chain: LogChain) -> int:
    ends = [ledger.closed.last_revision for ledger in chain.ledgers if ledger.closed is not None]
    return ends[-1] if ends else 0


def cut(text: str) -> str:
    """Return a text that somebody else has written, not too long."""
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
