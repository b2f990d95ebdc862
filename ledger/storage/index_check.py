"""Looks at every row of an index before a bookie opens it: `python -m ledger.storage.index_check FOLDER`.

A damaged page of LMDB may end the process that looks at it (an assertion of the library, a page outside of the
file). So the look is taken in a process of its own, which may end as it likes: only exit code 0 says that the index is
sound. While a bookie serves, such an end leaves its stack in a file, and the next start does not open the index either.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from typing import IO

from ledger.storage.index import CorruptIndexError
from ledger.storage.index_lmdb import LmdbIndex

_DAMAGED = 3
_WORDS_MAX = 500


def check_index(path: str) -> None:
    """Look at every row of an index in LMDB that no process has open; about two seconds a million rows.

    Raises:
        CorruptIndexError: It is not sound.
        OSError: No process can be started.

    """
    if not os.path.exists(f"{path}/data.mdb"):  # noqa: PTH110
        return
    command = [sys.executable, "-P", "-m", "ledger.storage.index_check", path]
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if ended.returncode != 0:
        words = ended.stderr.strip()[-_WORDS_MAX:]
        raise CorruptIndexError(f"index {path}: the look at its rows ended with code {ended.returncode}: {words}")


def tell_of_death(path: str) -> IO[str]:
    """Have the stack written to a file if a signal of the processor or of a library ends this process.

    The file must be kept open as long as the process lives.
    """
    file = open(path, "w")  # noqa: PTH123, SIM115
    faulthandler.enable(file)
    return file


def died_in_a_library(path: str) -> str:
    """Return what the process before left by `tell_of_death`, or nothing: it ended otherwise, kill -9 included."""
    if not os.path.exists(path):  # noqa: PTH110
        return ""
    try:
        with open(path, errors="replace") as file:  # noqa: PTH123
            return file.read(_WORDS_MAX)
    except OSError as error:
        return f"{path} cannot be read: {error}"


def _main(path: str) -> int:
    try:
        index = LmdbIndex(path, is_read_only=True)
        index.check()
    except CorruptIndexError as error:
        sys.stderr.write(f"{error}\n")
        return _DAMAGED
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
