"""What the dialect can do, as SQLAlchemy's test suite asks for it: where that differs from what the suite assumes."""

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

_NOT_HERE = (
    # Temporary objects are not replicated.
    "temp_table_reflection", "temp_table_reflect_indexes", "temporary_tables", "temp_table_names", "temporary_views",
    "has_temp_table",
    # A log is one schema.
    "schemas", "cross_schema_fk_reflection", "implicit_default_schema",
    # SQLite takes no SELECT in parentheses in a UNION.
    "parens_in_union_selects_w_limit_offset", "parens_in_union_selects_wo_limit_offset",
    # CREATE TABLE … AS SELECT is not replicated.
    "create_table_as", "select_into",
    # SQLite has no sequences, no dates of its own, and no comments.
    "sequences", "sequences_optional", "comment_reflection", "table_reflection_comments",
)  # fmt: skip
_HERE = (
    "savepoints", "ctes", "ctes_on_dml", "ctes_with_update_delete", "insert_returning", "update_returning",
    "delete_returning", "autocommit", "isolation_level", "window_functions", "views", "view_reflection",
    "unique_constraint_reflection", "check_constraint_reflection", "foreign_key_constraint_reflection",
    "primary_key_constraint_reflection", "json_type", "tuple_in", "on_update_cascade", "empty_inserts",
    "fk_constraint_option_reflection_ondelete_restrict", "insert_from_select", "computed_columns",
    "datetime_microseconds", "datetime_historic", "date_historic", "time_microseconds",
)  # fmt: skip


def _always(value: bool) -> property:  # noqa: FBT001
    return property(lambda _self: exclusions.open() if value else exclusions.closed())


class Requirements(SuiteRequirements):
    """See the module."""

    def get_order_by_collation(self, _config: Any) -> str:
        return "NOCASE"

    def get_isolation_levels(self, _config: Any) -> dict[str, Any]:
        return {"default": "SERIALIZABLE", "supported": ["SERIALIZABLE", "AUTOCOMMIT"]}


for _name in _NOT_HERE:
    setattr(Requirements, _name, _always(False))
for _name in _HERE:
    setattr(Requirements, _name, _always(True))
