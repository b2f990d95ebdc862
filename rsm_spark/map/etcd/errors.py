"""Errors as etcd's clients know them, by code and text; and what the map's own errors are for them.

* `RsmError`
    * `EtcdError`   never leaves this package
"""

from __future__ import annotations

import grpc

from ledger.errors import LedgerError
from rsm_spark.errors import (
    AccessDeniedError,
    InvalidCommandError,
    MissingLogError,
    NoLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    RsmError,
)
from rsm_spark.map import alarms
from rsm_spark.map.commands import Unmet


class EtcdError(RsmError):
    """A request that is not answered, as its client is told.

    Attributes:
        code: gRPC's.
        text: What clients compare with the texts that they know.

    """

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def invalid(text: str) -> EtcdError:
    """Return the error of a request that can never be carried out."""
    return EtcdError(grpc.StatusCode.INVALID_ARGUMENT, text)


def exhausted(text: str) -> EtcdError:
    """Return the error of a request that asks for too much at once."""
    return EtcdError(grpc.StatusCode.RESOURCE_EXHAUSTED, text)


def unavailable(text: str) -> EtcdError:
    """Return the error of a request that may succeed later, or elsewhere."""
    return EtcdError(grpc.StatusCode.UNAVAILABLE, text)


EMPTY_KEY = "etcdserver: key is not provided"
KEY_NOT_FOUND = "etcdserver: key not found"
VALUE_PROVIDED = "etcdserver: value is provided"
LEASE_PROVIDED = "etcdserver: lease is provided"
TOO_MANY_OPERATIONS = "etcdserver: too many operations in txn request"
DUPLICATE_KEY = "etcdserver: duplicate key given in txn request"
INVALID_SORT = "etcdserver: invalid sort option"
NO_ORDERS = "RangeStream does not support custom sort orders"
NO_FILTERS = "RangeStream does not support revision filters"
AUTH_FAILED = "etcdserver: authentication failed, invalid user ID or password"
TOO_MANY_REQUESTS = "etcdserver: too many requests"
NO_SPACE = "etcdserver: mvcc: database space exceeded"
OUTCOME_UNKNOWN = "etcdserver: request timed out, possibly due to previous leader failure"
BEHIND = "etcdserver: request timed out, waiting for the applied index took too long"
NO_LEADER = "etcdserver: no leader"
STOPPED = "etcdserver: server stopped"
CORRUPT = "etcdserver: corrupt cluster"
DENIED = "etcdserver: permission denied"
COMPACTED_TEXT = "etcdserver: mvcc: required revision has been compacted"
DUPLICATE_WATCH = "mvcc: duplicate watch ID provided on the WatchStream"
EMPTY_WATCH = "mvcc: watcher range is empty"


def compacted() -> EtcdError:
    return EtcdError(grpc.StatusCode.OUT_OF_RANGE, COMPACTED_TEXT)


def future() -> EtcdError:
    return EtcdError(grpc.StatusCode.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")


def no_lease() -> EtcdError:
    return EtcdError(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")


def lease_too_long() -> EtcdError:
    return EtcdError(grpc.StatusCode.OUT_OF_RANGE, "etcdserver: too large lease TTL")


def auth_not_enabled() -> EtcdError:
    return EtcdError(grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: authentication is not enabled")


def denied() -> EtcdError:
    return EtcdError(grpc.StatusCode.PERMISSION_DENIED, DENIED)


def unmet(what: Unmet) -> EtcdError:
    """Return the error for what a command relied on, and was not so."""
    match what:
        case "no lease":
            return no_lease()
        case "lease exists":
            return EtcdError(grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: lease already exists")
        case "no key":
            return invalid(KEY_NOT_FOUND)
        case "compacted":
            return compacted()
        case "future":
            return future()


def refused(reason: str) -> EtcdError:
    """Return the error for a command that the map has refused in words."""
    if reason.endswith(alarms.CORRUPT):
        return EtcdError(grpc.StatusCode.DATA_LOSS, CORRUPT)
    if "(memory-full)" in reason or reason.endswith(alarms.NO_SPACE):
        return exhausted(NO_SPACE)
    return invalid(f"rsm: {reason}")


def told(error: RsmError | LedgerError) -> EtcdError:
    """Return what a client is told of an error of the map's."""
    match error:
        case EtcdError():
            return error
        case OutcomeUnknownError():
            return unavailable(OUTCOME_UNKNOWN)
        case OverloadedError():
            return exhausted(TOO_MANY_REQUESTS)
        case NoLeaderError():
            return unavailable(NO_LEADER)
        case AccessDeniedError():
            return denied()
        case MissingLogError():
            return compacted()
        case InvalidCommandError():
            return invalid(f"rsm: {error}")
    return unavailable(f"rsm: {error}")
