"""Whether a request was meant for this server, and did not come from another site's page.

A page of any site can make a browser ask 127.0.0.1, by a name that it lets point there (DNS rebinding): its `Host` is
that name. On loopback only names of loopback are served, beyond it those that are configured, if any are. A browser
says in `Origin` whose page asks: only the server's own may. Nothing is ever shared across origins.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.http.problems import Problem
from rsm_spark.grpc.security import is_loopback

__all__ = ["HostCheck"]

_KNOWN_MAX = 256


class HostCheck:
    """See the module.

    Args:
        bind: Address that is listened on.
        allowed: Names under which the server is asked, besides those of loopback if it listens there.
        is_encrypted: Whether its own pages are `https`.

    """

    def __init__(self, bind: str, allowed: Iterable[str], *, is_encrypted: bool) -> None:
        names = {name.lower() for name in allowed}
        self._checks_names = is_loopback(bind) or bool(names)
        self._names = names | {"localhost", "127.0.0.1", "[::1]"}
        if self._checks_names and not is_loopback(bind):
            self._names.add(f"[{bind}]" if ":" in bind else bind)
        self._scheme = "https://" if is_encrypted else "http://"
        # Hosts that were found to be right, as they are written; bounded, since a port may be anything.
        self._known: set[bytes] = set()

    def check(self, host: bytes | None, origin: bytes | None) -> None:
        """Refuse what is not meant for this server.

        Raises:
            Problem: 400, 403, 421.

        """
        if host is None:
            raise Problem(400, "no-host", "the request names no Host")
        if host not in self._known:
            self._check_host(host)
        if origin is not None and origin.decode("latin-1").lower() != self._scheme + host.decode("latin-1").lower():
            raise Problem(403, "foreign-origin", "a page of another origin asked; only this server's own may")

    def _check_host(self, host: bytes) -> None:
        text = host.decode("latin-1").lower()
        name, colon, port = text.rpartition(":")
        if not colon or "]" in port:
            name, port = text, ""
        if not name or not text.isprintable() or (port and not (port.isascii() and port.isdigit())) or "@" in text:
            raise Problem(400, "no-host", "the request's Host is none")
        if self._checks_names and name not in self._names:
            raise Problem(
                421, "foreign-host", "this server is not asked under that name: use 127.0.0.1, or allow the name "
                "(--allowed-hosts)"
            )  # fmt: skip
        if len(self._known) < _KNOWN_MAX:
            self._known.add(host)
