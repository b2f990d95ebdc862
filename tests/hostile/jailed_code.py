"""What an enemy tries whose code a worker runs. Deployed as a pool's code, so that it runs where such code runs."""

# ruff: noqa: PTH112, PTH123, PTH208, SIM115 - paths are texts that the worker's test names
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

__all__ = ["burn", "fork_bomb", "hog", "look", "pids_of_mine", "quick", "reach", "spill", "spin", "stay"]


def quick(context: Any, payload: bytes) -> bytes:
    """Do what an honest neighbour does."""
    return payload[::-1]


def look(context: Any, payload: bytes) -> bytes:
    """Try everything that the payload names; return what came of each."""
    wanted = json.loads(payload)
    found: dict[str, str] = {}
    for path in wanted["reads"]:
        found[f"read {path}"] = _outcome(lambda path=path: open(path, "rb").read(64))
        found[f"list {path}"] = _outcome(lambda path=path: os.listdir(path))
    for path in wanted["writes"]:
        found[f"write {path}"] = _outcome(lambda path=path: open(path, "wb").write(b"x"))
    for pid in wanted["pids"]:
        found[f"signal {pid}"] = _outcome(lambda pid=pid: os.kill(pid, 0))
        found[f"environ {pid}"] = _outcome(lambda pid=pid: open(f"/proc/{pid}/environ", "rb").read(64))
    for port in wanted["ports"]:
        found[f"connect {port}"] = _outcome(lambda port=port: socket.create_connection(("127.0.0.1", port), 2))
    found["program"] = _outcome(lambda: subprocess.run(["/bin/cat", *wanted["reads"]], capture_output=True, check=True))
    found["unshare"] = _outcome(lambda: subprocess.run(["unshare", "-U", "true"], capture_output=True, check=True))
    found["become root"] = _outcome(lambda: os.setuid(0) if os.getuid() else os.listdir("/root"))
    return json.dumps(found).encode()


def reach(context: Any, payload: bytes) -> bytes:
    """Connect to a port of the host."""
    with socket.create_connection(("127.0.0.1", int(payload)), 5) as connected:
        return connected.recv(16)


def spill(context: Any, payload: bytes) -> bytes:
    """Write without end to where it may write."""
    written = 0
    try:
        for number in range(100):
            with open(f"{os.environ['HOME']}/{number}", "wb") as file:
                for _ in range(10):
                    written += file.write(bytes(1024 * 1024))
                    file.flush()
    except OSError:
        pass
    return b"%d" % written


def hog(context: Any, payload: bytes) -> bytes:
    """Take memory without end, in as many processes as there may be."""
    for _ in range(3):
        if os.fork() == 0:
            break
    taken = []
    while True:
        taken.append(bytearray(os.urandom(4096)) * (4 * 256))


def fork_bomb(context: Any, payload: bytes) -> bytes:
    """Start processes until there are no more."""
    count = 0
    try:
        while count < 100_000:
            if os.fork() == 0:
                time.sleep(600)
            count += 1
    except OSError:
        pass
    return b"%d" % count


def burn(context: Any, payload: bytes) -> bytes:
    """Leave processes behind in sessions of their own, which do something for ever."""
    subprocess.Popen(
        [sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)", payload.decode()], start_new_session=True
    )
    return b"left"


def spin(context: Any, payload: bytes) -> bytes:
    """Keep a processor busy for so many seconds of it."""
    end = time.process_time() + float(payload)
    while time.process_time() < end:
        pass
    return b"done"


def stay(context: Any, payload: bytes) -> bytes:
    """Say that it is there, and stay."""
    context.progress(0.5, "here")
    time.sleep(600)
    return b""


def pids_of_mine(context: Any, payload: bytes) -> bytes:
    """Return which processes it sees, and who it is."""
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()) if os.path.isdir("/proc") else []
    return json.dumps({"pids": pids, "uid": os.getuid(), "pid": os.getpid()}).encode()


def _outcome(act: Any) -> str:
    try:
        return f"GOT {act()!r}"[:200]
    except Exception as error:
        return f"{type(error).__name__}"
