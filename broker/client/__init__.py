"""Clients of the broker: for asyncio, for threads, and as an executor of `concurrent.futures`.

Names are loaded when they are first used: importing this package loads nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.client.blocking import BrokerClient
    from broker.client.client import AsyncBrokerClient
    from broker.client.executor import BrokerExecutor
    from broker.client.task import NewTask

__all__ = ["AsyncBrokerClient", "BrokerClient", "BrokerExecutor", "NewTask"]

_MODULES = {
    "AsyncBrokerClient": "broker.client.client",
    "BrokerClient": "broker.client.blocking",
    "BrokerExecutor": "broker.client.executor",
    "NewTask": "broker.client.task",
}


def __getattr__(name: str) -> Any:
    """Load a public name."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
