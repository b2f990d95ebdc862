"""Scripts: texts of many statements, which SQLite itself tells apart."""

from __future__ import annotations

import apsw

from rsm_spark.sql.statement_words import without_quoted


def split_script(text: str) -> list[str]:
    """Return the statements of a script, without those that are comments alone."""
    statements: list[str] = []
    begin = 0
    for place, letter in enumerate(text):
        if letter == ";" and apsw.complete(text[begin : place + 1]):
            statements.append(text[begin : place + 1].strip())
            begin = place + 1
    statements.append(text[begin:].strip())
    return [one for one in statements if without_quoted(one).strip(" \t\r\n;")]
