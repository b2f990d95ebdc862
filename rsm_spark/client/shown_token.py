"""The token that a client shows, from a file that is read again when it has changed: a new one needs no restart."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from ledger.errors import UsageError
from ledger.private_files import refuse_loose
from ledger.rights.file import stamp_of

_LOGGER = logging.getLogger(__name__)
_LOOK_S: Final = 1.0
_TOKEN_BYTES_MAX: Final = 8_192


class ShownToken:
    """See the module.

    Args:
        path: Of the file: its first line is shown, as by every other client; a server takes more of them.
        now_s: Monotonic time.

    Raises:
        UsageError: The file cannot be read, others may read it, or it holds no token. Its contents are not told.

    """

    def __init__(self, path: Path, *, now_s: float) -> None:
        self._path = path
        self._looked_s = now_s
        self._seen = stamp_of(path)
        self._token = _read(path)

    def look(self, now_s: float) -> str:
        """Return the token; the file is looked at once a second at most. One that cannot be read changes nothing."""
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            stamp = stamp_of(self._path)
            if stamp != self._seen:
                self._seen = stamp
                try:
                    self._token = _read(self._path)
                except UsageError as error:
                    _LOGGER.error("%s; the token read before is shown on", error)
        return self._token


def _read(path: Path) -> str:
    refuse_loose(path, "the token")
    try:
        lines = path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        why = "it does not exist" if isinstance(error, FileNotFoundError) else type(error).__name__
        raise UsageError(f"cannot read the token from {path}: {why}") from None
    if not lines or not 0 < len(lines[0]) <= _TOKEN_BYTES_MAX or not lines[0].isprintable():
        raise UsageError(f"{path}: expected a token of printable letters without blanks")
    return lines[0]
