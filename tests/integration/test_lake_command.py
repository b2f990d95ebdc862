"""`rsm lake tables` as a command, on folders and a bucket with real tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rsm_spark.core.row_tables import DescribedTables
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.pace import no_pace
from rsm_spark.snapshots.tables.lake_tables import LakeTables
from rsm_spark.snapshots.tables.naming import tables_place
from tests.integration.s3_server import SECRETS, Bucket
from tests.unit.rsm_spark.snapshots.tables.test_lake_tables import SHOP, manifest_at, note, order


def asked(*arguments: str) -> tuple[int, str, str]:
    """Return exit code, output and errors of `rsm lake tables`."""
    done = subprocess.run(
        [sys.executable, "-m", "rsm_spark", "lake", "tables", *arguments],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def refused(expected: int, *arguments: str) -> str:
    code, out, errors = asked(*arguments)
    assert code == expected, errors
    assert out == ""
    return " ".join(errors.split())


def filled(lake: str, options: dict[str, str] | None = None) -> None:
    """Write three revisions: orders grow, notes stay; in the last one an order has a price that does not fit."""
    tables = LakeTables(tables_place(lake_place(lake, "shop")), storage_options=options, pace=lambda: no_pace)
    for revision, prices in ((10, ["1.50"]), (20, ["1.50", "2.00"]), (30, ["1.50", "2.00", "1e9"])):
        rows = [order(n, f"item\x1b[2J {n}", price, 10 * n) for n, price in enumerate(prices, 1)]
        state = [*rows, note("a", b"x", 6)]
        tables.write(manifest_at(revision), lambda state=state: iter(state), DescribedTables(SHOP))


def test_versions_revisions_and_problems_are_listed(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    filled(lake)
    code, out, _ = asked("shop", "--lake", lake, "--json")
    assert code == 0
    said = json.loads(out)
    assert (said["log"], said["place"]) == ("shop", f"{lake}/shop/_tables")
    rows = [(one["table"], one["path"], one["version"], one["revision"], one["rows"]) for one in said["tables"]]
    assert rows == [
        ("notes", "notes", 0, 30, 1),
        ("orders", "orders", -1, 30, 3),
        ("notes", "notes", 0, 20, 1),
        ("orders", "orders", 1, 20, 2),
        ("notes", "notes", 0, 10, 1),
        ("orders", "orders", 0, 10, 1),
    ]
    assert [bool(one["problem"]) for one in said["tables"]] == [False, True, False, False, False, False]
    for revision, version, of in (("29", 1, 20), ("20", 1, 20), ("19", 0, 10), ("99", -1, 30)):
        code, out, _ = asked("shop", "--lake", lake, "--json", "--at-revision", revision)
        found = {one["table"]: (one["version"], one["revision"]) for one in json.loads(out)["tables"]}
        assert (code, found) == (0, {"notes": (0, of), "orders": (version, of)})
    code, out, _ = asked("shop", "--lake", lake)
    assert code == 0
    assert out.splitlines()[0].startswith(f"typed tables in {lake}/shop/_tables, of log ")
    assert len(out.splitlines()) == 8
    assert "\x1b" not in out


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    assert "name the lake (--lake)" in refused(2, "shop")
    assert f"{lake}: there is no such folder" in refused(2, "shop", "--lake", lake)
    filled(lake)
    assert "neither snapshots nor typed tables of a log shops" in refused(4, "shops", "--lake", lake)
    assert "there are those of 10, 20, 30" in refused(4, "shop", "--lake", lake, "--at-revision", "9")
    bare = LakeSnapshots(lake_place(lake, "bare"))
    bare.write(manifest_at(7), [])
    assert "no typed tables of log bare yet, and a snapshot of revision 7" in refused(4, "bare", "--lake", lake)
    log = next((tmp_path / "lake" / "shop" / "_tables" / "_revisions" / "_delta_log").glob("*0.json"))
    log.write_text("{")
    assert "it cannot be read" in refused(1, "shop", "--lake", lake)


def test_tables_in_a_bucket_need_its_options(bucket: Bucket, tmp_path: Path) -> None:
    lake = f"{bucket.uri}/lake"
    filled(lake, bucket.options())
    given = ("--lake", lake, "--storage-options-file", str(bucket.options_file(tmp_path)))
    code, out, _ = asked("shop", *given, "--at-revision", "25", "--json")
    assert code == 0
    assert {one["table"]: one["version"] for one in json.loads(out)["tables"]} == {"notes": 0, "orders": 1}
    told = refused(4, "shops", *given) + refused(2, "shop", "--lake", lake.replace("s3://", "s3://me:secret@"))
    assert "neither snapshots nor typed tables of a log shops" in told
    assert "the address holds a secret" in told
    assert not [secret for secret in SECRETS if secret in told]
