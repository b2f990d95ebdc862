"""Operator of a command that bypasses every server, as the command states it.

Nobody proves this name: the command finds it where it runs, on a machine that its operator may well own. What is proven
is the log-in at ZooKeeper; ZooKeeper's own log has that.
"""

from __future__ import annotations

import msgspec


class Operator(msgspec.Struct, frozen=True):
    """Operator who runs a command.

    Attributes:
        name: "ann@host"; behind sudo "root@host for ann".
        zookeeper: Its user at ZooKeeper; "" = it does not log in there.
        reason: Why, in its words.

    """

    name: str
    zookeeper: str = ""
    reason: str = ""

    @property
    def source(self) -> str:
        """Source of its commands, for an audit."""
        return f"metadata store as {self.zookeeper}" if self.zookeeper else "metadata store"
