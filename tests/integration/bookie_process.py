"""A bookie as a process, and plain connections to it, for tests."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence

from ledger.core.metadata import DigestType
from ledger.dev.ports import choose_port
from ledger.exit_codes import ExitCode
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import AddRequest
from ledger.wire.v3 import decode_response, encode_request

__all__ = ["KEY", "Bookie", "Client", "add"]

KEY = master_key(b"")
DIGEST = Digest(DigestType.CRC32C, b"")


class Client:
    """One plain connection; answers by transaction."""

    def __init__(self, reader, writer) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, *requests) -> None:
        self.writer.write(b"".join(map(encode_request, requests)))

    async def receive(self):
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        return decode_response(await self.reader.readexactly(length))

    async def ask(self, *requests):
        self.send(*requests)
        return sorted([await self.receive() for _ in requests], key=lambda response: response.txn_id)


def add(ledger_id: int, entry_id: int, txn: int = 0, size: int = 1000) -> AddRequest:
    body = seal(ledger_id, entry_id, entry_id - 1, 0, bytes([entry_id % 251]) * size, DIGEST)
    return AddRequest(txn, ledger_id, entry_id, KEY, body)


class Bookie:
    """One bookie process at a time, in one directory, at one port; it takes ledgers without metadata by default."""

    def __init__(self, zookeeper: str, folder, *, root: str, options: Sequence[str] = ("--any-ledger",)) -> None:
        self.uri = f"zk+hierarchical://{zookeeper}{root}"
        self.folder = folder
        self.options = options
        self.port = choose_port(taken=())
        self.process: subprocess.Popen | None = None

    def command(self, *more: str, port: int | None = None) -> list[str]:
        return [
            sys.executable, "-m", "ledger.bookie", "run", "--metadata-uri", self.uri, "--port", str(port or self.port),
            "--data-dir", str(self.folder), "--journal-file-mib", "10", "--json", "--no-autorecovery",
            *self.options, *more,
        ]  # fmt: skip

    def start(self, *more: str) -> dict:
        self.process = subprocess.Popen(self.command(*more), stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        assert line, "the bookie ended while it started"
        return json.loads(line)

    def refused(self, *more: str, port: int | None = None) -> str:
        """Start a process that must refuse to serve; return its last line."""
        ended = subprocess.run(self.command(*more, port=port), capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode in set(ExitCode), ended.stderr
        return ended.stderr.strip().splitlines()[-1]

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None
