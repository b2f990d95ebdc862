"""The rules of the log (design D4-D9), one function a step; each says when it may happen (`NotAllowedError`).

A step of a replica is an event of its leadership or an entry that it applies; the rest is the world's: a write that
arrives, an entry that is stored, a recovery. Between two steps anything may happen, so pauses, wrong elections and
expired sessions need nothing of their own. `World.broken` is set as soon as an invariant does not hold.

`World.bugs` are words; each breaks one rule where the word stands.
"""

from __future__ import annotations

from typing import Any

from tests.model import entries, following, leases, takeover
from tests.model.following import deleted_by, may_lead, next_entry
from tests.model.rules import STEPS, NotAllowedError
from tests.model.world import World

__all__ = ["NotAllowedError", "deleted_by", "may_lead", "next_entry", "step"]

_RULES = (takeover, entries, following, leases)


def step(world: World, action: tuple[Any, ...]) -> None:
    """Do one step: ``(name, arguments…)``.

    Raises:
        NotAllowedError: Not here, not now.

    """
    STEPS[action[0]](world, *action[1:])
