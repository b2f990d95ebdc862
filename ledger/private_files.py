"""Private files: folders of data, and files of secrets, that only their owner may read.

Data lie in folders of mode 0700; one that an older version made is closed at the next start, which protects the files
in it too. A file of a secret that others may read is refused: who could read it may have done so. Its group may read it
only where root owns it: there an administrator has chosen the group.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Final

from ledger.errors import UsageError

_LOGGER = logging.getLogger(__name__)
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077


def make_private(folder: Path | str) -> None:
    """Make a folder of data where it is missing; close it to others where it is open to them.

    A folder that is not ours alone is left as it is, with a warning: it belongs to somebody else, as the root of a
    mounted volume may, or everybody may write there.

    Raises:
        OSError: It cannot be made.

    """
    place = Path(folder)
    place.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    found = place.stat()
    mode = stat.S_IMODE(found.st_mode)
    if not mode & _OTHERS:
        return
    if found.st_uid != os.geteuid() or mode & stat.S_ISVTX:
        _LOGGER.warning(
            "%s: mode %04o lets others in, and it is not this process's own folder: close it yourself, or "
            "choose another one",
            place,
            mode,
        )
        return
    place.chmod(FOLDER_MODE)
    _LOGGER.warning("%s: mode %04o let others in; it is its owner's alone now (0700)", place, mode)


def refuse_loose(path: Path | str, what: str) -> None:
    """Refuse a file with a secret that others than its owner may read; none at all is another's error.

    Args:
        path: The file.
        what: What it holds, for the error.

    Raises:
        UsageError: Its mode is too loose.

    """
    try:
        found = os.stat(path)  # noqa: PTH116 - of a str too
    except OSError:
        return
    if stat.S_ISREG(found.st_mode) and is_loose(found):
        mode = stat.S_IMODE(found.st_mode)
        raise UsageError(f"{what} {path}: mode {mode:04o} lets others read or change it: chmod 600 {path}")


def is_loose(found: os.stat_result) -> bool:
    """Tell whether others than its owner may read or change a file; the group that root gave it may read it."""
    loose = _OTHERS & ~stat.S_IRGRP if found.st_uid == 0 else _OTHERS
    return bool(stat.S_IMODE(found.st_mode) & loose)


def state_folder() -> Path:
    """Return the folder of what commands keep for this user, which may be missing: by XDG's rules.

    Raises:
        RuntimeError: This user has no home.

    """
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "rsm-spark"
