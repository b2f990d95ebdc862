"""The page about sizes says what the code's defaults, the units and the page of figures say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from ledger.bookie.settings import BookieSettings
from ledger.open_files import FILES_KEPT
from rsm_spark.cli.config import settings_of
from rsm_spark.deploy.configuration import PORTS
from rsm_spark.deploy.plan import ClusterPlan
from rsm_spark.deploy.unit import unit_file
from rsm_spark.transport.connections import PORTS as REPLICA_PORTS
from tests.tidy.test_docs import _anchors

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_PAGE = (_DOCS / "sizing.md").read_text()
_FIGURES = (_DOCS / "figures.md").read_text()
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def _rows(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the first table below a heading, without its head."""
    table = _PAGE.partition(f"\n## {heading}\n")[2].partition("\n| ")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]


def _section(anchor: str) -> str:
    """Return a section of the page of figures."""
    for title, text in re.findall(r"^#{2,3} (.+)\n((?:(?!#{2,3} ).*\n?)*)", _FIGURES, re.MULTILINE):
        if re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") == anchor:
            return str(text)
    raise AssertionError(f"figures.md has no section {anchor}")


def _default(process: str, name: str) -> Any:
    (value,) = [one.value for one in settings_of(process, None) if one.name == name]
    return value


def _measured() -> list[tuple[str, str]]:
    """Return the texts that are said to be measured, each with the section of the page of figures that has it."""
    rows = [(" ".join(cells[1:3]), cells[3]) for cells in _rows("Processor")]
    rows += [(cells[1], cells[2]) for cells in _rows("Memory")]
    found = []
    for text, link in rows:
        (anchor,) = re.findall(r"\(figures\.md#([^)]+)\)", link)
        found.append((text, anchor))
    return found


@pytest.mark.parametrize(("text", "anchor"), _measured())
def test_what_is_measured_is_in_that_section_of_the_figures(text: str, anchor: str) -> None:
    assert anchor in _anchors(_DOCS / "figures.md")
    numbers = _NUMBER.findall(text)
    assert numbers
    known = set(_NUMBER.findall(_section(anchor)))
    assert [number for number in numbers if number not in known] == []


def test_rates_and_shares_that_stand_in_the_text_are_measured_too() -> None:
    (rate, anchor) = re.findall(r"did ([\d,]+) tasks a second .*?\(figures\.md#([^)]+)\)", _PAGE)[0]
    assert rate in _NUMBER.findall(_section(anchor))
    (idle, anchor) = re.findall(
        r"took (\d+) ms of its processor\ntime a second \(\[figures\]\(figures\.md#([^)]+)\)", _PAGE
    )[0]
    (row,) = [line for line in _section(anchor).splitlines() if line.startswith("| what our processes use in a second")]
    assert row.strip("| ").split(" | ")[5].strip() == idle, "of ZooKeeper"


def test_the_example_follows_from_its_table() -> None:
    micros = {cells[0]: [float(cell.replace(",", "")) for cell in cells[1:3]] for cells in _rows("Processor")}
    puts, gets, cores, reserved, leader = (
        float(number.replace(",", ""))
        for number in re.findall(
            r"^([\d,]+) puts and ([\d,]+) gets a second take ([\d.]+) cores, so ([\d.]+) with the reserve; "
            r"([\d.]+) of a core",
            _PAGE,
            re.MULTILINE,
        )[0]
    )
    put, get = micros["put of the map, 64 callers"], micros["linearizable get, 64 callers"]
    taken, of_leader = ((puts * put[column] + gets * get[column]) / 1e6 for column in (0, 1))
    assert (round(taken, 2), round(2 * taken, 1), round(of_leader, 2)) == (cores, reserved, leader)


def test_the_program_prints_what_the_page_says_with_the_defaults_of_the_code() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "sizing.md", "exec"), {})  # noqa: S102 - the page's own
    assert f"It prints `{said.getvalue().strip()}`" in _PAGE
    given = dict(re.findall(r"(\w+_s)=([\d_]+)[,)]", program.partition(":\n")[0]))
    assert given.keys() == {"retention_s", "roll_s", "major_compaction_s"}
    for name, value in given.items():
        process = "bookie" if name.startswith("major") else "store"
        assert float(value) == _default(process, name), name
    assert f"/ {_default('bookie', 'major_compaction_share')} /" in program


