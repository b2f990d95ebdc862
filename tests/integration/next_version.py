"""`rsm store` of a coming version: it knows the next format level, and writes what only that level has once it may.

Until the chain's level is raised it writes what the present version reads. From then on each of its entries begins with
a record of a type that the present version does not know, and stops at.
"""

from __future__ import annotations

from typing import Any

from rsm_spark.core import state
from rsm_spark.core.leadership_events import BatchComposed
from rsm_spark.core.records import FORMAT_LEVEL
from rsm_spark.core.state import ReplicatedState
from rsm_spark.map.cli.store import app
from rsm_spark.runtime import context
from rsm_spark.runtime.leading import LeaderDriver

NEXT_LEVEL = FORMAT_LEVEL + 1
NEW_TYPE = 11
"""Of the kernel, as all below 16, and none of this version's."""


def install() -> None:
    """Make this process one of the coming version."""
    compose, fold = LeaderDriver._compose, ReplicatedState._fold_kernel

    def compose_anew(self: LeaderDriver) -> BatchComposed:
        assert self.protocol.chain is not None
        assert self._composer is not None
        if self.protocol.chain.format_level >= NEXT_LEVEL:
            self._composer.wanted.append((NEW_TYPE, ("new",)))
        return compose(self)

    def fold_anew(self: ReplicatedState, record_type: int, fields: tuple[Any, ...], *where: int) -> None:
        if record_type == NEW_TYPE:
            assert fields == ("new",)
            assert self.format_level in (1, NEXT_LEVEL)  # 1: booted from a snapshot after the record that raised it.
            return
        fold(self, record_type, fields, *where)

    LeaderDriver._compose = compose_anew  # type: ignore[assignment, method-assign]
    ReplicatedState._fold_kernel = fold_anew  # type: ignore[assignment, method-assign]
    for module in (state, context):
        vars(module)["FORMAT_LEVEL"] = NEXT_LEVEL


if __name__ == "__main__":
    install()
    app(prog_name="rsm store")
