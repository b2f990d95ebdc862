"""The process of callers, seen from a test: how far they are, and in the end what they asked and heard."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rsm_spark.testing.history import CallerCall, decode_history
from rsm_spark.testing.linearizability import check_history, check_revision_order
from tests.integration.map_callers import CallersArguments

CLIENT_COUNT = 16
KEY_COUNT = 5
_END_S_MAX = 90.0


class RecordedCallers:
    """Sixteen clients on few keys; see `tests.integration.map_callers`.

    Args:
        doors: Which they use, in turn.
        etcd_addresses: Of the replicas, if etcd's API is one of them.

    Attributes:
        answered_count: Calls answered so far.
        unknown_count: Calls of unknown outcome.
        follower_count: Reads that followers have answered.
        framed_count: Clients that use the framed port just now.

    """

    def __init__(
        self,
        metadata_uri: str,
        log: str,
        folder: Path,
        *,
        seed: int,
        prefix: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        read_from: str = "leader",
        doors: Sequence[str] = ("framed",),
        etcd_addresses: Sequence[str] = (),
    ) -> None:
        self.path = folder / f"history-{seed}.msgpack"
        self.answered_count = 0
        self.unknown_count = 0
        self.follower_count = 0
        self.framed_count = 0
        arguments = CallersArguments(
            metadata_uri,
            log,
            str(self.path),
            seed,
            CLIENT_COUNT,
            KEY_COUNT,
            read_from,
            tuple(doors),
            tuple(etcd_addresses),
        )
        program = [
            *prefix,
            sys.executable,
            "-m",
            "tests.integration.map_callers",
            msgspec.json.encode(arguments).decode(),
        ]
        self._log = folder / f"callers-{seed}.log"
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=Path(__file__).parents[2],
                env=environment,
            )
        self._moved = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._moved:
                self.answered_count, self.unknown_count = said["answered"], said["unknown"]
                self.follower_count, self.framed_count = said["by_followers"], said["framed"]
                self._moved.notify_all()

    def wait_for_more(self, count: int, *, timeout_s: float = 60.0) -> None:
        """Wait until `count` more calls are answered."""
        with self._moved:
            wanted = self.answered_count + count
            done = self._moved.wait_for(lambda: self.answered_count >= wanted, timeout_s)
        assert done, f"{self.answered_count} of {wanted} calls answered after {timeout_s:.0f} s: {self._last_words()}"

    def end(self) -> list[CallerCall]:
        """Let every call come to its end; return the history."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(_END_S_MAX) == 0, self._last_words()
        self._listener.join()
        return decode_history(self.path.read_bytes())

    def _last_words(self) -> str:
        return self._log.read_text()[-2_000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()


def check_calls(calls: list[CallerCall], path: Path) -> None:
    """Fail unless the history certainly is linearizable, with revisions that rise over all keys."""
    for verdict in (check_history(calls), check_revision_order(calls)):
        assert verdict.is_linearizable, f"{verdict.explain()} (history: {path})"
