"""Unary puts by gRPC's client in Go, as etcd's load makes them; built from `tests/bench/go/unary`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import NamedTuple

from rsm_spark.map import messages as m
from tests.bench.nats_peer import build_go
from tests.bench.store_load import KEYS, LOG, VALUE, Load

__all__ = ["CalledLoad", "UnaryCaller"]


class CalledLoad(NamedTuple):
    """What a load came to, and the processor seconds that its callers used."""

    load: Load
    cpu_s: float


class UnaryCaller:
    """A load of unary puts.

    Args:
        folder: For the program.

    Raises:
        PeerMissingError: It cannot be built here.

    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._program = build_go("unary", folder)

    async def measure(self, address: str, callers: int, *, seconds: float) -> CalledLoad:
        """Let callers put, each with one call outstanding and a session of its own, over at most eight connections."""
        options = {
            "address": address,
            "log": LOG,
            "command": m.encode(m.Put(KEYS[0], VALUE)).hex(),
            "key": KEYS[0].decode(),
            "keys": len(KEYS),
            "callers": callers,
            "seconds": seconds,
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        process = await asyncio.create_subprocess_exec(
            str(self._program), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            told, trouble = await asyncio.wait_for(process.communicate(), seconds + 60)
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0, trouble.decode()
        said = json.loads(told)
        return CalledLoad(Load(said["per_s"], said["p50_ms"], said["p99_ms"]), said["cpu_s"])
