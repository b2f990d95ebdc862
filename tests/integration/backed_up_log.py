"""A log of the map that is served and backed up: replicas as processes, `rsm backup` as one would type it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.exit_codes import ExitCode
from rsm_spark.map.client.client import MapClient

WAIT_S = 600.0


class BackupCommand:
    """Runs `rsm backup` and other commands of `rsm` against one cluster.

    Args:
        metadata_uri: Of the cluster.
        place: Of the backups.
        environment: Instead of this process's.

    """

    def __init__(self, metadata_uri: str, place: Path | str, environment: Mapping[str, str] | None = None) -> None:
        self.metadata_uri = metadata_uri
        self.place = place
        self._environment = environment

    async def run(self, *arguments: str) -> tuple[int, list[Any], str]:
        """Run `rsm …`; return exit code, what it printed (lines of JSON), and what it complained of."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rsm_spark", *arguments, cwd=Path(__file__).parents[2],
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )  # fmt: skip
        out, errors = await asyncio.wait_for(process.communicate(), WAIT_S)
        assert b"Traceback" not in errors, errors.decode()
        assert process.returncode is not None
        return process.returncode, [json.loads(line) for line in out.splitlines()], errors.decode()

    async def done(self, *arguments: str) -> dict[str, Any]:
        """Run a command that must succeed; return the line that it printed."""
        code, lines, errors = await self.run(*arguments)
        assert code == 0, errors
        found: dict[str, Any] = lines[-1]
        return found

    async def create(self, log: str, *options: str) -> dict[str, Any]:
        return await self.done("backup", "create", log, *self._at(), *self._cluster(), *options)

    async def verify(self, log: str, *options: str) -> dict[str, Any]:
        return await self.done("backup", "verify", log, *self._at(), *options)

    async def restore(self, log: str, new: str, *options: str) -> dict[str, Any]:
        return await self.done("backup", "restore", log, "--as", new, *self._at(), *self._cluster(), *options)

    async def backups(self, log: str) -> list[dict[str, Any]]:
        code, lines, errors = await self.run("backup", "list", "--log", log, *self._at())
        assert code == 0, errors
        return lines

    async def refused(self, *arguments: str) -> str:
        """Run `rsm backup …`, which must be refused; return the words."""
        code, _, errors = await self.run("backup", *arguments, *self._at())
        assert code in set(ExitCode), (code, errors)
        return errors

    async def cat(self, log: str) -> list[dict[str, Any]]:
        """Return the records of a log, without where they lie."""
        code, lines, errors = await self.run("log", "cat", log, *self._cluster(), "--json")
        assert code == 0, errors
        for line in lines:
            del line["ledger_id"], line["entry_id"]
        return lines

    def _at(self) -> tuple[str, ...]:
        return ("--place", str(self.place), "--json")

    def _cluster(self) -> tuple[str, ...]:
        return ("--metadata-uri", self.metadata_uri)


async def rows_of(log: str, metadata_uri: str) -> dict[bytes, bytes]:
    """Return the rows that a log's leader serves."""
    async with await MapClient.connect(log, metadata_uri) as client:
        return {entry.key: entry.value async for entry in client.scan()}
