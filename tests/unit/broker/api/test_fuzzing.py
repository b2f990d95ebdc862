"""Whatever fits the API's description, or just does not, is answered as described and never by an error of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.unit.broker.api.thread_served import OPERATIONS, serving_in_a_thread, stand_in_serving


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Callable[[str, int], None]]:
    from tests.unit.broker.api import fuzzed

    with serving_in_a_thread(stand_in_serving) as url:
        yield lambda operation, examples: fuzzed.fuzz(operation, url, examples)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_asked_at_random_is_answered_as_described(operation: str, fuzz: Callable[[str, int], None]) -> None:
    fuzz(operation, 3)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_asked_for_longer_is_answered_as_described(operation: str, fuzz: Callable[[str, int], None]) -> None:
    fuzz(operation, 40)
