"""What writer processes said, and whether the bookies still hold it."""

from __future__ import annotations

import subprocess
import sys
import threading

from ledger import LedgerClient
from tests.integration.writer_process import payload_of

_PAGE = 2_000


class Writer:
    """One writer process and what it said."""

    def __init__(self, metadata_uri: str, *quorum: int, prefix: tuple[str, ...] = ()) -> None:
        command = [sys.executable, "-m", "tests.integration.writer_process", metadata_uri, *map(str, quorum)]
        self.process = subprocess.Popen([*prefix, *command], stdout=subprocess.PIPE, text=True)
        self.acked: dict[int, int] = {}
        self.failures: list[str] = []
        self._moved = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            with self._moved:
                if word == "ledger":
                    self.acked[int(rest)] = -1
                elif word == "acked" and line.endswith("\n"):
                    ledger_id, entry_id = map(int, rest.split())
                    self.acked[ledger_id] = entry_id
                elif word == "failed":
                    self.failures.append(rest)
                self._moved.notify_all()

    @property
    def acked_count(self) -> int:
        """Entries acknowledged so far."""
        return sum(last + 1 for last in self.acked.values())

    def wait_for_more(self, count: int, *, timeout_s: float = 60.0) -> None:
        """Wait until `count` more entries are acknowledged."""
        with self._moved:
            wanted = self.acked_count + count
            done = self._moved.wait_for(lambda: self.acked_count >= wanted, timeout_s)
        assert done, f"{self.acked_count} of {wanted} entries acknowledged; failures: {self.failures[-3:]}"

    def kill(self) -> None:
        """End the process by SIGKILL and take in what it had said."""
        self.process.kill()
        self.process.wait()
        self._listener.join()


async def check_written(client: LedgerClient, acked: dict[int, int]) -> int:
    """Recover and read ledgers; what was acknowledged must be there, byte by byte.

    Returns:
        Number of entries read.

    """
    count = 0
    for ledger_id, last_acked in acked.items():
        reader = await client.open(ledger_id)
        last = reader.last_add_confirmed
        assert last >= last_acked, f"ledger {ledger_id} ends at {last}, acknowledged was {last_acked}"
        for first in range(0, last + 1, _PAGE):
            for entry in await reader.read(first, min(last, first + _PAGE - 1)):
                assert entry.payload == payload_of(ledger_id, entry.entry_id), (ledger_id, entry.entry_id)
                count += 1
        again = await client.open(ledger_id)
        assert again.last_add_confirmed == last
    return count
