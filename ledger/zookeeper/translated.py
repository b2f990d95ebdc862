"""Translation of kazoo's errors into this package's errors."""

from __future__ import annotations

from kazoo import exceptions as kazoo_errors

from ledger.errors import (
    BadVersionError,
    MetadataDeniedError,
    MetadataError,
    MetadataSessionLostError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from ledger.zookeeper.auth import AUTH_FILE_VARIABLE

_DEFINITE: tuple[tuple[type[Exception], type[MetadataError]], ...] = (
    (kazoo_errors.NoNodeError, NoNodeError),
    (kazoo_errors.NodeExistsError, NodeExistsError),
    (kazoo_errors.NotEmptyError, NodeExistsError),
    (kazoo_errors.BadVersionError, BadVersionError),
    (kazoo_errors.SessionExpiredError, MetadataSessionLostError),
    (kazoo_errors.ConnectionLoss, MetadataUnavailableError),
    (kazoo_errors.OperationTimeoutError, MetadataUnavailableError),
    (kazoo_errors.ConnectionClosedError, MetadataSessionLostError),
)


def translated(error: Exception, verb: str, path: str) -> MetadataError:
    """Return the error of ours that tells what `verb` on `path` met with."""
    for foreign, ours in _DEFINITE:
        if isinstance(error, foreign):
            return ours(f"ZooKeeper, {verb} {path}: {type(error).__name__} {error}".rstrip())
    if isinstance(error, (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError, kazoo_errors.InvalidACLError)):
        return MetadataDeniedError(
            f"ZooKeeper does not let us {verb} {path} ({type(error).__name__}): name a file with this cluster's log-in "
            f"in {AUTH_FILE_VARIABLE}"
        )
    return MetadataError(f"ZooKeeper, {verb} {path}: {type(error).__name__} {error}".rstrip())
