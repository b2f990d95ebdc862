"""Checks of an installation or a cluster, one after the other, each with advice."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from ledger.client.client import LedgerClient
from ledger.errors import LedgerError, UsageError
from ledger.zookeeper_server.errors import JavaError
from ledger.zookeeper_server.java import find_java
from rsm_spark.cli.config import PROCESSES, settings_of
from rsm_spark.cli.extras import say_missing
from rsm_spark.cli.status import mixed_versions

_PACKAGES = ("ledger", "rsm_spark", "broker", "connectors", "pyspark_ledger", "pyspark_ledger_state")
_LIBRARIES = {
    "kazoo": "",
    "grpcio": "",
    "h11": "",
    "msgspec": "",
    "lmdb": "server",
    "pyarrow": "server",
    "prometheus-client": "server",
    "uvloop": "server",
    "deltalake": "delta",
    "boto3": "s3",
    "pyspark": "spark",
    "delta-spark": "spark",
}
_SPARK = "4.2.0"
_CONNECT_S = 3.0
_SLOW_MS = 200.0
_FREE_SHARE_MIN = 0.05
_SECRETS = ("PASSWORD", "SECRET", "TOKEN", "KEY")


class Grade(StrEnum):
    """GOOD: as it should be. NOTE: works, but look at it. BAD: something does not work."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        what: What was looked at.
        verdict: See `Grade`.
        seen: What was found.
        advice: What to do about it; "" if nothing.

    """

    what: str
    verdict: Grade
    seen: str
    advice: str = ""


# ---- this machine


def look_at_here(environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Look at Python, packages, Java, configuration and environment of this process."""
    return [
        _python(),
        *(_package(name) for name in _PACKAGES),
        *_libraries(),
        _java(),
        _jail(),
        *(_configuration(process) for process in PROCESSES),
        *_variables(environment),
    ]


def _python() -> Finding:
    return Finding("Python", Grade.GOOD, f"{sys.version.split()[0]} at {sys.executable}")


def _package(name: str) -> Finding:
    """Say where a package comes from: a folder of the same name in the working directory would hide ours."""
    what = f"package {name}"
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        return Finding(what, Grade.BAD, f"cannot be looked for: {error}", "reinstall rsm-spark")
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or [])]
    place = next((place for place in places if place), "")
    if not place:
        return Finding(what, Grade.BAD, "is not there", "reinstall rsm-spark")
    home = Path(__file__).resolve().parents[2]
    if home not in Path(place).resolve().parents:
        advice = f"it hides that of rsm-spark in {home}: rename that folder, or start Python elsewhere"
        return Finding(what, Grade.BAD, place, advice)
    here = Path(name)
    if here.exists() and here.resolve().parent != home:
        advice = f"Python started here with -m or by Spark takes it for rsm-spark's: rename {here.resolve()}"
        return Finding(what, Grade.NOTE, f"{place}; another one lies in this folder", advice)
    return Finding(what, Grade.GOOD, place)


def _libraries() -> list[Finding]:
    found = []
    for name, extra in _LIBRARIES.items():
        try:
            seen = version(name)
        except PackageNotFoundError:
            advice = f"pip install 'rsm-spark[{extra}]'" if extra else "reinstall rsm-spark"
            found.append(Finding(f"library {name}", Grade.NOTE if extra else Grade.BAD, "is not there", advice))
            continue
        if name == "pyspark" and seen != _SPARK:
            found.append(Finding("library pyspark", Grade.BAD, seen, f"pip install pyspark=={_SPARK}"))
        else:
            found.append(Finding(f"library {name}", Grade.GOOD, seen))
    return found


def _java() -> Finding:
    try:
        return Finding("Java", Grade.GOOD, find_java())
    except JavaError as error:
        return Finding("Java", Grade.NOTE, str(error), "needed for `rsm up` and for Spark only")


def _jail() -> Finding:
    """Say whether a worker on this machine can jail the code that comes with tasks."""
    what = "jail for code that comes with tasks"
    try:
        # By name: the broker's package lies above this one.
        jails: Any = importlib.import_module("broker.worker.jail.jails")
        support = jails.machine_jail(jails.JailSettings().uid_base).support
    except (ImportError, OSError) as error:
        return Finding(what, Grade.NOTE, f"cannot be tried: {error}", "workers here refuse such code")
    if support.missing:
        advice = "workers here refuse such code; see docs/worker-pools.md, or trust all of it with --trust-code"
        return Finding(what, Grade.NOTE, str(support), advice)
    return Finding(what, Grade.GOOD, str(support))


def _configuration(process: str) -> Finding:
    what = f"configuration of rsm {process} run"
    try:
        given = [f"{one.name} ({one.origin})" for one in settings_of(process, None) if one.origin != "default"]
    except UsageError as error:
        return Finding(what, Grade.BAD, str(error), f"the process would not start; rsm config example {process}")
    except LedgerError as error:
        return Finding(what, Grade.NOTE, str(error))
    except ModuleNotFoundError as error:
        return Finding(what, Grade.NOTE, "cannot be read", say_missing(error, f"rsm {process}"))
    return Finding(what, Grade.GOOD, ", ".join(given) or "defaults")


