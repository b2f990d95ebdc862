"""Links to the leader: each caller its own, as many as there may be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rsm_spark.client.leader_links import LeaderLinks

pytestmark = pytest.mark.asyncio


class _Link:
    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


async def test_each_caller_has_a_link_and_those_beyond_the_limit_share_one() -> None:
    made: list[Any] = []

    def connect(_owner: str) -> Any:
        made.append(_Link())
        return made[-1]

    links = LeaderLinks(connect, links_max=2)
    async with links.of("a") as a, links.of("b") as b, links.of("a") as again:
        assert a is again
        assert a is not b
        async with links.of("c") as c, links.of("d") as d:
            assert c is d, "nobody's link is free"
    async with links.of("b"):
        pass
    async with links.of("e") as e:
        assert e not in (a, b, c)
    await asyncio.sleep(0)
    assert [link.is_closed for link in made] == [True, False, False, False], "the one that was used longest ago goes"
    await links.close()
    assert all(link.is_closed for link in made)
