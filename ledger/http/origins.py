"""Check that a request was meant for this server, and did not come from another site's page.

Names: `ledger.http.host_names`. A browser says in `Origin` whose page asks: only the server's own may. Nothing
is ever shared across origins.
"""

from __future__ import annotations

from collections.abc import Iterable

from ledger.http.host_names import HostNames
from ledger.http.problems import HttpProblem
from ledger.tls import is_loopback

_KNOWN_MAX = 256


class HostCheck:
    """See the module.

    Args:
        bind: Address that is listened on.
        allowed: Names under which the server is asked, besides those of loopback if it listens there.
        is_encrypted: Whether its own pages are `https`.

    """

    def __init__(self, bind: str, allowed: Iterable[str], *, is_encrypted: bool) -> None:
        self._names = HostNames(bind, allowed, is_loopback=is_loopback(bind))
        self._scheme = "https://" if is_encrypted else "http://"
        # Hosts that were found to be right, as they are written; bounded, since a port may be anything.
        self._known: set[bytes] = set()

    def check(self, host: bytes | None, origin: bytes | None) -> None:
        """Refuse what is not meant for this server.

        Raises:
            Problem: 400, 403, 421.

        """
        if host is None:
            raise HttpProblem(400, "no-host", "the request names no Host")
        if host not in self._known:
            self._check_host(host)
        if origin is not None and origin.decode("latin-1").lower() != self._scheme + host.decode("latin-1").lower():
            raise HttpProblem(403, "foreign-origin", "a page of another origin asked; only this server's own may")

    def _check_host(self, host: bytes) -> None:
        name = self._names.name(host.decode("latin-1"))
        if name is None:
            raise HttpProblem(400, "no-host", "the request's Host is not a host name")
        if not self._names.is_own(name):
            raise HttpProblem(
                421, "foreign-host", "this server is not asked under that name: use 127.0.0.1, or allow the name "
                "(--allowed-hosts)"
            )  # fmt: skip
        if len(self._known) < _KNOWN_MAX:
            self._known.add(host)
