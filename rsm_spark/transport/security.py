"""TLS and tokens of gRPC connections: how a caller shows who it is, and how it knows that a replica is one.

A token travels in the metadata of each call, `authorization: Bearer <token>`, and only inside TLS or on loopback. A
certificate tells a caller that it speaks with the replica that the address names. What a caller may do is decided by
`rsm_spark.transport.guard`: with a file of principals by that, else whoever knows the cluster's one token may do
everything.

All files are read again when they have changed: a server shows its new certificate to the next connection, a caller
sends its new token with the next call.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import grpc
import grpc.aio
import msgspec

from ledger.errors import UsageError
from ledger.options import Option
from ledger.rights.token_file import TokenFile, read_tokens
from ledger.tls import TlsSettings, client_context, is_loopback

_LOGGER = logging.getLogger(__name__)
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of a message, either way: well above a client's message (1 MiB, or a large command) and a piece of answers."""
AUTHORIZATION = "authorization"
"""Name of the metadata that carries a token."""

_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # A server that was stopped or cut off answers nothing: it is noticed within seconds also when nothing else tells.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Reconnecting is our own decision, with the next leader's address; gRPC's subchannels of one address are shared
    # by all channels of the process, and with them their back-off, unless told otherwise.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


class HeldToken:
    """A token that somebody has shown to this process, to be shown on for that caller; it is on no disk and in no text.

    Args:
        token: The token.

    Attributes:
        known: The token alone, as of a `TokenFile`.

    """

    def __init__(self, token: bytes) -> None:
        self.known = [token]

    def look(self, now_s: float) -> None:
        """Do nothing: it does not change."""

    def __eq__(self, other: object) -> bool:
        """Return whether another one is the same token: what was opened with one is used with the same alone."""
        return isinstance(other, HeldToken) and self.known == other.known

    def __hash__(self) -> int:
        """Return what equal ones share."""
        return hash(tuple(self.known))

    def __repr__(self) -> str:
        """Return nothing of the token."""
        return "HeldToken(…)"


