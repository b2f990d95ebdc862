"""`rsm cluster placement` and `set-placement`: in how many regions, zones and racks copies lie, and which do not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ledger.cluster_options import ClusterOptions
from ledger.configuration import options_command
from ledger.core.placement_rule import ClusterPlacement, PlacementRule
from ledger.decoding import convert
from ledger.errors import UsageError
from ledger.operator_commands import AuditOptions, audited_command, this_operator
from ledger.replication.placement_report import PlacementReport, report_placement
from ledger.zookeeper.placement_rules import write_placement
from rsm_spark.cli.cluster_link import cluster_ledgers
from rsm_spark.cli.terminal import painted, print_json, printable, run

_SHOWN_MAX = 10
_FILE_BYTES_MAX = 4 << 20


@options_command
def placement(at: ClusterOptions) -> None:
    """Tell the cluster's placement rule, where its bookies stand, and which ledgers break the rule.

    The exit code is 0 if none does, else 1.

    Example: rsm cluster placement --json
    """
    report = run(_look(at))
    if at.json:
        print_json(_facts(report))
    else:
        typer.echo(painted("\n".join(placement_lines(report)), is_good=not report.misplaced))
    if report.misplaced:
        raise typer.Exit(1)


@options_command
def set_placement(
    at: ClusterOptions,
    audit: AuditOptions,
    file: Annotated[
        Path | None, typer.Argument(help="TOML: [rule] with minima, [bookies] with the place of each.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove the rule instead.")] = False,
) -> None:
    """Set the rule by which writers, recoveries and auto-recovery choose bookies, from their next choice on.

    Ledgers stay where they are; `rsm cluster placement` tells those that break the rule.

    Examples:
        rsm cluster set-placement placement.toml

        rsm cluster set-placement --none

    """
    if (file is None) is not none:
        raise UsageError("name the file of the rule, or say --none to remove the rule")
    wanted = None if file is None else read_placement_file(file)
    words = "none" if wanted is None else rule_words(wanted.rule)
    with audited_command(audit.audit_file, "rsm cluster set-placement", words, this_operator()):
        run(_set(at, wanted))
    if at.json:
        print_json({"placement": None if wanted is None else msgspec.to_builtins(wanted)})
    else:
        typer.echo("there is no rule any more" if wanted is None else f"the rule is: {words}")


def read_placement_file(path: Path) -> ClusterPlacement:
    """Return what a file says.

    Raises:
        UsageError: It cannot be read, or says what cannot be meant.

    """
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX).decode()
        found = convert(tomllib.loads(text), ClusterPlacement)
        found.check()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: cannot be read as a placement: {error}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return found


def rule_words(rule: PlacementRule) -> str:
    """Return a rule in words."""
    minima = (("region", rule.regions_min), ("zone", rule.zones_min), ("rack", rule.racks_min))
    parts = [f"{least} {level}s" for level, least in minima if least > 1]
    how = "" if rule.is_strict else ", where the bookies at hand allow it"
    return f"copies of an entry in at least {', '.join(parts)}{how}" if parts else "copies anywhere"


def placement_lines(report: PlacementReport) -> list[str]:
    """Return what `rsm cluster placement` tells in words."""
    found = report.placement
    if found is None:
        return ["there is no rule: each process chooses by its own settings"]
    lines = [f"rule: {rule_words(found.rule)}"]
    lines += [f"  {printable(bookie_id)}  {printable(place)}" for bookie_id, place in sorted(found.bookies.items())]
    if report.unplaced:
        lines.append(f"nobody said where these stand: {printable(', '.join(report.unplaced))}")
    if not report.misplaced:
        lines.append(f"all of {report.ledger_count} ledgers keep the rule")
        return lines
    lines.append(f"{len(report.misplaced)} of {report.ledger_count} ledgers break the rule:")
    for one in report.misplaced[:_SHOWN_MAX]:
        firsts = ", ".join(map(str, one.first_entries[:_SHOWN_MAX]))
        lines.append(f"  ledger {one.ledger_id}, from entries {firsts}")
    if len(report.misplaced) > _SHOWN_MAX:
        lines.append("  …")
    return lines


def _facts(report: PlacementReport) -> dict[str, Any]:
    return {**msgspec.to_builtins(report), "is_kept": not report.misplaced}


async def _look(at: ClusterOptions) -> PlacementReport:
    async with cluster_ledgers(at) as ledgers:
        return await report_placement(ledgers)


async def _set(at: ClusterOptions, wanted: ClusterPlacement | None) -> None:
    async with cluster_ledgers(at) as ledgers:
        await write_placement(ledgers, wanted)
