"""What docs/sql.md shows runs as it stands there."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ledger.dev import DevCluster
from tests.integration.store_processes import stores

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "sql.md").read_text()
PROGRAM, INTERACTIVE, RESULTS, *OTHERS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(CHANGES,) = (text for text in OTHERS if "shop.changes" in text)
(PG_PROGRAM,) = (text for text in OTHERS if "psycopg" in text)
(DB_API,) = (text for text in OTHERS if "rsm_spark.sql as db" in text)
(EMBEDDED,) = (text for text in OTHERS if "SqlReplica" in text)
(ASYNC,) = (text for text in OTHERS if "connect_async" in text)
(ALCHEMY,) = (text for text in OTHERS if "sqlalchemy" in text)
(HTTP,) = (text for text in OTHERS if "urllib" in text)
SERVE, COMMANDS, FOLLOW, FILES, PG_SERVE, VERIFIER, HTTP_SERVE, CURL = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)


def test_the_commands_and_the_program_of_the_page(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    environment = os.environ | {
        "RSM_METADATA_URI": cluster.metadata_uri,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def run(*command: str) -> list[str]:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert SERVE.count("rsm sql serve --log shop --data-dir") == 2
    (tmp_path / "move.sql").write_text("UPDATE item SET stock = stock + 1; UPDATE item SET stock = stock - 1;")
    assert PG_SERVE.split()[:3] == ["rsm", "sql", "serve"]
    assert PG_SERVE.split()[-2] == "--pg-port"
    (tmp_path / "ann.token").write_text("token-of-ann-0123456789")
    (tmp_path / "ann.token").chmod(0o600)
    assert run("/bin/sh", "-ec", VERIFIER)[0].startswith("SCRAM-SHA-256$4096:")
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        for name in "ab":
            replicas.start(name, "--pg-port", "0", "--http-port", "0", command=("rsm_spark", "sql", "serve"))
        port = replicas.alive["b"].ready["pg_address"].rpartition(":")[2]
        shown = run("/bin/sh", "-ec", COMMANDS.replace("--log shop", f"--log {unique_name}"))
        assert shown[2:5] == ["id  name  stock", "1   pen   5", "2   ink   2"]
        printed = run(sys.executable, "-c", PROGRAM.replace('"shop"', f'"{unique_name}"'))
        said = run(sys.executable, "-c", INTERACTIVE.replace('"shop"', f'"{unique_name}"'))
        summed = run(sys.executable, "-c", RESULTS.replace('"shop"', f'"{unique_name}"'))
        check_changes(run, unique_name)
        pg = run(sys.executable, "-c", PG_PROGRAM.replace("dbname=shop", f"dbname={unique_name}").replace("5432", port))
        kept = run(sys.executable, "-c", DB_API.replace('"shop"', f'"{unique_name}"'))
        awaited = run(sys.executable, "-c", ASYNC.replace('"shop"', f'"{unique_name}"'))
        embedded = run(sys.executable, "-c", EMBEDDED.replace('"shop"', f'"{unique_name}"'))
        counted = run(sys.executable, "-c", ALCHEMY.replace("rsm:///shop", f"rsm:///{unique_name}"))
        by_http = run(sys.executable, "-c", HTTP.replace("127.0.0.1:8080", replicas.alive["a"].ready["http_address"]))
        check_stream(run, replicas.alive["b"].ready["http_address"])
        run("/bin/sh", "-ec", FILES.replace("--log shop", f"--log {unique_name}"))
        with sqlite3.connect(tmp_path / "shop.db") as plain:
            assert plain.execute("SELECT count(*) FROM item").fetchall() == [(2,)]
        again = run("rsm", "sql", "exec", "SELECT count(*) FROM item_again", "--log", unique_name)
        assert again == ["count(*)", "2"]
    assert HTTP_SERVE.split()[-2] == "--http-port"
    assert by_http == ["name [['ink'], ['pen']]"]
    assert f"It prints `{by_http[0]}`." in TEXT
    assert awaited == ["['ink', 'pen']"]
    assert f"It prints `{awaited[0]}`." in TEXT
    assert embedded == ["((2,),)", "(('ink',), ('pen',))"]
    assert f"It prints `{embedded[0]}`, `{embedded[1]}`." in TEXT
    assert counted == ["14"]
    assert "It prints `14`." in TEXT
    assert said == ["4", "3"]
    assert kept == ["3 1"]
    assert "It prints `3 1`." in TEXT
    assert "It prints `4`, `3`." in TEXT
    assert printed[:2] == ["sale 1", "sale 2"]
    assert pg == ["(1,) (1,)"]
    for line in (*printed, *summed, *pg):
        assert f"`{line}`" in TEXT


def check_stream(run: Callable[..., list[str]], address: str) -> None:
    """Run the page's curl until it has shown some events."""
    told = run("/bin/sh", "-ec", f"{CURL.strip().replace('127.0.0.1:8080', address)} | head -12")
    shown = TEXT.partition("### Changes over HTTP")[2].partition("data: ")[2].partition("\n")[0]
    changes = [json.loads(line.removeprefix("data: ")) for line in told if line.startswith("data: ")]
    assert "event: change" in told
    assert changes[0]["kind"] == "schema"
    assert set(json.loads(shown)) == set(changes[1])


def check_changes(run: Callable[..., list[str]], log: str) -> None:
    assert run(sys.executable, "-c", CHANGES.replace('"shop"', f'"{log}"')) == [
        "schema seat {} None None True",
        "insert seat {'id': 1} None {'id': 1, 'who': 'ann'} True",
        "update seat {'id': 1} {'id': 1, 'who': 'ann'} {'id': 1, 'who': 'bob'} False",
    ]
    endless, *ends = FOLLOW.replace("--log shop", f"--log {log}").splitlines()
    assert endless.startswith("rsm sql tail item --log")
    assert len(run("/bin/sh", "-ec", "\n".join(ends))) == 4
