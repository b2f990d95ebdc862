"""Partitioned logs as `rsm log list` and `rsm log info` show them: their layout, and the chains of their partitions."""

from __future__ import annotations

import random
from typing import Any

import typer

from ledger.ports import MetadataStore
from rsm_spark.cli.terminal import print_json, size_words
from rsm_spark.core.partition_layout import partition_log
from rsm_spark.errors import CorruptLogError, NoSuchLogError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.log.discovery import Discovery
from rsm_spark.log.layout_store import LayoutStore


async def list_partitioned(store: MetadataStore, log: str, rsm_root: str, *, as_json: bool) -> None:
    """Print one line about a partitioned log."""
    try:
        described = await _described(store, log, rsm_root)
    except NoSuchLogError:
        return  # It has just been deleted.
    except CorruptLogError as error:
        typer.echo(f"{log}: not shown: {error}", err=True)
        return
    if as_json:
        print_json(described)
        return
    going = ", being deleted" if described["deleting"] else ""
    typer.echo(f"{log}: {len(described['partitions'])} partitions, opened {described['claim']} times{going}")


async def show_partitioned(store: MetadataStore, log: str, rsm_root: str, *, as_json: bool) -> None:
    """Print what is known of a partitioned log."""
    described = await _described(store, log, rsm_root)
    partitions: list[dict[str, Any]] = []
    for partition in range(len(described["partitions"])):
        name = partition_log(log, partition)
        chain, _ = await ChainStore(store, name, rsm_root).read()
        closed = [ledger.closed for ledger in chain.ledgers if ledger.closed is not None]
        partitions.append({
            "log": name,
            "log_id": chain.log_id,
            "ledgers": len(chain.ledgers),
            "closed_position": closed[-1].last_revision if closed else 0,
            "closed_bytes": sum(end.length for end in closed),
            "leader": chain.leader.replica_id if chain.leader is not None else None,
        })  # fmt: skip
    described["partitions"] = partitions
    if as_json:
        print_json(described)
        return
    typer.echo(f"log {log}, id {described['log_id']}: {len(partitions)} partitions")
    typer.echo(f"written by {described['writer']}" if described["writer"] else "nobody writes it now")
    for number, one in enumerate(described["generations"], 1):
        ends = ", ".join(map(str, one["ends"])) or "now"
        typer.echo(f"  generation {number}: {one['partition_count']} partitions, until {ends}")
    for one in partitions:
        typer.echo(
            f"  {one['log']}: {one['ledgers']} ledgers, closed up to position {one['closed_position']} "
            f"({size_words(one['closed_bytes'])})"
        )


async def _described(store: MetadataStore, log: str, rsm_root: str) -> dict[str, Any]:
    layout, _ = await LayoutStore(store, log, rsm_root, rng=random.SystemRandom()).read()
    writers = [member.replica_id for member in await Discovery(store, log, rsm_root).members()]
    return {
        "log": log,
        "log_id": layout.layout_id,
        "claim": layout.claim,
        "writer": ", ".join(writers),
        "deleting": layout.is_deleting,
        "generations": [{"partition_count": one.partition_count, "ends": list(one.ends)} for one in layout.generations],
        "partitions": [partition_log(log, partition) for partition in range(layout.partition_count)],
    }
