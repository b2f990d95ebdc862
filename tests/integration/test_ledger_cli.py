"""`rsm ledger` on a real cluster, as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from ledger.exit_codes import ExitCode

_RSM = str(Path(sys.executable).with_name("rsm"))


def rsm(cluster: DevCluster, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
    """Run `rsm ledger …` and return what it printed; on an error, the one line on standard error."""
    done = subprocess.run(
        [_RSM, "ledger", *arguments, "--metadata-uri", cluster.metadata_uri],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr.decode()
    return (done.stderr if code else done.stdout).decode()


def test_lines_go_in_and_come_out(cluster: DevCluster) -> None:
    lines = "".join(f"line {number}\n" for number in range(5000))
    ledger_id, last = rsm(cluster, "append", "--ensemble", "3", stdin=lines.encode()).split()
    assert last == "4999"
    assert rsm(cluster, "read", ledger_id) == lines
    assert rsm(cluster, "tail", ledger_id, "--from", "4998") == "line 4998\nline 4999\n"
    assert rsm(cluster, "read", ledger_id, "--from", "1", "--to", "2") == "line 1\nline 2\n"
    assert rsm(cluster, "recover", ledger_id) == "4999\n"
    rows = [json.loads(row) for row in rsm(cluster, "list", "--json").splitlines()]
    length = len(lines) - 5000
    row = {"ledger_id": int(ledger_id), "state": "CLOSED", "last_entry_id": 4999, "length": length}
    assert row in rows


def test_binary_payloads_go_in_and_come_out(cluster: DevCluster) -> None:
    payloads = [b"\x00\xff\n", b"", b"text"]
    stream = b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)
    taken = json.loads(rsm(cluster, "append", "--length-prefixed", "--json", stdin=stream))
    assert taken["last_entry_id"] == 2
    rows = [json.loads(row) for row in rsm(cluster, "read", str(taken["ledger_id"]), "--json").splitlines()]
    assert [row.get("payload_base64", row.get("payload")) for row in rows] == ["AP8K", "", "text"]


def test_a_created_ledger_takes_one_writer(cluster: DevCluster) -> None:
    ledger_id = rsm(cluster, "create", "--password", "pw").strip()
    refused = rsm(cluster, "append", ledger_id, stdin=b"x\n", code=ExitCode.REFUSED)
    assert "password" in refused
    assert rsm(cluster, "append", ledger_id, "--password", "pw", stdin=b"x\n") == f"{ledger_id}\t0\n"
    refused = rsm(cluster, "append", ledger_id, "--password", "pw", stdin=b"y\n", code=ExitCode.USAGE)
    assert "one writer" in refused
    assert json.loads(rsm(cluster, "info", ledger_id, "--json"))["last_entry_id"] == 0
    assert "pw" not in rsm(cluster, "info", ledger_id)
    rsm(cluster, "delete", ledger_id)
    assert refused.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["read", "999999"], ExitCode.NOT_FOUND, "no such ledger"),
        (["append", "--ensemble", "9"], ExitCode.UNAVAILABLE, "on 9 bookies"),
        (["append", "--ensemble", "2", "--ack-quorum", "3"], ExitCode.USAGE, "ack quorum <= write quorum"),
        (["create", "--digest", "md5"], ExitCode.USAGE, "crc32c"),
    ],
)
def test_an_error_is_one_line_that_says_what(
    cluster: DevCluster, arguments: list[str], code: ExitCode, says: str
) -> None:
    message = rsm(cluster, *arguments, stdin=b"x\n", code=code)
    assert says in message
    assert message.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error(cluster: DevCluster) -> None:
    lines = b"a long line of text, many times\n" * 50_000
    ledger_id = rsm(cluster, "append", stdin=lines).split()[0]
    command = f"{_RSM} ledger read {ledger_id} --metadata-uri '{cluster.metadata_uri}' | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"a long line of text, many times\n"
    assert done.stderr == b""


def test_append_goes_on_when_a_bookie_dies(whole_cluster: DevCluster) -> None:
    before = ledger_ids(whole_cluster)
    command = [_RSM, "ledger", "append", "--json", "--metadata-uri", whole_cluster.metadata_uri]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"".join(b"%d\n" % number for number in range(1000)))
    process.stdin.flush()
    while not (created := ledger_ids(whole_cluster) - before):
        pass  # each look starts a process, which takes long enough
    info = json.loads(rsm(whole_cluster, "info", str(created.pop()), "--json"))
    victim = info["segments"][0]["bookies"][0]
    whole_cluster.kill_bookie(whole_cluster.bookies.index(victim))
    out, err = process.communicate(b"".join(b"%d\n" % number for number in range(1000, 2000)), timeout=60)
    assert process.returncode == 0, err.decode()
    runs = [json.loads(row) for row in out.splitlines()]
    (run,) = runs  # in the same ledger: the third bookie has taken the place of the dead one
    after = json.loads(rsm(whole_cluster, "info", str(run["ledger_id"]), "--json"))
    assert victim not in after["segments"][-1]["bookies"]
    text = rsm(whole_cluster, "read", str(run["ledger_id"]))
    assert text.split() == [str(number) for number in range(2000)]


def ledger_ids(cluster: DevCluster) -> set[int]:
    return {json.loads(row)["ledger_id"] for row in rsm(cluster, "list", "--json").splitlines()}
