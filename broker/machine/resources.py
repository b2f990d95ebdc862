"""Amounts of resources as a column of a task holds them: "db=1,gpu=2", by name."""

from __future__ import annotations

from collections.abc import Mapping

_CACHE_MAX = 10_000
_CACHE: dict[str, tuple[tuple[str, int], ...]] = {"": ()}


def resources_of(text: str) -> tuple[tuple[str, int], ...]:
    """Return (name, amount) by name."""
    found = _CACHE.get(text)
    if found is None:
        parts = [part.rpartition("=") for part in text.split(",")]
        found = tuple((name, int(amount)) for name, _, amount in parts)
        if len(_CACHE) >= _CACHE_MAX:
            _CACHE.clear()
            _CACHE[""] = ()
        _CACHE[text] = found
    return found


def resources_text(resources: Mapping[str, int]) -> str:
    """Return the column; what nothing is asked of is left out. No name has a comma in it."""
    return ",".join(f"{name}={amount}" for name, amount in sorted(resources.items()) if amount)
