"""The process between a worker and what it starts for Spark: whatever becomes of the worker, that ends.

    K   this one; adopts what its child leaves behind
    S   spark-submit, a warm server or a program that asks one, in a jail or not, and all that it starts

Its standard input is the worker's hand: the first line is a `KeeperPlan`, a later one the command that ends what was
submitted to a cluster, or of a server a line for it; when the input ends, because the run is to end or the worker is
gone, K carries that command out, kills all that is left, and ends itself. Its exit code is that of S, 128 and the
signal if one has killed it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from broker.worker.jail.enter import enter
from broker.worker.jail.kernel import adopt_orphans, die_with_parent
from broker.worker.jail.orphans import end_rest, reaped
from broker.worker.jail.plan import JailPlan
from ledger.decoding import json_decoder

_AWAITED = frozenset({signal.SIGCHLD, signal.SIGTERM})
_COMMAND_S = 60
_CANNOT_RUN = 127
PROPERTIES_FILE = "spark-submit.conf"


class KeeperPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a keeper: what it keeps.

    Attributes:
        words: Of what it starts.
        environment: Its variables.
        folder: Where it runs; in a jail it is the scratch folder.
        properties: Settings of Spark, which lie in `PROPERTIES_FILE` of that folder; "" = there is no such file.
        is_asked: Whether later lines of the worker are for its standard input: of a warm server.
        jail: That it goes to; None = it may do what the worker may.
        lock: Descriptor that the keeper has inherited, and keeps from what it starts: it holds the folder; -1 = none.

    """

    words: list[str]
    environment: dict[str, str]
    folder: str
    properties: str = ""
    is_asked: bool = False
    jail: JailPlan | None = None
    lock: int = -1


class _Hand(threading.Thread):
    """Reads what the worker says; at its end this process is told to end.

    Args:
        asked: Pipe to who is asked what the worker says; None = these are commands.

    Attributes:
        command: The newest; empty = none.

    """

    def __init__(self, asked: int | None) -> None:
        super().__init__(name="rsm-hand", daemon=True)
        self._asked = None if asked is None else os.fdopen(asked, "wb")
        self.command: list[str] = []

    def run(self) -> None:
        """See the class."""
        try:
            for line in sys.stdin.buffer:
                if self._asked is None:
                    self.command = json_decoder(list[str]).decode(line)
                else:
                    self._asked.write(line)
                    self._asked.flush()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)


def _start(plan: KeeperPlan, words: Sequence[str]) -> tuple[int, int | None]:
    """Start a process; return its id, and the other end of its standard input if it is asked anything."""
    keeper = os.getpid()
    reading, writing = os.pipe() if plan.is_asked else (os.open(os.devnull, os.O_RDONLY), None)
    child = os.fork()
    if child:
        os.close(reading)
        return child, writing
    try:
        die_with_parent(keeper)
        if writing is not None:
            os.close(writing)
        os.dup2(reading, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        environment = plan.environment
        if plan.jail is not None:
            enter(plan.jail, reading)
            inside = plan.jail.scratch_inside
            environment = {**environment, **dict.fromkeys(("HOME", "TMPDIR", "SPARK_LOCAL_DIRS"), inside)}
        else:
            os.chdir(plan.folder)
        if plan.properties:
            Path(PROPERTIES_FILE).write_text(plan.properties, encoding="utf-8")
        os.execve(words[0], list(words), environment)  # noqa: S606 - no shell is wanted
    except BaseException as error:  # noqa: BLE001 - this process is a copy: it must not go on
        os.write(2, f"{words[0]} cannot be run: {error}\n".encode(errors="replace"))
        os._exit(_CANNOT_RUN)


def _wait(child: int, *, timeout_s: float | None) -> int | None:
    """Return how a child ended; None = it has not, and this process is to end, or the time is over."""
    while True:
        heard = signal.sigwait(_AWAITED) if timeout_s is None else signal.sigtimedwait(_AWAITED, timeout_s)
        if heard is None or heard == signal.SIGTERM or getattr(heard, "si_signo", None) == signal.SIGTERM:
            return None
        for pid, status in reaped():
            if pid == child:
                return status


def main() -> None:
    """Keep what standard input says."""
    plan = json_decoder(KeeperPlan).decode(sys.stdin.buffer.readline())
    if plan.lock >= 0:
        os.set_inheritable(plan.lock, False)  # noqa: FBT003 - os's
    # A terminal's ctrl-C is for the worker, which drains.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    adopt_orphans()
    child, asked = _start(plan, plan.words)
    hand = _Hand(asked)
    hand.start()
    status = _wait(child, timeout_s=None)
    if status is None and hand.command:
        ending, _ = _start(msgspec.structs.replace(plan, jail=None), hand.command)
        told = _wait(ending, timeout_s=_COMMAND_S)
        if told is None or os.waitstatus_to_exitcode(told) != 0:
            how = "it took too long" if told is None else f"exit code {os.waitstatus_to_exitcode(told)}"
            os.write(2, f"rsm: {' '.join(hand.command)} has failed, {how}: it may go on there\n".encode())
    end_rest(0)
    code = 128 + signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)
