"""Apache BookKeeper's command line and its auto-recovery, on our bookies."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.dev.process import ProcessId, end_all, spawn
from tests.compat.bookies import Bookies, Kind
from tests.compat.java_client import JavaClient, run_shell

pytestmark = pytest.mark.compat

_ENTRIES = 20
_REPLICATED_S_MAX = 90
_EXTRA_CONF = """
auditorPeriodicBookieCheckInterval=5
auditorPeriodicCheckInterval=0
lostBookieRecoveryDelay=0
openLedgerRereplicationGracePeriod=1000
"""


@pytest.fixture(scope="module")
def bookies(java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    return java_bookkeeper("ours", "ours", "ours")


@pytest.fixture(scope="module")
def ledger(java_client: JavaClient, bookies: Bookies) -> int:
    """A closed ledger whose password is the shell's own, which is empty."""
    ledger = int(java_client.call("create", uri=bookies.uri, ledger=0)["ledger"])
    java_client.call("append", uri=bookies.uri, ledger=ledger, n=_ENTRIES)
    java_client.call("close", uri=bookies.uri, ledger=ledger)
    return ledger


@pytest.fixture
def shell(java_jars: Path, bookies: Bookies) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        return run_shell(java_jars, bookies.java_conf(), arguments)

    return run


def test_simpletest_writes_and_reads(shell: Callable[..., str]) -> None:
    output = shell("simpletest", "-ensemble", "3", "-writeQuorum", "3", "-ackQuorum", "2", "-numEntries", "50")
    assert re.search(r"50 entries written to ledger \d+", output), output


def test_readledger_prints_every_entry(shell: Callable[..., str], ledger: int, bookies: Bookies) -> None:
    output = shell("readledger", "-ledgerid", str(ledger), "-m")
    assert output.count("Lid=") == _ENTRIES, output
    output = shell("readledger", "-ledgerid", str(ledger), "-b", bookies.ids[0], "-lastentryid", "5")
    assert output.count("Lid=") == 5, output  # asked of one bookie, the last one is exclusive


def test_ledgermetadata_and_listledgers_tell_of_the_ledger(
    shell: Callable[..., str], ledger: int, bookies: Bookies
) -> None:
    output = shell("ledgermetadata", "-ledgerid", str(ledger))
    assert "state=CLOSED" in output, output
    assert all(bookie_id in output for bookie_id in bookies.ids), output
    assert str(ledger) in shell("listledgers").split(), "not listed"


def test_listbookies_and_bookieinfo_know_all_of_ours(shell: Callable[..., str], bookies: Bookies) -> None:
    output = shell("listbookies", "-rw")
    assert all(bookie_id in output for bookie_id in bookies.ids), output
    output = shell("bookieinfo")
    assert all(bookie_id in output for bookie_id in bookies.ids), output
    assert "Total free disk space in the cluster" in output, output


def test_whatisinstanceid_and_cookie_get_read_what_we_wrote(
    shell: Callable[..., str], bookies: Bookies, tmp_path: Path
) -> None:
    output = shell("whatisinstanceid")
    found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", output)
    assert found is not None, output
    instance_id = found[0]
    output = shell("cookie_get", bookies.ids[0])
    assert f'bookieHost: "{bookies.ids[0]}"' in output, output
    assert instance_id in output, output


def _ours(bookies: Bookies) -> ProcessId:
    program = "from ledger.replication.cli import app; app()"
    command = [sys.executable, "-P", "-c", program, "run", "--metadata-uri", bookies.uri]
    command += ["--lost-bookie-delay-s", "0", "--open-ledger-grace-s", "1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    return spawn(command, log=bookies.folder / "auto-recovery.log", env=environment)


def _java(bookies: Bookies) -> ProcessId:
    conf = bookies.java_conf()
    conf.write_text(conf.read_text() + _EXTRA_CONF)
    main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
    return bookies.spawn_java("auto-recovery", main, "--conf", str(conf))


@pytest.mark.parametrize(
    ("start", "kinds"),
    [
        pytest.param((_java,), ("ours",) * 3, id="java-on-ours"),
        pytest.param((_ours,), ("java",) * 3, id="ours-on-java"),
        pytest.param((_java, _ours), ("java", "ours", "ours"), id="both-on-mixed"),
    ],
)
def test_auto_recovery_copies_what_a_dead_bookie_held(
    java_client: JavaClient,
    java_bookkeeper: Callable[..., Bookies],
    start: tuple[Callable[[Bookies], ProcessId], ...],
    kinds: tuple[Kind, ...],
) -> None:
    bookies = java_bookkeeper(*kinds)
    closed, opened = (int(java_client.call("create", uri=bookies.uri)["ledger"]) for _ in range(2))
    for ledger in (closed, opened):
        java_client.call("append", uri=bookies.uri, ledger=ledger, n=200)
    java_client.call("close", uri=bookies.uri, ledger=closed)
    (spare,) = bookies.start(kinds[-1])
    running = [program(bookies) for program in start]
    victim = bookies.ids[0]
    try:
        bookies.kill(victim)
        deadline = time.monotonic() + _REPLICATED_S_MAX
        for ledger in (closed, opened):
            while victim in json.dumps(java_client.call("metadata", uri=bookies.uri, ledger=ledger)["ensembles"]):
                log = (bookies.folder / "auto-recovery.log").read_text(errors="replace")
                assert time.monotonic() < deadline, log[-6000:]
                time.sleep(0.2)
    finally:
        end_all(running, grace_s=5)
    for ledger in (closed, opened):
        count = java_client.call("entries", uri=bookies.uri, ledger=ledger, bookie=spare)["count"]
        seen = java_client.call("read", uri=bookies.uri, ledger=ledger, recover=True)
        assert (seen["count"], seen["bad"], seen["closed"]) == (200, 0, True)
        assert count == 200