class Security(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of keys, certificates (PEM) and the token; a replica uses the same ones when it calls another replica.

    Attributes:
        tls_ca: Certificates of the authorities that may sign the certificate of a replica that is called; any of
            `tls_ca` and `tls_cert` makes a caller's connections encrypted.
        tls_cert: The own certificate, followed by those that lead to its authority. A server encrypts with it; a
            caller shows it where the server asks.
        tls_key: Private key of `tls_cert`; not encrypted.
        tls_client_ca: Authorities that may sign callers' certificates: a server with it serves no caller without one.
        token_file: Holds a token in one line, 16 letters or more: a caller sends it. A server without `principals`
            serves only calls that carry it. More lines are tokens that a server takes too while one takes the place of
            another.
        principals: File of who may do what: see `ledger.rights.entries`. A server with it serves only those.
        held_token: A token that a caller sends instead of one of a file.

    """

    tls_ca: Annotated[
        str | None,
        Option(
            "Authority that has signed the certificates of the other replicas.",
            metavar="PEM",
            variables=("RSM_STORE__TLS_CA",),
        ),
    ] = None
    tls_cert: Annotated[
        str | None, Option("Certificate to serve with.", metavar="PEM", variables=("RSM_STORE__TLS_CERT",))
    ] = None
    tls_key: Annotated[str | None, Option("Its private key.", metavar="PEM", variables=("RSM_STORE__TLS_KEY",))] = None
    tls_client_ca: Annotated[
        str | None,
        Option(
            "Authority. Only callers are served whose certificate it has signed.",
            metavar="PEM",
            variables=("RSM_STORE__TLS_CLIENT_CA",),
        ),
    ] = None
    token_file: Annotated[
        str | None,
        Option(
            "The token that this replica shows to others; without --principals, callers have to know it too.",
            metavar="FILE",
            variables=("RSM_STORE__TOKEN_FILE",),
        ),
    ] = None
    principals: Annotated[
        str | None,
        Option("Who may do what: principals with roles, tokens, certificates. Nobody else is served.", metavar="TOML"),
    ] = None
    held_token: HeldToken | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return what the environment names.

        Args:
            environment: `RSM_STORE__TLS_CA`, `RSM_STORE__TLS_CERT`, `RSM_STORE__TLS_KEY`, `RSM_STORE__TLS_CLIENT_CA`,
                `RSM_STORE__TOKEN_FILE`, `RSM_STORE__PRINCIPALS`; each the path of a file.

        """
        names = [name for name in cls.__struct_fields__ if name != "held_token"]
        files: dict[str, Any] = {name: environment.get(f"RSM_STORE__{name.upper()}") or None for name in names}
        return cls(**files)

    @property
    def calls_encrypted(self) -> bool:
        """True if a caller's connections are encrypted."""
        return self.tls_ca is not None or self.tls_cert is not None

    def served(self) -> TlsSettings | None:
        """Return the files that a server encrypts with; None = it does not."""
        if self.tls_cert is None:
            return None
        return TlsSettings(cert=self.tls_cert, key=self.tls_key, ca=self.tls_client_ca)

    def check_caller(self) -> None:
        """Look at the files that a caller needs.

        Raises:
            UsageError: One cannot be used.

        """
        self.token()
        if self.calls_encrypted:
            client_context(TlsSettings(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key))

    def token(self) -> str | None:
        """Read the token that a caller sends; None if none is named.

        Raises:
            UsageError: The file cannot be read, or holds no token. Its contents are not told.

        """
        return None if self.token_file is None else read_tokens(self.token_file)[0]


class RpcChannel:
    """A connection to one replica, for any of its services; made by `open_channel`.

    Messages are bytes; encode and decode them yourself. Each call carries the token.

    Args:
        channel: gRPC's own.
        token: To send with every call; None = there is none.

    """

    def __init__(self, channel: grpc.aio.Channel, token: TokenFile | HeldToken | None) -> None:
        self._channel = channel
        self._token = token

    def unary_unary(self, method: str) -> Any:
        """Return what calls `method` ("/service/Method") with one message for one answer."""
        return self._with_token(self._channel.unary_unary(method))

    def unary_stream(self, method: str) -> Any:
        """Return what calls `method` with one message for a stream of answers."""
        return self._with_token(self._channel.unary_stream(method))

    def stream_stream(self, method: str) -> Any:
        """Return what opens a stream both ways."""
        return self._with_token(self._channel.stream_stream(method))

    async def close(self) -> None:
        """Break off every call, and disconnect."""
        await self._channel.close()

    def _with_token(self, call: Any) -> Any:
        token = self._token
        if token is None:
            return call

        def with_token(*requests: Any, **options: Any) -> Any:
            token.look(time.monotonic())
            return call(*requests, metadata=((AUTHORIZATION, f"Bearer {token.known[0].decode()}"),), **options)

        return with_token


def check_token_way(address: str, security: Security) -> None:
    """Refuse to send a token in plain text beyond loopback.

    Raises:
        UsageError: It would be.

    """
    has_token = security.token_file is not None or security.held_token is not None
    if has_token and not security.calls_encrypted and not is_loopback(address.rpartition(":")[0].strip("[]")):
        raise UsageError(
            f"the token would travel to {address} in plain text: name the authority of its certificate too "
            "(RSM_STORE__TLS_CA)"
        )


def shown_token(security: Security) -> TokenFile | HeldToken | None:
    """Return what a caller's token is read from; None = it sends none.

    Raises:
        UsageError: The file cannot be read, or holds no token.

    """
    if security.held_token is not None:
        return security.held_token
    return None if security.token_file is None else TokenFile(security.token_file, now_s=time.monotonic())


def open_channel(address: str, security: Security) -> RpcChannel:
    """Return a channel to a replica; it connects with the first call.

    Args:
        address: "host:port".
        security: Of the caller.

    Raises:
        UsageError: A file cannot be used, or the token would travel in plain text beyond loopback.

    """
    token = shown_token(security)
    check_token_way(address, security)
    if not security.calls_encrypted:
        return RpcChannel(grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS), token)
    security.check_caller()  # gRPC tells of damaged files in no words.
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read(security.tls_ca),
        private_key=_read(security.tls_key or security.tls_cert),
        certificate_chain=_read(security.tls_cert),
    )
    return RpcChannel(grpc.aio.secure_channel(address, credentials, options=_CHANNEL_OPTIONS), token)


def check_bind(bind: str, security: Security) -> None:
    """Refuse an address beyond loopback without a certificate and a token.

    Raises:
        UsageError: One of them is missing.

    """
    missing = [
        name
        for name, value in (("a certificate (--tls-cert, --tls-key)", security.tls_cert),
                            ("a token (--token-file, or --principals)", security.principals or security.token_file))
        if value is None
    ]  # fmt: skip
    if missing and not is_loopback(bind):
        raise UsageError(
            f"cannot serve on {bind} without {' and '.join(missing)}: beyond loopback a replica needs TLS and a token. "
            "Give them, or use --bind 127.0.0.1"
        )


def check_server(bind: str, security: Security) -> None:
    """Check that a server may listen there.

    Raises:
        UsageError: TLS or token is missing where it is needed.

    """
    check_bind(bind, security)
    if security.tls_cert is None and (security.tls_client_ca is not None or security.tls_key is not None):
        raise UsageError("TLS: a replica that encrypts needs a certificate: set tls_cert (and tls_key)")


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
