"""`rsm store run` with a planted fault: etcd's reads are answered as of this replica, without asking who leads."""

from __future__ import annotations

from rsm_spark.map.cli.store import app
from rsm_spark.map.etcd.backend import EtcdBackend


async def _unproven(self: EtcdBackend) -> int:
    return self.revision


if __name__ == "__main__":
    EtcdBackend.linearizable = _unproven  # type: ignore[method-assign]
    app(prog_name="rsm store")
