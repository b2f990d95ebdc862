"""The end of what a program has started, when that program is gone, however it went: SIGHUP, SIGKILL, a crash.

    python -m ledger.dev.leash     what `ledger.dev.process.hold` starts, once a program

Standard input is a pipe whose other end the program alone has. Each line names a process, as a `ProcessId` in JSON; the
end of the input means that the program is gone. What has ended by then is passed over.
"""

from __future__ import annotations

import contextlib
import signal
import sys

import msgspec

from ledger.decoding import json_decoder
from ledger.dev.errors import ClusterError
from ledger.dev.process import ProcessId, end_all

_GRACE_S = 10.0


def main() -> None:
    """Read until the program is gone; then end what it has named, the newest first."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Whoever sends them to everything here means the program, too.
    decoder = json_decoder(ProcessId)
    held: list[ProcessId] = []
    for line in sys.stdin.buffer:
        with contextlib.suppress(msgspec.DecodeError):  # The last line, of a program that died as it wrote.
            held.append(decoder.decode(line))
    with contextlib.suppress(ClusterError):
        end_all(held[::-1], grace_s=_GRACE_S)


if __name__ == "__main__":
    main()
