"""The map: bytes to bytes, with revisions, compare-and-set, leases and ordered scans.

Its state machine is pure: no IO, no clock, no randomness. Public names are loaded when they are first used.

    from rsm_spark.map import Compare, MapClient, Put
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rsm_spark.map.client.blocking import BlockingMapClient
    from rsm_spark.map.client.client import MapClient
    from rsm_spark.map.messages import Compare, Delete, Increment, Put
    from rsm_spark.map.service import map_service

__all__ = ["BlockingMapClient", "Compare", "Delete", "Increment", "MapClient", "Put", "map_service"]

_MODULES = {
    "BlockingMapClient": "client.blocking",
    "Compare": "messages",
    "Delete": "messages",
    "Increment": "messages",
    "MapClient": "client.client",
    "Put": "messages",
    "map_service": "service",
}


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
