"""TLS and the token of gRPC connections: who may call a replica, and how a caller knows that it is one.

One cluster has one token: whoever knows it may call every method of every replica. It travels in the metadata of each
call, `authorization: Bearer <token>`, and only inside TLS or on loopback. A certificate tells a caller that it speaks
with the replica that the address names.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
import os
import string
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio
import msgspec

from ledger.errors import UsageError
from ledger.tls import TlsSettings, client_context, server_context

__all__ = ["TOKEN_LENGTH_MIN", "RpcChannel", "Security", "TokenCheck", "is_loopback", "open_channel", "server_port"]

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""Of one message, either way: well above a client's message (1 MiB, or one large command) and a piece of answers."""
TOKEN_LENGTH_MIN = 16
_TOKEN_LENGTH_MAX = 1_024
_TOKEN_LETTERS = frozenset(string.ascii_letters + string.digits + "-._~+/=")
_AUTHORIZATION = "authorization"

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


class Security(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of keys, certificates (PEM) and the token; a replica uses the same ones when it calls another replica.

    Attributes:
        tls_ca: Certificates of the authorities that may sign the certificate of a replica that is called; any of
            `tls_ca` and `tls_cert` makes a caller's connections encrypted.
        tls_cert: The own certificate, followed by those that lead to its authority. A server encrypts with it; a
            caller shows it where the server asks.
        tls_key: Private key of `tls_cert`; not encrypted.
        tls_client_ca: Authorities that may sign callers' certificates: a server with it serves no caller without one.
        token_file: Holds the cluster's token in one line, 16 letters or more. A server with it serves no call without
            the token.

    """

    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    token_file: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return what the environment names.

        Args:
            environment: `RSM_STORE__TLS_CA`, `RSM_STORE__TLS_CERT`, `RSM_STORE__TLS_KEY`, `RSM_STORE__TLS_CLIENT_CA`,
                `RSM_STORE__TOKEN_FILE`; each the path of a file.

        """
        return cls(**{name: environment.get(f"RSM_STORE__{name.upper()}") or None for name in cls.__struct_fields__})

    @property
    def calls_encrypted(self) -> bool:
        """Whether a caller's connections are encrypted."""
        return self.tls_ca is not None or self.tls_cert is not None

    def check_caller(self) -> None:
        """Look at the files that a caller needs.

        Raises:
            UsageError: One cannot be used.

        """
        self.token()
        if self.calls_encrypted:
            client_context(TlsSettings(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key))

    def token(self) -> str | None:
        """Read the token; None if none is named.

        Raises:
            UsageError: The file cannot be read, or holds no token. Its contents are not told.

        """
        if self.token_file is None:
            return None
        try:
            text = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = "it does not exist" if isinstance(error, FileNotFoundError) else type(error).__name__
            raise UsageError(f"cannot read the token from {self.token_file}: {why}") from None
        if not TOKEN_LENGTH_MIN <= len(text) <= _TOKEN_LENGTH_MAX or not _TOKEN_LETTERS.issuperset(text):
            raise UsageError(
                f"{self.token_file}: expected one line of {TOKEN_LENGTH_MIN} to {_TOKEN_LENGTH_MAX} letters, digits or "
                "-._~+/=; `openssl rand -hex 32` makes a good one"
            )
        return text


class RpcChannel:
    """A connection to one replica, for any of its services; made by `open_channel`.

    Messages are bytes; encode and decode them yourself. Each call carries the token.

    Args:
        channel: gRPC's own.
        metadata: Of every call.

    """

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self._channel = channel
        self._metadata = metadata

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
        return functools.partial(call, metadata=self._metadata) if self._metadata else call


class TokenCheck(grpc.aio.ServerInterceptor):
    """Serves only calls that carry the token, of every service and kind.

    Args:
        token: The cluster's.

    """

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()
        # A stream: refused before anything is read. What the caller sees is the same for every kind of call.
        self._refusal: Any = grpc.stream_stream_rpc_method_handler(_refuse)
        self.refused_calls = 0

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Let a call through, or refuse it."""
        for key, value in handler_call_details.invocation_metadata:
            if key == _AUTHORIZATION:
                text = value if isinstance(value, bytes) else value.encode()
                if hmac.compare_digest(text, self._expected):
                    return await continuation(handler_call_details)
        self.refused_calls += 1
        return self._refusal


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED, "this replica needs the cluster's token: name its file (RSM_STORE__TOKEN_FILE)"
    )


def open_channel(address: str, security: Security) -> RpcChannel:
    """Return a channel to a replica; it connects with the first call.

    Args:
        address: "host:port".
        security: Of the caller.

    Raises:
        UsageError: A file cannot be used, or the token would travel in plain text beyond loopback.

    """
    token = security.token()
    metadata = ((_AUTHORIZATION, f"Bearer {token}"),) if token is not None else ()
    if not security.calls_encrypted:
        if token is not None and not is_loopback(address.rpartition(":")[0].strip("[]")):
            raise UsageError(
                f"the token would travel to {address} in plain text: name the authority of its certificate too "
                "(RSM_STORE__TLS_CA)"
            )
        return RpcChannel(grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS), metadata)
    security.check_caller()  # gRPC tells of damaged files in no words.
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read(security.tls_ca),
        private_key=_read(security.tls_key or security.tls_cert),
        certificate_chain=_read(security.tls_cert),
    )
    return RpcChannel(grpc.aio.secure_channel(address, credentials, options=_CHANNEL_OPTIONS), metadata)


def server_port(server: grpc.aio.Server, bind: str, port: int, security: Security) -> int:
    """Let a server listen; return the port.

    Args:
        server: Not started.
        bind: Address to listen on; beyond loopback only with a certificate and a token.
        port: 0 = the system chooses.
        security: Of the server.

    Raises:
        UsageError: TLS or token is missing where it is needed, or a file cannot be used.
        RuntimeError: The port is taken or not allowed.

    """
    missing = [
        name
        for name, value in (("a certificate (--tls-cert, --tls-key)", security.tls_cert),
                            ("a token (--token-file)", security.token_file))
        if value is None
    ]  # fmt: skip
    if missing and not is_loopback(bind):
        raise UsageError(
            f"cannot serve on {bind} without {' and '.join(missing)}: beyond loopback a replica needs TLS and a token. "
            "Give them, or use --bind 127.0.0.1"
        )
    host = f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
    if security.tls_cert is None:
        if security.tls_client_ca is not None or security.tls_key is not None:
            raise UsageError("TLS: a replica that encrypts needs a certificate: set tls_cert (and tls_key)")
        return server.add_insecure_port(host)
    server_context(TlsSettings(cert=security.tls_cert, key=security.tls_key, ca=security.tls_client_ca))
    cert = Path(security.tls_cert)
    key = Path(security.tls_key) if security.tls_key is not None else cert
    client_ca = _read(security.tls_client_ca)
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), cert.read_bytes())],
        root_certificates=client_ca,
        require_client_auth=client_ca is not None,
    )
    return server.add_secure_port(host, credentials)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
