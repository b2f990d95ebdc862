"""Ed25519, as the log's checkpoints are signed with it: the one place that knows the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledger.errors import UsageError


def new_private_key() -> bytes:
    """Return a new private key, 32 bytes.

    Raises:
        UsageError: The library is not installed.

    """
    raw: bytes = _library().Ed25519PrivateKey.generate().private_bytes_raw()
    return raw


def public_key_of(private_key: bytes) -> bytes:
    """Return the public key of a private one, 32 bytes.

    Raises:
        UsageError: It is no private key, or the library is not installed.

    """
    try:
        raw: bytes = _library().Ed25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()
    except ValueError as error:
        raise UsageError(f"no Ed25519 private key: {error}") from None
    return raw


def signer(private_key: bytes) -> Callable[[bytes], bytes]:
    """Return what signs messages.

    Raises:
        UsageError: See `public_key_of`.

    """
    try:
        sign: Callable[[bytes], bytes] = _library().Ed25519PrivateKey.from_private_bytes(private_key).sign
    except ValueError as error:
        raise UsageError(f"no Ed25519 private key: {error}") from None
    return sign


def verify_signature(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a signature is this key's over this message.

    Raises:
        UsageError: It is no public key, or the library is not installed.

    """
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - only where the extra is installed

    try:
        _library().Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except InvalidSignature:
        return False
    except ValueError as error:
        raise UsageError(f"no Ed25519 public key: {error}") from None
    return True


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - only where it is installed
    except ImportError:
        raise UsageError("keys of a log need the package cryptography: install rsm-spark[server]") from None
    return ed25519
