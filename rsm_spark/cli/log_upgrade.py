"""`rsm log check-upgrade`: what the next version of a machine makes of a log, before it is rolled."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ledger.configuration import options_command
from ledger.options import Option
from rsm_spark.cli.named_machine import ModulePath, load_machine
from rsm_spark.cli.terminal import LogsOptions, print_json, run
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.key_file import KeyFile
from rsm_spark.object_stores.storage_options import StorageFile
from rsm_spark.runtime.lake_names import follow_renames
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.upgrade_check import UpgradeCheck, check_upgrade
from rsm_spark.snapshots.manifest import LakeStore
from rsm_spark.snapshots.pace import no_pace
from rsm_spark.transport.security import Security


class UpgradeOptions(LogsOptions, frozen=True, kw_only=True):
    """Options of the check."""

    log: Annotated[str, Option("Name of the log.", variables=("RSM_LOG",))]
    lake: Annotated[str | None, Option("Snapshots of the log are looked for here too.", metavar="PATH")] = None
    storage_options_file: StorageFile = None
    module_path: ModulePath = None
    log_key: Annotated[Path | None, Option("Key file of the log.", metavar="FILE", variables=("RSM_LOG_KEY",))] = None

    def lake_of(self) -> LakeStore | None:
        """Return the snapshots in the lake; None if none is named."""
        from rsm_spark.snapshots.opening import lake_snapshots  # noqa: PLC0415 - only a check needs Arrow

        return None if self.lake is None else lake_snapshots(self.lake, self.log, self.storage_options_file)


@options_command
def check_upgrade_command(
    machine: Annotated[str, typer.Argument(help="The next version: MODULE:CLASS.", metavar="MODULE:CLASS")],
    at: UpgradeOptions,
) -> None:
    """Fold a log with the next version of its machine, and say what that version changes. Nothing is written.

    It begins with the newest snapshot of a running replica or of the lake, else with the first record. Exit code 1 if
    that version cannot follow the log's, or cannot fold a record.

    Examples:
        rsm log check-upgrade bank:Bank --log bank

    """
    from rsm_spark.snapshots.local import LocalSnapshots  # noqa: PLC0415 - only a check needs Arrow
    from rsm_spark.transport.peer_client import GrpcPeers  # noqa: PLC0415 - as above

    next_version = load_machine(machine, at.module_path)

    async def _check() -> UpgradeCheck:
        keys = None if at.log_key is None else KeyFile.read(at.log_key)
        settings = ReplicaSettings(rsm_root=at.rsm_root, log_keys=keys)
        async with await at.connect_ledgers() as client:
            with tempfile.TemporaryDirectory(prefix="rsm-upgrade-") as folder:
                snapshots = LocalSnapshots(Path(folder), pace=lambda: no_pace)
                discovery = Discovery(client.store, at.log, at.rsm_root)
                peers = GrpcPeers(at.log, discovery, snapshots, Security.from_environment())
                lake = at.lake_of()
                if lake is not None:
                    await follow_renames(lake, client.store, at.log, at.rsm_root)
                return await check_upgrade(
                    client, at.log, next_version, settings=settings, snapshots=snapshots, peers=peers, lake=lake
                )

    found = run(_check())
    if at.json:
        print_json(msgspec.to_builtins(found))
    else:
        _print(found)


def _print(found: UpgradeCheck) -> None:
    began = f"the snapshot of revision {found.snapshot_revision}" if found.snapshot_revision else "the first record"
    typer.echo(
        f"log {found.log}: version {found.code_version} of machine {found.machine} folds it, from {began} to revision "
        f"{found.revision}: {found.row_count:,} rows"
    )
    if found.log_version == found.code_version:
        typer.echo(f"  the log is of version {found.log_version} already")
    for change in found.changes:
        typer.echo(f"  {change}")
