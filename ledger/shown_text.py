"""Text of others as a log shows it: on one line, bounded, and without secrets.

What a peer, a client or an error message brings may hold anything: an end of line that forges the next line of the
log, codes that a terminal obeys, a megabyte. Secrets are not written by our own lines; those of libraries, and errors
that repeat what was sent to them, are looked through for what has the form of one.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
"""Stands for a secret."""

_CONTROLS: Final = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_NAMED: Final = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}
# Ends of lines, codes of terminals, and marks that turn the direction of writing: each as its escape.
_ESCAPES: Final = {code: _NAMED.get(code, f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}") for code in _CONTROLS}
# The same for what stands in a string of JSON already: the encoder has escaped those below 0x20.
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in _CONTROLS if code >= 0x7F}

_NAMES = r"password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|authorization|private[_-]?key"
_SECRETS: Final = re.compile(
    rf"""
    -----BEGIN[ ][A-Z0-9 ]{{0,40}}PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z0-9 ]{{0,40}}-----|\Z)   # PEM
    | \b(?P<scheme>bearer|basic)[ ]+[A-Za-z0-9._~+/=-]{{8,}}                                      # a header of HTTP
    | (?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{{5,}}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+                     # a signed token
    | ://(?P<user>[^/\s:@"']*):[^/\s@"']+@                                                        # in an address
    | (?P<name>\b[a-z_]{{0,20}}(?:{_NAMES}))                        # name=value, "name": "value", or quoted once more
      (?P<is>=|\\?["']\s{{0,4}}[:=]\s{{0,4}}(?=\\?["']))(?P<quote>\\?["']?)(?:[^\s"',;&)}}\]\\]|\\(?!["']))+
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def shown(text: str, chars_max: int) -> str:
    """Return a text without secrets, cut to a length.

    Args:
        text: Of anybody.
        chars_max: What is beyond is told as a number.

    """
    found = _SECRETS.sub(_hide, text[: 2 * chars_max])
    if len(text) <= chars_max and len(found) <= chars_max:
        return found
    return f"{found[:chars_max]}… ({len(text):,} characters)"


def one_line(text: str) -> str:
    r"""Return a text with each end of line and each code of a terminal as its escape: \n, \x1b."""
    return text.translate(_ESCAPES)


def harmless_json(text: str) -> str:
    """Return encoded JSON in which what terminals obey is escaped too: JSON itself asks for less."""
    return text if text.isascii() and "\x7f" not in text else text.translate(_JSON_ESCAPES)


def _hide(found: re.Match[str]) -> str:
    if found["scheme"]:
        return f"{found['scheme']} {HIDDEN}"
    if found["user"] is not None:
        return f"://{found['user']}:{HIDDEN}@"
    if found["name"]:
        return f"{found['name']}{found['is']}{found['quote']}{HIDDEN}"
    return HIDDEN
