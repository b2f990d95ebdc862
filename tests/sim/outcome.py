"""What one seed of a simulation came to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class SeedOutcome(ABC):
    """What one seed came to.

    Attributes:
        broken: The invariant that did not hold, with its name in front; None if all did.
        story: The last events.
        steps: How many steps were taken, where they are counted.
        counts: What happened, faults too, by name.
        command: The module that replays it.

    """

    seed: int
    broken: str | None = None
    story: list[str] = field(default_factory=list)
    signature: str = ""
    steps: int = 0
    simulated_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    command: str = ""

    @property
    @abstractmethod
    def is_worth_counting(self) -> bool:
        """Whether enough was done, and enough went wrong, for silence to mean anything."""

    def report(self) -> str:
        """Say what is broken, what came before, and how to see it again."""
        story = "\n".join(f"    {line}" for line in self.story)
        return (
            f"seed {self.seed} breaks {self.broken}\n  last events, in simulated seconds:\n{story}\n"
            f"  replay, on this commit: .venv/bin/python -m {self.command} {self.seed}"
        )
