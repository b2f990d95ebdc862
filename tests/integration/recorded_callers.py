"""The process of callers, seen from a test: how far they are, and in the end what they asked and heard."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rsm_spark.testing.history import CallerCall, decode_history
from rsm_spark.testing.linearizability import check_history, check_revision_order
from tests.integration.map_callers import CallersArguments

CLIENT_COUNT = 16
KEY_COUNT = 5
_END_S_MAX = 90.0


class CallersProcess:
    """A process of callers that tells several times a second, as a line of JSON, how many calls are answered.

    Args:
        module: What `python -m` runs; it ends when its input does.
        arguments: Of it.
        log: File for what it writes to its standard error.
        prefix: Put before the command, to run it elsewhere.
        environment: Instead of this process's.

    Attributes:
        answered_count: Calls answered so far.
        unknown_count: Calls of unknown outcome.

    """

    def __init__(
        self,
        module: str,
        arguments: msgspec.Struct,
        log: Path,
        *,
        prefix: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.answered_count = 0
        self.unknown_count = 0
        program = [*prefix, sys.executable, "-m", module, msgspec.json.encode(arguments).decode()]
        self._log = log
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
            with self._moved:
                self._hear(json.loads(line))
                self._moved.notify_all()

    def _hear(self, said: dict[str, Any]) -> None:
        self.answered_count, self.unknown_count = said["answered"], said["unknown"]

    def wait_for_more(self, count: int, *, timeout_s: float = 60.0) -> None:
        """Wait until `count` more calls are answered."""
        with self._moved:
            wanted = self.answered_count + count
            done = self._moved.wait_for(lambda: self.answered_count >= wanted, timeout_s)
        assert done, f"{self.answered_count} of {wanted} calls answered after {timeout_s:.0f} s: {self._last_words()}"

    def finish(self) -> None:
        """Let every call come to its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(_END_S_MAX) == 0, self._last_words()
        self._listener.join()

    def _last_words(self) -> str:
        return self._log.read_text()[-2_000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()


class RecordedCallers(CallersProcess):
    """Sixteen clients on few keys; see `tests.integration.map_callers`.

    Args:
        doors: Which they use, in turn.
        etcd_addresses: Of the replicas, if etcd's API is one of them.

    Attributes:
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
        super().__init__(
            "tests.integration.map_callers",
            arguments,
            folder / f"callers-{seed}.log",
            prefix=prefix,
            environment=environment,
        )

    def _hear(self, said: dict[str, Any]) -> None:
        super()._hear(said)
        self.follower_count, self.framed_count = said["by_followers"], said["framed"]

    def end(self) -> list[CallerCall]:
        """Let every call come to its end; return the history."""
        self.finish()
        return decode_history(self.path.read_bytes())


def check_calls(calls: list[CallerCall], path: Path) -> None:
    """Fail unless the history certainly is linearizable, with revisions that rise over all keys."""
    for verdict in (check_history(calls), check_revision_order(calls)):
        assert verdict.is_linearizable, f"{verdict.explain()} (history: {path})"
