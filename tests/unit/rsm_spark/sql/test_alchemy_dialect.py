"""Addresses of SQLAlchemy's dialect."""

from __future__ import annotations

import pytest
from sqlalchemy import exc, make_url

from rsm_spark.sql.dbapi.alchemy_dialect import RsmDialect


@pytest.mark.parametrize(
    ("url", "uri", "arguments"),
    [
        ("rsm:///shop", None, {"log": "shop"}),
        ("rsm+dbapi://zk:2181/shop?timeout_s=5", "zk+hierarchical://zk:2181/ledgers", {"log": "shop", "timeout_s": 5}),
        ("rsm:///shop?metadata_uri=zk%3A//a/b&rsm_root=/r", "zk://a/b", {"log": "shop", "rsm_root": "/r"}),
    ],
)  # fmt: skip
def test_an_address_names_the_log_and_where_it_is(url: str, uri: str | None, arguments: dict[str, object]) -> None:
    made = make_url(url)
    dialect = made.get_dialect()
    assert dialect is RsmDialect
    assert dialect().create_connect_args(made) == ((uri,), arguments)


@pytest.mark.parametrize(
    "url", ["rsm://", "rsm://ann:secret@host/shop", "rsm://host/shop?metadata_uri=zk", "rsm:///shop?missing=1"]
)
def test_an_address_that_says_what_is_not_known_is_refused(url: str) -> None:
    with pytest.raises(exc.ArgumentError) as refused:
        RsmDialect().create_connect_args(make_url(url))
    assert "secret" not in str(refused.value)
