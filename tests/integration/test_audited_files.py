"""What `rsm audit` prints of a running log: an edited file of principals; and that a log of before has no audit."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from rsm_spark.log.key_file import new_key, write_key_file
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio

_ANN = '[[principal]]\nname = "ann"\nrole = "operator"\n'
_WAIT_S = 60.0
_SERVICE = ("rsm_spark", "serve", "tests.integration.rolled_bank:Bank1")
"""Its logs have format level 1, as those of older releases."""


def write(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.chmod(0o600)
    draft.replace(path)


async def rsm(*arguments: str) -> tuple[str, str]:
    """Run a command; return what it prints, and what it complains of."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rsm_spark", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    return out.decode(), errors.decode()


async def audited(log: str, uri: str) -> list[dict[str, Any]]:
    """Return what `rsm audit` prints."""
    out, _ = await rsm("audit", log, "--metadata-uri", uri, "--json")
    return [json.loads(line) for line in out.splitlines()]


async def test_an_edited_file_of_principals_is_a_record_of_the_log(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    write_key_file(tmp_path / "log.key", [new_key()], replace=False)
    principals = tmp_path / "principals.toml"
    write(principals, _ANN)
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        store = replicas.start(
            "a", "--bookies", "3/3/2", "--log-key", str(tmp_path / "log.key"), "--principals", str(principals),
            "--audit-file", str(tmp_path / "audit.jsonl"),
        )  # fmt: skip
        assert "holds no audit" not in store.errors(), "it began with a key, so it has the level"
        write(principals, _ANN + '[[principal]]\nname = "eve"\nrole = "auditor"\n')
        deadline = time.monotonic() + _WAIT_S
        while not (found := await audited(unique_name, cluster.metadata_uri)):
            assert time.monotonic() < deadline, "it never came"
            await asyncio.sleep(0.5)
    (one,) = found
    assert (one["action"], one["target"]) == ("principals read again", "+eve (auditor)")
    assert str(principals) in one["source"]
    (line,) = [json.loads(text) for text in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert (line["action"], line["target"]) == (one["action"], one["target"])


async def test_a_log_of_before_says_that_it_has_no_audit_and_what_helps(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    where = ("--metadata-uri", cluster.metadata_uri)
    helps = f"rsm log raise-format {unique_name}"
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        store = replicas.start("a", "--bookies", "3/3/2", command=_SERVICE)
        assert store.errors().count(helps) == 1
        out, errors = await rsm("audit", unique_name, *where)
        assert (out, errors.count(helps)) == ("", 1)
        assert "holds no audit" in errors
        await rsm("log", "raise-format", unique_name, "--reason", "new version", *where)
        out, errors = await rsm("audit", unique_name, *where)
        assert errors == ""
        (line,) = out.splitlines()
        assert line.endswith(f"log {unique_name}: new version: done")
