"""Statements with long texts in them, written out: marks stand for these while the rest is respelled. Pure.

sqlglot takes as long for the letters of a text as for those of a statement, and has nothing to say about them.
"""

from __future__ import annotations

import re
from typing import Final

from rsm_spark.sql.limits import PARAMETERS_MAX
from rsm_spark.sql.pg.values import array_json

ARRAY_CALL: Final = "PG_ARRAY"
"""Stands around a mark whose text is an array of PostgreSQL: `'{1,2}'`."""
_LONG: Final = 60
_TOKEN: Final = re.compile(r"'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"|--[^\n]*+")
_MARK: Final = re.compile(rf"(?:\b{ARRAY_CALL}\()?\?([0-9]{{5,6}})\b(\))?")


class LongTexts:
    """See the module.

    Args:
        sql: Of a statement, with parameters as sqlglot gets them.

    Attributes:
        sql: The same, with marks.

    """

    def __init__(self, sql: str) -> None:
        self._texts: list[str] = []
        self.sql = _TOKEN.sub(self._marked, sql)

    def _marked(self, found: re.Match[str]) -> str:
        text = found.group()
        if text[0] != "'" or len(text) < _LONG:
            return text
        self._texts.append(text)
        return f":p{PARAMETERS_MAX + len(self._texts)}"

    def put_back(self, sql: str) -> str | None:
        """Return a statement with its texts; None = one would be missing, or twice.

        Args:
            sql: Of the statement, respelled.

        """
        parts: list[str] = []
        at, marks = 0, []
        for found in _MARK.finditer(sql):
            number = int(found[1]) - PARAMETERS_MAX
            if not 1 <= number <= len(self._texts):
                return None
            marks.append(number)
            text = self._texts[number - 1]
            is_array = found.group().startswith(ARRAY_CALL)
            if is_array:
                try:
                    text = "'" + array_json(text[1:-1].replace("''", "'")).replace("'", "''") + "'"
                except ValueError:
                    return None
            parts += [sql[at : found.start()], text, "" if is_array else found[2] or ""]
            at = found.end()
        return "".join((*parts, sql[at:])) if sorted(marks) == list(range(1, len(self._texts) + 1)) else None
