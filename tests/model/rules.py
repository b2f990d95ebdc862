"""What a rule is: a step with the conditions under which it may happen."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["STEPS", "NotAllowedError", "need", "rule"]

STEPS: dict[str, Callable[..., None]] = {}


class NotAllowedError(Exception):
    """The model does not allow this step here."""


def rule(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a step, by its name."""
    STEPS[function.__name__] = function
    return function


def need(holds: object, what: str) -> None:
    """Refuse a step unless a condition holds."""
    if not holds:
        raise NotAllowedError(what)
