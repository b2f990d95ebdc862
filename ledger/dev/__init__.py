"""A development cluster on this machine: one real ZooKeeper and N bookies, as processes of their own.

`rsm up | ps | down` and the test fixtures are thin layers over `DevCluster`. This package starts processes and
imports no service, so that nothing of a bookie can leak into the program that starts it.
"""

from __future__ import annotations

from ledger.dev.cluster import DevCluster
from ledger.dev.errors import ClusterError

__all__ = ["ClusterError", "DevCluster"]
