"""Under which names a server is asked: a page of any site can make a browser ask 127.0.0.1 under a name of its own.

Such a name points to loopback when the page wants it to (DNS rebinding), and stands in the request's `Host`. On
loopback only names of loopback are served, beyond it those that are configured, if any are.
"""

from __future__ import annotations

from collections.abc import Iterable

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


class HostNames:
    """See the module.

    Args:
        bind: Address that is listened on.
        is_loopback: Whether that is this host's own.
        allowed: Names under which the server is asked, besides those of loopback if it listens there.

    """

    def __init__(self, bind: str, allowed: Iterable[str] = (), *, is_loopback: bool) -> None:
        names = {name.lower() for name in allowed}
        self._checks = is_loopback or bool(names)
        self._names = frozenset(names | _LOOPBACK | {f"[{bind}]" if ":" in bind else bind})

    def name(self, host: str) -> str | None:
        """Return the name in a `Host` header; None = it is none.

        Args:
            host: The header.

        """
        text = host.lower()
        name, colon, port = text.rpartition(":")
        if not colon or "]" in port:
            name, port = text, ""
        if not name or not text.isprintable() or (port and not (port.isascii() and port.isdigit())) or "@" in text:
            return None
        return name

    def is_own(self, name: str) -> bool:
        """Tell whether this server is asked under that name."""
        return not self._checks or name in self._names
