"""Errors of the development cluster.

* `ClusterError(LedgerError)`     the cluster cannot be started or stopped; the message says what to do
    * `ClusterBusyError`          another `rsm up` or `rsm down` is at work on the same data directory
    * `ClusterTakenError`         all of it runs already, or the directory belongs to another ZooKeeper
    * `NoAnswerError`             a server of it, or the named ZooKeeper, does not answer in time
    * `NoClusterError`            there is no cluster in the data directory
    * `PortTakenError`            a port that this cluster must have belongs to another program
    * `ProcessDiedError`          a process of the cluster ended while it was being started
"""

from __future__ import annotations

from ledger.errors import LedgerError


class ClusterError(LedgerError):
    """The cluster cannot be started or stopped; the message says what to do."""


class ClusterBusyError(ClusterError):
    """Another `rsm up` or `rsm down` is at work on the same data directory."""


class ClusterTakenError(ClusterError):
    """All of it runs already, or the data directory belongs to another ZooKeeper."""


class NoAnswerError(ClusterError):
    """A server of the cluster, or the ZooKeeper that was named, does not answer in time."""


class NoClusterError(ClusterError):
    """There is no cluster in the data directory."""


class PortTakenError(ClusterError):
    """A port that this cluster must have belongs to another program."""


class ProcessDiedError(ClusterError):
    """A process of the cluster ended while it was being started."""
