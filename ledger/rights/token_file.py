"""A file of tokens, read again while the process runs: whoever knows one of them may do everything."""

from __future__ import annotations

import logging
import string
from pathlib import Path
from typing import Final

from ledger.errors import UsageError
from ledger.private_files import refuse_loose
from ledger.rereads import Reread, reread
from ledger.rights.file import stamp_of

_LOGGER = logging.getLogger(__name__)
_TOKEN_LENGTHS: Final = range(16, 1_024 + 1)
_TOKEN_LETTERS = frozenset(string.ascii_letters + string.digits + "-._~+/=")
_TOKENS_MAX = 8
_LOOK_S = 1.0


class TokenFile:
    """The tokens of a file, read again when it has changed; one that cannot be read any more changes nothing.

    Args:
        path: Of the file.
        now_s: Monotonic time.

    Attributes:
        known: The tokens, the one to send first.

    Raises:
        UsageError: The file cannot be read, or holds no token. Its contents are not told.

    """

    def __init__(self, path: str, *, now_s: float) -> None:
        self._path = path
        self._looked_s = now_s
        self._seen = stamp_of(Path(path))
        self.known: list[bytes] = [token.encode() for token in read_tokens(path)]

    def look(self, now_s: float) -> None:
        """Read the file again if it has changed; looks once a second at most."""
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        stamp = stamp_of(Path(self._path))
        if stamp == self._seen:
            return
        self._seen = stamp
        before = self.known
        try:
            self.known = [token.encode() for token in read_tokens(self._path)]
        except UsageError as error:
            _LOGGER.error("%s; the token read before stays in force", error)
            reread(Reread("tokens", self._path, "", str(error)), stamp)
            return
        if self.known != before:
            came, went = len(set(self.known) - set(before)), len(set(before) - set(self.known))
            first = ", another one is sent" if self.known[0] != before[0] else ""
            reread(Reread("tokens", self._path, f"tokens +{came} -{went}{first}"), stamp)


def read_tokens(path: str) -> list[str]:
    """Return the tokens of a file, the one to send first.

    Raises:
        UsageError: The file cannot be read, or holds no token. Its contents are not told.

    """
    refuse_loose(path, "the token")
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="ascii").strip().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = "it does not exist" if isinstance(error, FileNotFoundError) else type(error).__name__
        raise UsageError(f"cannot read the token from {path}: {why}") from None
    is_right = all(len(one) in _TOKEN_LENGTHS and _TOKEN_LETTERS.issuperset(one) for one in lines)
    if not 0 < len(lines) <= _TOKENS_MAX or not is_right:
        raise UsageError(
            f"{path}: expected one line of {_TOKEN_LENGTHS[0]} to {_TOKEN_LENGTHS[-1]} letters, digits or -._~+/=; "
            "`openssl rand -hex 32` makes a good one"
        )
    return lines
