"""Commands on the files of a real bookie: sound after its end, refused while it runs, damage found and made good."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.wire.codes import Status
from ledger.wire.packets import ReadRequest
from tests.integration.bookie_process import KEY, Bookie, Client, add


@pytest.fixture
def bookie(zookeeper, tmp_path, unique_name):
    made = Bookie(zookeeper, tmp_path / "bookie", root=f"/{unique_name}")
    yield made
    made.kill()


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ledger.bookie", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _looked(bookie: Bookie) -> tuple[int, dict]:
    before = _contents(bookie.folder)
    ended = _run("fsck", bookie.folder, "--json")
    assert _contents(bookie.folder) == before
    return ended.returncode, json.loads(ended.stdout)


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".free"}


def _end(bookie: Bookie) -> None:
    bookie.process.send_signal(signal.SIGTERM)
    assert bookie.process.wait(60) == 0


def _write(bookie: Bookie, ledger_id: int, count: int) -> None:
    async def run() -> None:
        client = await Client.connect(bookie.port)
        for answer in await client.ask(*[add(ledger_id, n, txn=n) for n in range(count)]):
            assert answer.status == Status.EOK
        (answer,) = await client.ask(ReadRequest(0, ledger_id + 1, -1, KEY, is_fencing=True))
        assert answer.status == Status.ENOENTRY
        client.writer.close()

    asyncio.run(run())


def _read(bookie: Bookie, ledger_id: int, count: int) -> list[Status]:
    async def run() -> list[Status]:
        client = await Client.connect(bookie.port)
        answers = await client.ask(*[ReadRequest(n, ledger_id, n) for n in range(count)])
        (fenced,) = await client.ask(add(ledger_id + 1, 0))
        client.writer.close()
        return [fenced.status, *(answer.status for answer in answers)]

    return asyncio.run(run())


def test_files_of_a_bookie_are_looked_at_damaged_and_made_good(bookie) -> None:
    bookie.start()
    _write(bookie, 7, 50)
    journal = next((bookie.folder / "journal" / "current").glob("*.j"))
    for words in (("fsck", bookie.folder), ("read-journal", journal), ("rebuild-index", bookie.folder)):
        refused = _run(*words)
        assert refused.returncode == 2
        assert "is in use by a bookie that runs; stop it first" in refused.stderr
    _end(bookie)

    # All lies in the journal.
    code, report = _looked(bookie)
    assert (code, report["damages"], report["segment_count"]) == (0, [], 0)
    listed = _run("read-journal", journal, "--ledger", "7", "--json", "--payload", "hex").stdout.splitlines()
    records = [json.loads(line) for line in listed]
    entries = {record["entry_id"]: record for record in records if record["kind"] == "entry"}
    assert sorted(entries) == list(range(50))
    assert bytes.fromhex(entries[3]["payload"]) == bytes(add(7, 3).body)
    assert KEY.hex() not in "".join(listed)

    # The next start makes a segment of it.
    bookie.start()
    _end(bookie)
    code, report = _looked(bookie)
    assert (code, report["damages"], report["segment_count"]) == (0, [], 1)
    assert report["indexed_block_count"] > 0
    (segment,) = (bookie.folder / "ledgers" / "current").glob("*.seg")
    shown = _run("read-segment", segment, "--entry", "3", "--payload", "base64")
    assert shown.returncode == 0
    assert shown.stdout.count("checksum good") == 1

    # The index is made anew: nothing is lost, fences included, and the old one stays.
    made = json.loads(_run("rebuild-index", bookie.folder, "--json").stdout)
    assert Path(made["old_index"], "data.mdb").exists()
    code, report = _looked(bookie)
    assert (code, report["damages"]) == (0, [])
    assert bookie.start()["limbo"] is False
    assert _read(bookie, 7, 50) == [Status.EFENCED, *[Status.EOK] * 50]
    _end(bookie)
    code, report = _looked(bookie)
    assert (code, report["notes"]) == (0, [])

    # One bit.
    content = bytearray(segment.read_bytes())
    content[200] ^= 4
    segment.write_bytes(content)
    code, report = _looked(bookie)
    assert code == 1
    (damage,) = report["damages"]
    assert (damage["kind"], damage["path"], damage["ledger_id"]) == ("segment", str(segment), 7)
    text = _run("fsck", bookie.folder)
    assert (text.returncode, "1 damages" in text.stdout) == (1, True)
    assert _run("read-segment", segment).returncode == 1
    # What the start makes of it: it says what it lost, before the index forgets.
    assert _run("rebuild-index", bookie.folder).returncode == 0
    assert bookie.start()["limbo"] is True


def test_an_index_that_lost_a_page_is_found(bookie) -> None:
    bookie.start()
    _write(bookie, 7, 50)
    _end(bookie)
    bookie.start()
    _end(bookie)
    file = bookie.folder / "ledgers" / "index" / "data.mdb"
    content = bytearray(file.read_bytes())
    content[8192:] = bytes(len(content) - 8192)
    file.write_bytes(content)
    code, report = _looked(bookie)
    assert code == 1
    assert [damage["kind"] for damage in report["damages"]] == ["index"]


def test_folders_that_are_not_all_of_a_bookie_are_refused(tmp_path) -> None:
    ended = _run("fsck", tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no bookie has served from here" in ended.stderr
    for root in ("journal", "ledgers"):
        (tmp_path / root / "current").mkdir(parents=True)
    process = {"journal_dir": "/srv/j", "ledger_dirs": ["/srv/a", "/srv/b"]}
    (tmp_path / "ledgers" / "current" / "process.json").write_text(json.dumps(process))
    ended = _run("fsck", tmp_path)
    assert ended.returncode == 2
    assert "had 2 folders of segments" in ended.stderr
