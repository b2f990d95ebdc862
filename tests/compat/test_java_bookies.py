"""What our client does on our bookies it does on Apache BookKeeper's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compat.bookies import Bookies
from tests.integration.ledger_suite import LedgerSuite

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def bookies(java_bookkeeper: Callable[..., Bookies]) -> Bookies:
    return java_bookkeeper("java", "java", "java")


class TestJavaBookies(LedgerSuite):
    @pytest.fixture
    def metadata_uri(self, bookies: Bookies) -> str:
        return bookies.uri
