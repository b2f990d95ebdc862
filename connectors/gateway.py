"""Start of Spark's JVM from a process that has threads of gRPC.

pyspark forks to run Python in the child (`preexec_fn`, so that the JVM does not hear of a ctrl-C). gRPC's handlers for
forks crash every fourth such child while other threads call into it, and the session then fails with
JAVA_GATEWAY_EXITED and no word of why. A process that has asked a replica or a broker before is such a process. A shell
that ignores the signal and becomes the JVM does the same without running anything between fork and exec.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pyspark.java_gateway

_IGNORE_INTERRUPT = 'trap "" INT; exec "$@"'


@contextlib.contextmanager
def spawned_gateway() -> Iterator[None]:
    """Have pyspark start its JVM, if it does so within the block, without running Python in a forked child."""
    module: Any = pyspark.java_gateway
    forking = module.Popen
    module.Popen = _spawn
    try:
        yield
    finally:
        module.Popen = forking


def _spawn(command: Sequence[str], **arguments: Any) -> subprocess.Popen[bytes]:
    arguments.pop("preexec_fn", None)
    return subprocess.Popen(["/bin/sh", "-c", _IGNORE_INTERRUPT, "sh", *command], **arguments)
