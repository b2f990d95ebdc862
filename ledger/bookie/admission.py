"""What a connection must do before it may ask for entries: go over to TLS, log in, both, or nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from ledger.bookie.tls import TlsPolicy
from ledger.errors import LoginError
from ledger.wire.codes import Status
from ledger.wire.packets import AuthRequest, AuthResponse, RefusedRequest, Request, StartTlsRequest
from ledger.wire.sasl_digest import DISABLED_PLUGIN, PLUGIN, ServerLogin

__all__ = ["Admission"]


class Admission:
    """How far one connection has come.

    Args:
        tls: Whether TLS is required.
        users: Passwords by user, one of whom must log in; None lets everybody in.

    Attributes:
        is_secure: Whether the connection has gone over to TLS.

    """

    def __init__(self, tls: TlsPolicy, users: Mapping[str, str] | None) -> None:
        self._tls = tls
        self._users = users
        self._login: ServerLogin | None = None
        self.is_secure = False

    @property
    def user(self) -> str | None:
        """Who has logged in."""
        return None if self._login is None else self._login.user

    @property
    def missing(self) -> str | None:
        """What must come first, in words; None if nothing is missing."""
        if self._tls.is_required and not self.is_secure:
            return "TLS (START_TLS)"
        if self._users is not None and self.user is None:
            return "a log-in (SASL, DIGEST-MD5)"
        return None

    def admits(self, request: Request) -> bool:
        """Whether a request may be handled: any when nothing is missing, else what leads there."""
        return isinstance(request, StartTlsRequest | AuthRequest | RefusedRequest) or self.missing is None

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
        return AuthResponse(request.txn_id, Status.EOK, PLUGIN, self._login.step(request.payload))
