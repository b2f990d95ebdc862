"""TLS for both ends of a bookie's connections: what may be told, and the contexts that come of it."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import re
import ssl
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ledger.errors import UsageError
from ledger.private_files import refuse_loose
from ledger.rereads import Reread, reread
from ledger.rights.file import stamp_of
from ledger.shown_certificates import note_certificate

_LOGGER = logging.getLogger(__name__)
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


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


class ClientContexts:
    """The context of a client, made anew when a file has changed; files that cannot be used change nothing.

    Args:
        settings: Of the client.

    Raises:
        UsageError: A file cannot be read, or certificate and key do not belong together.

    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._paths = [Path(path) for path in (settings.cert, settings.key, settings.ca) if path is not None]
        self._seen = [stamp_of(path) for path in self._paths]
        self._context = client_context(settings)

    def newest(self) -> ssl.SSLContext:
        """Return what the next connection uses."""
        found = [stamp_of(path) for path in self._paths]
        if found != self._seen:
            self._seen = found
            try:
                self._context = client_context(self._settings)
                certificate_reread(self._paths, found)
            except UsageError as error:
                _LOGGER.error("%s; the certificate read before is shown on", error)
                certificate_reread(self._paths, found, str(error))
        return self._context


def server_context(settings: TlsSettings, *, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """Return the context of a server; with `ca` it demands certificates of its clients.

    Its files are read again when they have changed: the next connection gets the new certificate. Files that cannot be
    used change nothing.

    Args:
        settings: Its files.
        alpn: What is spoken over it, for clients that ask.

    Raises:
        UsageError: There is no certificate, a file cannot be read, or certificate and key do not belong together.

    """
    context = _server_context(settings, alpn)
    paths = [Path(path) for path in (settings.cert, settings.key, settings.ca) if path is not None]
    seen, newest = [stamp_of(path) for path in paths], context

    def renew(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal seen, newest
        found = [stamp_of(path) for path in paths]
        if found != seen:
            seen = found
            try:
                newest = _server_context(settings, alpn)
                certificate_reread(paths, found)
            except UsageError as error:
                _LOGGER.error("%s; the certificate read before is served on", error)
                certificate_reread(paths, found, str(error))
        if newest is not context:
            connection.context = newest

    context.sni_callback = renew  # called for clients that name no host, too
    return context


def _server_context(settings: TlsSettings, alpn: Sequence[str]) -> ssl.SSLContext:
    if settings.cert is None:
        raise UsageError("TLS: a bookie needs a certificate: set `cert` (and `key`)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_cert(context, settings.cert, settings.key)
    if settings.ca is not None:
        _load_ca(context, settings.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def certificate_reread(paths: Sequence[Path], stamps: Sequence[object], failure: str = "") -> None:
    """Tell the audit that files of TLS were read again.

    Args:
        paths: Of the certificate, the key, the authorities, as far as they are named.
        stamps: Of each: `stamp_of`.
        failure: Why they are not used; "" = they are.

    """
    shown = [f"{path} ({fingerprint})" for path in paths if (fingerprint := _fingerprint(path))]
    reread(Reread("certificate", str(paths[0]), ", ".join(shown), failure), tuple(stamps))


def _fingerprint(path: Path) -> str:
    """Return the fingerprint of the first certificate of a file, as openssl shows it; "" = it holds none."""
    try:
        found = _CERTIFICATE.search(path.read_text(encoding="utf-8"))
        der = b"" if found is None else ssl.PEM_cert_to_DER_cert(found.group())
    except (OSError, ValueError):
        return ""
    return f"sha256:{hashlib.sha256(der).hexdigest()}" if der else ""


def certificate_names(transport: asyncio.BaseTransport) -> tuple[str, ...]:
    """Return the names in the certificate that the other end has shown (DNS, URI); none if it has shown none."""
    shown = transport.get_extra_info("peercert") or {}
    return tuple(name for kind, name in shown.get("subjectAltName", ()) if kind in ("DNS", "URI"))


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def describe_tls_error(error: Exception, *, peer: str = "the bookie") -> str:
    """Say what went wrong in a handshake with this peer, and what to look at."""
    return _described(error).replace("the bookie", peer)


def _described(error: Exception) -> str:
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
    ("certificate_unknown", "the bookie does not accept this client's certificate: another authority, or damaged"),
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
    refuse_loose(key or cert, "TLS: the key")
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        where = cert if key is None else f"{cert} and {key}"
        missing = key if key is not None and Path(cert).exists() else cert
        raise UsageError(f"TLS: cannot use {where}: {_why(error, missing)}") from error
    note_certificate(cert)


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
