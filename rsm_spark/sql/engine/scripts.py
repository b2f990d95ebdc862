"""Scripts: texts of many statements, which SQLite itself tells apart."""

from __future__ import annotations

import apsw

from rsm_spark.sql.statement_words import without_quoted


class StatementBuffer:
    """Text that comes line by line, until its statements are whole.

    Attributes:
        text: What is not whole yet.

    """

    def __init__(self) -> None:
        self.text = ""
        self._looked_at = 0

    def add(self, text: str) -> list[str]:
        """Take more text; return the statements that are whole now, without those that are comments alone."""
        self.text += text
        found: list[str] = []
        place = self.text.find(";", self._looked_at)
        while place >= 0:
            statement = self.text[: place + 1]
            if apsw.complete(statement):
                found.append(statement.strip())
                self.text = self.text[place + 1 :]
                place = -1
            place = self.text.find(";", place + 1)
        self._looked_at = len(self.text)
        return [one for one in found if _says_something(one)]

    def end(self) -> str:
        """Forget what is not whole; return it, "" if it says nothing."""
        left, self.text, self._looked_at = self.text.strip(), "", 0
        return left if _says_something(left) else ""


def split_script(text: str) -> list[str]:
    """Return the statements of a script, without those that are comments alone."""
    buffer = StatementBuffer()
    statements = buffer.add(text)
    left = buffer.end()
    return [*statements, left] if left else statements


def _says_something(statement: str) -> bool:
    return bool(without_quoted(statement).strip(" \t\r\n;"))
