"""Admission of a connection: TLS, a log-in, both or nothing must come before it may ask for entries."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable, Mapping

from ledger.bookie.rights import OPEN_REQUESTS, right_of
from ledger.bookie.tls import TlsPolicy
from ledger.errors import LoginError
from ledger.rights.file import PrincipalsFile
from ledger.rights.principal import Principal
from ledger.rights.table import Right, may
from ledger.wire.codes import Status
from ledger.wire.packets import AuthRequest, AuthResponse, Request
from ledger.wire.sasl_digest import DISABLED_PLUGIN, PLUGIN, ServerLogin


class ConnectionAdmission:
    """State of one connection's admission.

    Args:
        tls: Whether TLS is required.
        users: Passwords by user, one of whom must log in; None lets everybody in.
        principals: Who may do what, by user or by the names of a client's certificate; None = whoever is let in may do
            everything.
        wall_s: Wall clock.

    Attributes:
        is_secure: Whether the connection has gone over to TLS.
        principal: Who is there, where there are principals.

    """

    def __init__(
        self,
        tls: TlsPolicy,
        users: Mapping[str, str] | None,
        principals: PrincipalsFile | None = None,
        *,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._tls = tls
        self._users = users
        self._principals = principals
        self._wall_s = wall_s
        self._names: tuple[str, ...] = ()
        self._login: ServerLogin | None = None
        self.is_secure = False
        self.principal: Principal | None = None

    @property
    def user(self) -> str | None:
        """Name of the user that has logged in; None before that."""
        return None if self._login is None else self._login.user

    @property
    def missing(self) -> str | None:
        """Next step that the connection must take, in words; None if nothing is missing."""
        if self._tls.is_required and not self.is_secure:
            return "TLS (START_TLS)"
        if self._principals is not None:
            return None if self.principal is not None else "a log-in or a certificate of a principal"
        if self._users is not None and self.user is None:
            return "a log-in (SASL, DIGEST-MD5)"
        return None

    @property
    def is_bounded(self) -> bool:
        """True if each request has to be looked at, because the caller may not do everything."""
        return self._principals is not None and not self._may(Right.LEDGER_WRITE)

    @property
    def may_read(self) -> bool:
        """True if the caller may read ledgers."""
        return self._principals is None or self._may(Right.LEDGER_READ)

    @property
    def may_write_unknown_ledgers(self) -> bool:
        """True if the caller may create any ledger: a user that logged in, or a client with a certificate."""
        if self._principals is not None:
            return self._may(Right.LEDGER_WRITE)
        has_logged_in = self._users is not None and self.user is not None
        context = self._tls.context
        return has_logged_in or (self.is_secure and context is not None and context.verify_mode == ssl.CERT_REQUIRED)

    def admits(self, request: Request) -> bool:
        """Return whether a request may be handled, by the caller's rights and the state of its admission."""
        if isinstance(request, OPEN_REQUESTS):
            return True
        if self.missing is not None:
            return False
        right = right_of(request)
        return self._principals is None or (right is not None and self._may(right))

    def why(self, request: Request) -> str:
        """Return in words why a request is not handled."""
        if self.missing is not None:
            return f"before {self.missing}"
        return f"for what {self.principal} may not do: {type(request).__name__}"

    def show_certificate(self, names: tuple[str, ...]) -> None:
        """Take note of the names of the client's certificate."""
        self._names = names
        self.principal = self._find()

    def is_over(self, users: Mapping[str, str] | None) -> bool:
        """Return whether who was let in would not be let in any more, or may do something else now.

        Args:
            users: As they are now.

        """
        if self.user is not None and users is not None and self.user not in users:
            return True
        return self.principal is not None and self._find() != self.principal

    def _may(self, right: Right) -> bool:
        return self.principal is not None and may(self.principal, right)

    def _find(self) -> Principal | None:
        if self._principals is None:
            return None
        if self.user is not None:
            return self._principals.of_login(self.user, self._wall_s())
        return self._principals.of_certificate(self._names, self._wall_s())

    def log_in(self, request: AuthRequest) -> AuthResponse:
        """Take one step of a log-in; where none is demanded, or it is done, whatever is said is right.

        Raises:
            LoginError: The client is not let in; end the connection.

        """
        if self._users is None or self.user is not None:
            return AuthResponse(request.txn_id, Status.EOK, DISABLED_PLUGIN, b"")
        if request.plugin != PLUGIN:
            raise LoginError(f"it logs in by the plugin {request.plugin[:60]!r}, and {PLUGIN!r} is demanded")
        if self._login is None:
            self._login = ServerLogin(self._users, secrets.token_hex(16))
        answer = self._login.step(request.payload)
        self.principal = self._find()
        return AuthResponse(request.txn_id, Status.EOK, PLUGIN, answer)
