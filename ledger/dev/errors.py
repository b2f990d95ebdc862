"""Errors of the development cluster.

* `ClusterError(LedgerError)`     the cluster cannot be started or stopped; the message says what to do
    * `ClusterBusyError`          another `rsm up` or `rsm down` is at work on the same data directory
    * `PortTakenError`            a port that this cluster must have again belongs to another program
    * `ProcessDiedError`          a process of the cluster ended while it was being started
"""

from __future__ import annotations

from ledger.errors import LedgerError


class ClusterError(LedgerError):
    """The cluster cannot be started or stopped; the message says what to do."""


class ClusterBusyError(ClusterError):
    """Another `rsm up` or `rsm down` is at work on the same data directory."""


class PortTakenError(ClusterError):
    """A port that this cluster must have again belongs to another program."""


class ProcessDiedError(ClusterError):
    """A process of the cluster ended while it was being started."""
