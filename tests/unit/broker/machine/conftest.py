"""The broker's machine as most tests of it begin: with one worker."""

from __future__ import annotations

import pytest

from tests.unit.broker.machine.driven_broker import DrivenBroker


@pytest.fixture
def broker() -> DrivenBroker:
    driven = DrivenBroker()
    driven.appear()
    return driven
