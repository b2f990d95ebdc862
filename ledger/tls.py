"""TLS for both ends of a bookie's connections: what may be told, and the contexts that come of it."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from ledger.errors import UsageError

__all__ = ["TlsSettings", "client_context", "describe_early_end", "describe_tls_error", "server_context"]


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of keys and certificates, PEM.

    Attributes:
        cert: The own certificate, followed by those that lead to its authority. A bookie must have one; a client
            only where bookies ask for it.
        key: The private key of `cert`; not encrypted.
        ca: Certificates of the authorities that are trusted to sign the other end's certificate. A client without
            it trusts those of the system; a bookie with it demands certificates of its clients.
        check_hostname: Whether a client insists that the bookie's certificate names the host that it connects to.

    """

    cert: str | None = None
    key: str | None = None
    ca: str | None = None
    check_hostname: bool = True


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a client; the bookie's certificate is always verified.

    Raises:
        UsageError: A file cannot be read, or certificate and key do not belong together.

    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.check_hostname
    if settings.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_ca(context, settings.ca)
    if settings.cert is not None:
        _load_cert(context, settings.cert, settings.key)
    elif settings.key is not None:
        raise UsageError(f"TLS: there is a key ({settings.key}) and no certificate: set `cert` too")
    return context


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a bookie; with `ca` it demands certificates of its clients.

    Raises:
        UsageError: There is no certificate, a file cannot be read, or certificate and key do not belong together.

    """
    if settings.cert is None:
        raise UsageError("TLS: a bookie needs a certificate: set `cert` (and `key`)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_cert(context, settings.cert, settings.key)
    if settings.ca is not None:
        _load_ca(context, settings.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def describe_tls_error(error: Exception) -> str:
    """Say what went wrong in a handshake, and what to look at."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = _HINTS.get(error.verify_code, "the bookie's certificate is not accepted")
        return f"TLS: {hint} ({error.verify_message.rstrip('.')})"
    if isinstance(error, ssl.SSLError):
        text = f"{error.reason or ''} {error}".lower()
        for sign, hint in _ALERTS:
            if sign in text:
                return f"TLS: {hint} ({error.reason})"
        return f"TLS: {error.reason or error}"
    return f"TLS: it ended the connection during the handshake ({str(error) or type(error).__name__})"


def describe_early_end(error: Exception | None) -> str:
    """Say what it means that a bookie ended an encrypted connection before it said anything.

    With TLS 1.3 a client has shaken hands before the bookie has seen its certificate, or missed it.
    """
    if isinstance(error, ssl.SSLError):
        return describe_tls_error(error)
    return (
        "TLS: it ended the connection right after the handshake: it may demand a certificate of its clients, signed by "
        "an authority that it trusts (set `cert` and `key`)"
    )


_HINTS = {
    10: "the bookie's certificate has expired: renew it",
    9: "the bookie's certificate is not valid yet: compare the clocks",
    18: "the bookie's certificate is signed by itself: put it into `ca`",
    19: "the bookie's certificate is signed by an authority that is not in `ca`",
    20: "the bookie's certificate is signed by an authority that is not in `ca`",
    62: "the bookie's certificate does not name this host",
    64: "the bookie's certificate does not name this address",
}
"""X.509 verification codes of OpenSSL -> what to do."""

_ALERTS = (
    ("certificate_required", "the bookie demands a certificate of its clients: set `cert` and `key`"),
    ("certificate required", "the bookie demands a certificate of its clients: set `cert` and `key`"),
    (
        "bad_certificate",
        "the bookie demands a certificate of its clients, or does not accept this one's (`cert`, `key`)",
    ),
    ("unknown_ca", "the bookie does not trust the authority that signed this client's certificate"),
    ("unknown ca", "the bookie does not trust the authority that signed this client's certificate"),
    ("certificate_expired", "this client's certificate has expired: renew it"),
    ("certificate expired", "this client's certificate has expired: renew it"),
    ("handshake_failure", "the bookie refuses the handshake: it may demand a certificate (set `cert` and `key`)"),
    ("wrong_version_number", "what answers does not speak TLS"),
)


def _load_ca(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"TLS: cannot read certificates of authorities from {path}: {_why(error, path)}") from error


def _load_cert(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        where = cert if key is None else f"{cert} and {key}"
        missing = key if key is not None and Path(cert).exists() else cert
        raise UsageError(f"TLS: cannot use {where}: {_why(error, missing)}") from error


def _no_password() -> str:
    raise OSError("the key is encrypted; give one that is not, readable by this process only")


def _why(error: Exception, path: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path} does not exist"
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    if isinstance(error, ssl.SSLError):
        return f"not PEM, or damaged ({error.reason or error})"
    return str(error)
