"""Decision about a run that failed: run it again, at which time, or not."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from broker.machine.policies import ErrorRule, RetryPolicy

_POLICY = msgspec.json.Decoder(RetryPolicy)
_EXPONENT_MAX = 64


def retry_policy(text: str, default: RetryPolicy) -> RetryPolicy:
    """Return a task's own policy, of the column `retry`, or its tenant's."""
    return _POLICY.decode(text) if text else default


def rule_for(policy: RetryPolicy, outcome: str, error: str) -> ErrorRule | None:
    """Return the first rule that fits, or None."""
    bracketed = f"[{outcome}]"
    return next((rule for rule in policy.rules if rule.error == bracketed or error.startswith(rule.error)), None)


def backoff_ms(policy: RetryPolicy, rule: ErrorRule | None, task_id: int, attempt: int) -> int:
    """Return how long to wait before the next attempt.

    Args:
        policy: In force.
        rule: The one that fits, or None.
        task_id: Spreads it, with the attempt: the same on every replica and every time.
        attempt: That failed, 1 at first.

    """
    base = policy.backoff_ms if rule is None or rule.backoff_ms is None else rule.backoff_ms
    if base <= 0:
        return 0
    longest = max(policy.backoff_ms_max, base)
    length = min(base * policy.factor ** min(max(attempt - 1, 0), _EXPONENT_MAX), longest)
    chance = int.from_bytes(sha256(b"%d %d" % (task_id, attempt)).digest()[:4], "big") / 2**32
    return max(1, int(length * (1 - policy.jitter * chance)))
