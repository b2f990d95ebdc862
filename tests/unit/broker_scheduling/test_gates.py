"""Gates: what they admit."""

from __future__ import annotations

import pytest

from broker.core.scheduling.gates import Gate


@pytest.mark.parametrize(("limit", "used", "amount", "is_open"), [
    (None, 99, 5, True), (3, 2, 1, True), (3, 2, 2, False), (0, 0, 1, False), (2, 5, 1, False),
])  # fmt: skip
def test_a_gate_admits_what_its_limit_leaves(limit, used, amount, is_open):
    gate = Gate("resource", resource="db")
    gate.limit, gate.used = limit, used
    assert gate.admits(amount) == is_open
