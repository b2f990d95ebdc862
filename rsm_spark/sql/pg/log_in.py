"""Log-in of PostgreSQL's clients: who it is, by certificate, SCRAM or token. Pure.

nothing is demanded here        -> anybody is let in
a certificate, and the user is its principal's name -> that principal
the user has a verifier         -> SCRAM-SHA-256; the token is never said
else                            -> the token is asked for as the password, inside TLS or on loopback, and names the
principal as at every other door; the user's name does not count
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from ledger.rights.principal import CLUSTER, Principal
from ledger.rights.scram import ScramVerifier
from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg.faults import BAD_PASSWORD, PROTOCOL_VIOLATION, PgFatalFault
from rsm_spark.sql.pg.scram import ScramServer, initial

LogInSteps = Generator[bytes, bytes, "LogInOutcome"]


class LogInOutcome(NamedTuple):
    """Principal that has logged in, how that one is found again while it stays, and what is said to it."""

    principal: Principal
    again: Callable[[], Principal | None]
    last_words: bytes


class LogInRules(NamedTuple):
    """Rules of a server for those who may log in.

    Attributes:
        is_open: Nothing is demanded.
        of_token: Whose token this is.
        of_certificate: Whose certificate has these names.
        verifiers: Who a user is by SCRAM, and verifiers of its secrets; none = not by SCRAM.

    """

    is_open: bool
    of_token: Callable[[bytes], Principal | None]
    of_certificate: Callable[[Sequence[str]], Principal | None]
    verifiers: Callable[[str], tuple[Principal, Sequence[ScramVerifier]] | None]


def log_in(user: str, names: Sequence[str], rules: LogInRules, nonce: str) -> LogInSteps:
    """Return the steps of a log-in: what is to be sent, for what the client then says.

    Args:
        user: Who it says it is.
        names: In its certificate.
        rules: Of the server.
        nonce: Printable, of this log-in alone.

    Raises:
        PgFatalFault: It is nobody.

    """
    if rules.is_open:
        return LogInOutcome(CLUSTER, lambda: CLUSTER, answers.AUTHENTICATED)
    shown = rules.of_certificate(names) if names else None
    if shown is not None and shown.name == user:
        return LogInOutcome(shown, lambda: rules.of_certificate(names), answers.AUTHENTICATED)
    known = rules.verifiers(user)
    if known is not None:
        return (yield from _by_scram(user, known, rules, nonce))
    token = yield answers.ASK_PASSWORD
    if token[-1:] != b"\0":
        raise PgFatalFault(PROTOCOL_VIOLATION, "a password has no end")
    token = token[:-1]
    principal = rules.of_token(token)
    if principal is None:
        raise PgFatalFault(BAD_PASSWORD, "the password is no principal's token here, or it has expired")
    return LogInOutcome(principal, lambda: rules.of_token(token), answers.AUTHENTICATED)


def _by_scram(user: str, known: tuple[Principal, Sequence[ScramVerifier]], rules: LogInRules, nonce: str) -> LogInSteps:
    principal, verifiers = known
    exchange = ScramServer(verifiers, nonce)
    question = exchange.first(initial((yield answers.ASK_SCRAM)))
    proof = exchange.final((yield answers.scram_continue(question)))

    def again() -> Principal | None:
        found = rules.verifiers(user)
        # Whose verifier is another one now has another secret.
        return found[0] if found is not None and not set(verifiers).isdisjoint(found[1]) else None

    return LogInOutcome(principal, again, answers.scram_final(proof) + answers.AUTHENTICATED)
