"""Errors of ZooKeeper's server.

* `ZooKeeperServerError(LedgerError)`   it cannot be run; the message says what to do
    * `JavaError`                       there is no Java, or it is too old
    * `JarsError`                       its JARs are not here, cannot be fetched, or are not what the lock says
"""

from __future__ import annotations

from ledger.errors import LedgerError


class ZooKeeperServerError(LedgerError):
    """ZooKeeper's server cannot be run; the message says what to do."""


class JavaError(ZooKeeperServerError):
    """There is no Java, or it is too old."""


class JarsError(ZooKeeperServerError):
    """The JARs of the server are not here, cannot be fetched, or are not what the lock says."""
