"""The replica as a running thing: asyncio around the pure core."""

from __future__ import annotations

from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus

__all__ = ["Replica", "ReplicaSettings", "ReplicaStatus", "ReplicaRole"]
