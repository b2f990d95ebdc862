"""Bound on the open files of this process: connections are files, and must leave some for everything else."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

FILES_KEPT: Final = 512
"""Files of a server for journals, segments, indexes and snapshots, for ZooKeeper, and for connections that it opens."""


def allow_files(connection_count: int, *, kept: int = FILES_KEPT, ports: int = 1) -> int:
    """Raise this process's limit of open files for the connections of a port.

    Args:
        connection_count: Of the port, as many as are wanted.
        kept: Files for everything else.
        ports: Of the process, that want as many each.

    Returns:
        For how many of the port the limit is enough.

    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ports * connection_count + kept
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return connection_count
    return max(1, min(connection_count, (soft - kept) // ports))
