"""Our client on Apache BookKeeper's own bookies, started by the script that RSM_JAVA_BOOKKEEPER names."""

from __future__ import annotations

import os

import pytest

from tests.integration.ledger_suite import LedgerSuite

pytestmark = [pytest.mark.compat, pytest.mark.slow]

_RUNNING_CLUSTER = "RSM_JAVA_METADATA_URI"


class TestJavaBookies(LedgerSuite):
    @pytest.fixture
    def metadata_uri(self, request: pytest.FixtureRequest) -> str:
        """Address of three Java bookies: one that runs already, if RSM_JAVA_METADATA_URI names it."""
        running = os.environ.get(_RUNNING_CLUSTER)
        if running:
            return running
        return str(request.getfixturevalue("java_cluster"))
