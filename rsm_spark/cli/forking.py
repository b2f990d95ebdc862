"""Work of `rsm log fork`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import typer

from ledger.client.client import LedgerClient
from ledger.operator_commands import AuditOptions, this_operator
from rsm_spark.backup.fork_snapshots import ForkRequest
from rsm_spark.backup.forking import ForkOutcome, LogFork
from rsm_spark.backup.restoring import RestoreRequest
from rsm_spark.cli.copying import CopyProgress, ForkOptions
from rsm_spark.cli.new_log import made_log, tell_made
from rsm_spark.cli.snapshot_source import CopiedSource, SnapshotSource, find_store, open_replicas
from rsm_spark.cli.terminal import print_json, run
from rsm_spark.core.chain import LogChain
from rsm_spark.core.position import LogPosition
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.commit_log import LogReader
from rsm_spark.runtime.snapshot_proof import unproven_by
from rsm_spark.snapshots.manifest import SnapshotManifest

_RETRY_S = 0.5


def fork_log(log: str, name: str, how: ForkOptions, audit: AuditOptions, log_key: Path | None) -> None:
    """Make a log of another one, and tell what was made."""
    began_s = time.monotonic()
    with made_log(name, how, log_key, audit, "rsm log fork", f"log {log}", this_operator()) as target:
        outcome = run(_fork(log, how, target))
    took_s = time.monotonic() - began_s
    if how.json:
        print_json({**msgspec.to_builtins(outcome), "seconds": round(took_s, 3)})
        return
    typer.echo(
        f"log {name}, id {outcome.log_id}: log {log} up to revision {outcome.revision:,}, {outcome.shared} ledgers "
        f"shared, {outcome.bytes / 1e6:,.1f} MB copied in {took_s:.1f} s"
    )
    tell_made(outcome, how, log_key)


async def _fork(log: str, how: ForkOptions, target: RestoreRequest) -> ForkOutcome:
    async with await how.connect_ledgers() as client, _snapshots(client, log, how) as source:
        chains = ChainStore(client.store, log, how.rsm_root)

        async def _proof(chain: LogChain, manifest: SnapshotManifest) -> str:
            def _reader(position: LogPosition) -> LogReader:
                return LogReader(client, chains, password=None, keys=target.keys, position=position)

            return await unproven_by(_reader, chain, manifest, _RETRY_S)

        request = ForkRequest(
            **msgspec.structs.asdict(target),
            log=log,
            is_independent=how.independent,
            supply=None if source is None else CopiedSource(source),
            proof=_proof,
        )
        return await LogFork(client, request, CopyProgress(f"log {target.name}", how.json)).make()


@asynccontextmanager
async def _snapshots(client: LedgerClient, log: str, how: ForkOptions) -> AsyncIterator[SnapshotSource | None]:
    if how.data_dir is None and how.lake is None:
        yield None
    elif how.from_lake is not None or how.from_data_dir is not None:
        yield await find_store(client, how.rsm_root, how.from_data_dir, how.from_lake, log, how.storage_options_file)
    else:
        async with open_replicas(client, log, how.rsm_root, None) as source:
            yield source