def _variables(environment: Mapping[str, str]) -> list[Finding]:
    """Show what the environment says, without what is secret."""
    found = []
    for name in sorted(environment):
        if name.startswith("RSM_"):
            is_secret = any(word in name for word in _SECRETS) and not name.endswith("_FILE")
            found.append(Finding(f"variable {name}", Grade.GOOD, "(not shown)" if is_secret else environment[name]))
    return found


# ---- the cluster


async def look_at_cluster(client: LedgerClient) -> list[Finding]:
    """Look at the metadata store and the bookies."""
    began = time.perf_counter()
    await client.store.sync("/")
    ms = (time.perf_counter() - began) * 1000
    slow = ms > _SLOW_MS
    metadata = Finding(
        "ZooKeeper",
        Grade.NOTE if slow else Grade.GOOD,
        f"answers a sync in {ms:.0f} ms",
        "slow: take-overs and rolls take several such round trips" if slow else "",
    )
    return [metadata, *await look_at_bookies(client)]


async def look_at_bookies(client: LedgerClient) -> list[Finding]:
    """Connect to every registered bookie."""
    writable = await client.ledgers.writable_bookies()
    read_only = await client.ledgers.read_only_bookies()
    found = [await _bookie(client, bookie_id) for bookie_id in [*writable, *read_only]]
    found += [
        Finding(f"bookie {bookie_id}", Grade.NOTE, "is read-only", "look at its free space and its log")
        for bookie_id in read_only
    ]
    if len(writable) < 2:
        advice = "a log needs two writable bookies: start one (`rsm bookie run`), or `rsm up` for development"
        found.append(Finding("bookies", Grade.BAD, f"{len(writable)} writable", advice))
    else:
        found.append(Finding("bookies", Grade.GOOD, f"{len(writable)} writable"))
    return found


async def _bookie(client: LedgerClient, bookie_id: str) -> Finding:
    what = f"bookie {bookie_id}"
    try:
        address = await client.ledgers.bookie_address(bookie_id)
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(*address)
        writer.close()
    except (OSError, LedgerError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else str(error)
        return Finding(what, Grade.BAD, f"cannot be reached: {why}", "is it running, can this machine reach it?")
    return Finding(what, Grade.GOOD, f"listens on {address[0]}:{address[1]}")


def look_at_log(status: Mapping[str, Any]) -> list[Finding]:
    """Judge what `rsm status --json` says of one log."""
    what = f"log {status['log']}"
    found = []
    forgotten = status.get("forgotten")
    if forgotten is not None:
        since = time.strftime("%Y-%m-%d", time.gmtime(forgotten["at_ms"] / 1000))
        seen = f"is served no more, as {forgotten['by']} said on {since}"
        return [Finding(what, Grade.NOTE, seen, f"rsm log delete {status['log']}, or start a replica")]
    if status.get("is_plain"):
        writers = ", ".join(str(one["replica_id"]) for one in status["replicas"])
        seen = f"a plain log, written by {writers}" if writers else "a plain log that nobody writes now"
        return [Finding(what, Grade.GOOD, seen)]
    if status["leader"] is None:
        advice = "are two bookies writable, and is a replica running that may lead? See the replicas' logs"
        if not status["replicas"]:
            advice = (
                f"start a replica. If nobody is to serve it any more: rsm log delete {status['log']}, or rsm doctor "
                f"--forget {status['log']}, which keeps it"
            )
        found.append(Finding(what, Grade.BAD, "has no leader", advice))
    else:
        found.append(Finding(what, Grade.GOOD, f"led by {status['leader']}, revision {status['revision']:,}"))
    if mixed := mixed_versions(status):
        advice = "replace the others too; the leader then raises the log, or `rsm log raise-version` does"
        found.append(Finding(what, Grade.NOTE, mixed, advice))
    for replica in status["replicas"]:
        name = f"{what}, replica {replica['replica_id']}"
        if "error" in replica:
            found.append(Finding(name, Grade.BAD, replica["error"], _unreached(replica["error"])))
        elif replica["failure"]:
            found.append(Finding(name, Grade.BAD, replica["failure"], "see docs/operations.md"))
        elif replica["damaged_snapshots"]:
            count = len(replica["damaged_snapshots"])
            advice = "others are used; look at its disk, then remove them"
            found.append(Finding(name, Grade.NOTE, f"{count} damaged snapshots", advice))
        else:
            found.append(Finding(name, Grade.GOOD, f"{replica['role']}, {replica['behind']:,} revisions behind"))
    if len(status["replicas"]) == 1:
        found.append(Finding(what, Grade.NOTE, "one replica", "start a second one: a single one has no successor"))
    found += [Finding(what, Grade.BAD, alarm, "see docs/operations.md") for alarm in status["alarms"]]
    return found


def _unreached(error: str) -> str:
    """Return what to do about a replica that gave no answer."""
    if "certificate has expired" in error.lower():
        return "make new certificates: rsm init-cluster --renew; see docs/operations.md, A certificate has expired"
    return "is it running, can this machine reach it?"


def look_at_disk(folder: Path) -> Finding:
    """Look at the room where a process keeps its data."""
    what = f"disk of {folder}"
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return Finding(what, Grade.BAD, f"cannot be looked at: {error.strerror}", "is it mounted?")
    seen = f"{usage.free >> 20:,} MiB free of {usage.total >> 20:,}"
    if usage.free < usage.total * _FREE_SHARE_MIN:
        return Finding(what, Grade.NOTE, seen, "make room before it is full")
    return Finding(what, Grade.GOOD, seen)
