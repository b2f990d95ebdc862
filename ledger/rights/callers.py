"""Callers of a server: the principal of a token or of a certificate, by the files that the server was given."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, Sequence

from ledger.rights.file import PrincipalsFile
from ledger.rights.principal import CLUSTER, Principal
from ledger.rights.scram import SALT_BYTES, ScramVerifier
from ledger.rights.token_file import TokenFile


class Callers:
    """See the module.

    Args:
        principals: File of who may do what; None = there is none.
        token_file: Without principals: whoever knows one of its tokens may do everything; None = everybody may.
        clock_s: Monotonic.
        wall_s: Wall clock.

    Raises:
        UsageError: A file cannot be used.

    """

    def __init__(
        self,
        principals: str | None = None,
        token_file: str | None = None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._principals: PrincipalsFile | None = None
        self._tokens: TokenFile | None = None
        self._salt = os.urandom(SALT_BYTES)
        self._verified: tuple[bytes, ...] = ()
        self._verifiers: tuple[ScramVerifier, ...] = ()
        if principals is not None:
            self._principals = PrincipalsFile(principals, now_s=clock_s())
        elif token_file is not None:
            self._tokens = TokenFile(token_file, now_s=clock_s())

    @property
    def is_open(self) -> bool:
        """True if nothing is demanded."""
        return self._principals is None and self._tokens is None

    @property
    def has_principals(self) -> bool:
        return self._principals is not None

    def of_token(self, token: bytes) -> Principal | None:
        """Return whose token this is; None = nobody's."""
        if self.is_open:
            return CLUSTER
        self.look()
        if self._principals is not None:
            return self._principals.of_token(token, self._wall_s())
        assert self._tokens is not None
        # All of them are compared, whichever fits: the time tells nothing.
        is_known = sum(hmac.compare_digest(token, known) for known in self._tokens.known)
        return CLUSTER if is_known else None

    def of_certificate(self, names: Sequence[str]) -> Principal | None:
        """Return whose certificate has these names; None = nobody's, or there are no principals."""
        if self._principals is None:
            return None
        self.look()
        return self._principals.of_certificate(names, self._wall_s())

    def of(self, token: bytes, names: Sequence[str]) -> Principal | None:
        """Return whose token this is, or without one whose certificate has these names; None = nobody's."""
        return self.of_token(token) if token or self._principals is None else self.of_certificate(names)

    def by_scram(self, user: str) -> tuple[Principal, tuple[ScramVerifier, ...]] | None:
        """Return who proves by SCRAM that it is this user, and verifiers of its secrets.

        Without principals every user is the cluster, and its tokens are the secrets. None = not by SCRAM.
        """
        if self.is_open:
            return None
        self.look()
        if self._principals is not None:
            found = self._principals.of_scram(user, self._wall_s())
            return None if found is None else (found[0], (found[1],))
        assert self._tokens is not None
        return CLUSTER, self._verifiers_of(self._tokens.known)

    def _verifiers_of(self, tokens: Sequence[bytes]) -> tuple[ScramVerifier, ...]:
        known = tuple(tokens)
        if self._verified != known:
            self._verifiers = tuple(ScramVerifier.of_secret(token, self._salt) for token in known)
            self._verified = known
        return self._verifiers

    def look(self) -> None:
        """Read the files again if they have changed."""
        for file in (self._principals, self._tokens):
            if file is not None:
                file.look(self._clock_s())