@pytest.mark.parametrize(
    ("text", "process", "name", "scale"),
    [
        ("frames that are not whole yet may hold {} MiB", "bookie", "unfinished_mib_max", 1),
        ("ZooKeeper's\nheap is {} MiB", "zookeeper", "heap_mib", 1),
        ("{} MiB that stay free", "bookie", "free_mib_min", 1),
        ("(three are kept", "store", "keep_snapshots", None),
        ("has not read stays longer, {} GiB", "store", "consumer_hold_bytes", 1 << 30),
        ("GiB or {} days of each log at most", "store", "consumer_hold_s", 86_400),
        ("compactions add {} MiB a second", "bookie", "compaction_mib_per_s", 1),
        ("copied after a loss, {} MiB a second", "autorecovery", "copy_mib_per_s", 1),
        ("which is after {} MiB", "store", "roll_bytes", 1 << 20),
        ("{} records or an hour", "store", "roll_records", 1),
        ("one address {} connections at most (`--connections`)", "zookeeper", "connections", 1),
    ],
)
def test_defaults_in_the_text_are_those_of_the_code(text: str, process: str, name: str, scale: int | None) -> None:
    value = _default(process, name)
    assert text.format(f"{value / scale:,.0f}" if scale else "") in _PAGE
    if name == "keep_snapshots":
        assert value == 3


def test_the_journal_has_the_size_of_its_files() -> None:
    settings = BookieSettings(data_dir="", port=1)
    count = settings.journal_file_count + 1
    assert f"{count * settings.journal_file_mib} MiB, always: five files of {settings.journal_file_mib} MiB" in _PAGE
    assert count == 5


def test_ports_connections_and_files_are_those_of_the_code() -> None:
    rows = {cells[0].partition(" of the map")[0]: cells[1:] for cells in _rows("Ports, files and users")}
    kinds = {"replica": "store", "file store": "files", "`rsm node run`": "node", "ZooKeeper": "zookeeper"}
    for name, (ports, connections, files) in rows.items():
        kind = kinds.get(name, name)
        listening = {port for who, port in PORTS.items() if who.split(",")[0] == kind}
        assert {int(port) for port in ports.split(", ")} == listening, name
        if kind in ("node", "zookeeper"):
            assert files == ""
            continue
        option = {"bookie": "connections_max", "store": "connections"}.get(kind, "http_connections")
        most = _default(kind, option)
        assert f"{most:,}" in connections, name
        port_count = {"bookie": 1, "console": 1, "files": REPLICA_PORTS + 1}.get(kind, REPLICA_PORTS)
        assert files.partition(";")[0] == f"{port_count * most + FILES_KEPT:,}", name
    assert sorted(int(port) for cells in rows.values() for port in cells[0].split(", ")) == sorted(PORTS.values())
    assert f"takes {FILES_KEPT} files beside its" in _PAGE


def test_units_permit_what_the_page_says() -> None:
    units = sorted((_ROOT / "examples" / "systemd").glob("*.service"))
    limits = {limit for unit in units for limit in re.findall(r"^LimitNOFILE=(\d+)$", unit.read_text(), re.MULTILINE)}
    (whole,) = re.findall(r"^LimitNOFILE=(\d+)$", unit_file(ClusterPlan(machine=())), re.MULTILINE)
    (each, machine) = re.findall(r"permit each process ([\d,]+) open files, that of a whole machine ([\d,]+)", _PAGE)[0]
    assert (limits, whole) == ({each.replace(",", "")}, machine.replace(",", ""))


def test_users_and_folders_are_those_of_the_deployment() -> None:
    plan = ClusterPlan(machine=())
    (row,) = [line for line in _PAGE.splitlines() if line.startswith(f"| `{plan.user}` (in the image ")]
    assert f"`{plan.state}` (0700) and `{plan.etc}` (0700)" in row
    (image,) = re.findall(r"^USER (\d+):\d+$", (_ROOT / "containers" / "Dockerfile").read_text(), re.MULTILINE)
    assert f"(in the image {image})" in row


def test_metrics_are_known_to_the_page_of_operations_or_to_prometheus() -> None:
    named = re.findall(r"`((?:rsm|bookie|process)_\w+)`", _PAGE.partition("## What your load takes")[2])
    operations = (_DOCS / "operations.md").read_text()
    assert len(named) > 8
    assert [name for name in named if name not in operations and not name.startswith("process_")] == []
