"""What SQLAlchemy's test suite of dialects wants to be told before it begins; becomes its `conftest.py`."""

from typing import Any

import pytest

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.dialects.sqlite import insert  # noqa: E402
from sqlalchemy.testing import provision  # noqa: E402
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403


@provision.temp_table_keyword_args.for_db("rsm")
def _temporary(_config: Any, _engine: Any) -> dict[str, Any]:
    return {"prefixes": ["TEMPORARY"]}


@provision.upsert.for_db("rsm")
def _upsert(
    _config: Any,
    table: Any,
    returning: Any,
    *,
    set_lambda: Any = None,
    sort_by_parameter_order: bool = False,
    index_elements: Any = None,
) -> Any:
    statement = insert(table)
    if set_lambda is None:
        statement = statement.on_conflict_do_nothing()
    else:
        key = index_elements or [table.c.id]
        statement = statement.on_conflict_do_update(index_elements=key, set_=set_lambda(statement.excluded))
    return statement.returning(*returning, sort_by_parameter_order=sort_by_parameter_order)
