"""Delta tables that follow a log: the table is the follower's state, its transaction carries the position."""

from __future__ import annotations

from connectors.delta.wait import wait_for

__all__ = ["wait_for"]
