"""Programs of Go modules: etcd itself, etcdctl, and what is written with etcd's own client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCES = Path(__file__).with_name("go")
_BUILD_S = 1_500


class GoMissingError(Exception):
    """A program cannot be built here."""


def build_go(module: str, program: str, folder: Path) -> Path:
    """Build a program of a module in `tests/compat/go`; return it.

    Raises:
        GoMissingError: There is no `go`, or it cannot build.

    """
    go = shutil.which("go")
    if go is None:
        raise GoMissingError("there is no `go` on the path")
    built = folder / program
    done = subprocess.run(
        [go, "build", "-mod=readonly", "-o", str(built), f"./{program}"],
        cwd=_SOURCES / module,
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_S,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines() or ["it said nothing"]
        raise GoMissingError(f"`go build` of {program} failed: {last[-1]}")
    return built
