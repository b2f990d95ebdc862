"""Twins: stretches of code that stand twice, also where names, strings and numbers differ.

Files are compared token by token, so layout does not matter. Comments, docstrings and imports are left out. A name is
the same as any other name, a string or number as any other; keywords and operators are themselves.

Lines count as they stand in the file, on the side that has fewer. Some lines are alike in all code, so they count less:

- A row of a table, between the brackets of `NAME = (…)`, counts only where it is the same to the letter.
- A line without a call, keyword or operator declares or hands on (a field, a parameter, `self._a = a`). With other
  names it says another thing: such lines count as many as the other lines of the stretch, and no more.
"""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

_SEED_TOKENS = 40
"""Stretches are found by so many equal tokens. A line of code has four or more on average, so 10 lines have them."""
_NAME, _VALUE, _END = "n", "v", ";"
_IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_PLAIN = frozenset((_NAME, _VALUE, _END, *"()[]{}.,:=|", "->", "None", "True", "False"))


class Stretch(NamedTuple):
    """Lines of a file, the last one included."""

    path: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.path}:{self.first}-{self.last}"


class Twins(NamedTuple):
    """Two stretches, and how many of their lines count."""

    one: Stretch
    other: Stretch
    lines: int


class _Token(NamedTuple):
    kind: str
    text: str
    line: int
    is_row: bool


def find_twins(files: Iterable[tuple[str, str]], *, more_than: int) -> list[Twins]:
    """Return the stretches of more lines than this that stand twice, the longest first.

    Args:
        files: Path and text of each.
        more_than: So many lines may stand twice.

    """
    read = [(path, _tokens(text)) for path, text in files]
    letters: dict[str, str] = {}
    codes = ["".join(letters.setdefault(token.kind, chr(len(letters))) for token in tokens) for _, tokens in read]
    places: dict[str, list[tuple[int, int]]] = {}
    for number, ((_, tokens), code) in enumerate(zip(read, codes, strict=True)):
        for start in range(len(tokens) - _SEED_TOKENS + 1):
            if start == 0 or tokens[start - 1].kind in _OPENING or tokens[start - 1].kind in {",", _END}:
                places.setdefault(code[start : start + _SEED_TOKENS], []).append((number, start))
    compared: dict[tuple[int, int, int], int] = {}
    found = []
    for (one, start), (other, begin) in sorted(pair for same in places.values() for pair in combinations(same, 2)):
        if compared.get((one, other, begin - start), 0) > start:
            continue
        length = _equal(codes[one], start, codes[other], begin, most=begin - start if one == other else None)
        compared[one, other, begin - start] = start + length
        left, right = read[one][1][start : start + length], read[other][1][begin : begin + length]
        if left[-1].line - left[0].line < more_than or right[-1].line - right[0].line < more_than:
            continue
        lines = min(_count(left, right), _count(right, left))
        if lines > more_than:
            found.append(Twins(_stretch(read[one][0], left), _stretch(read[other][0], right), lines))
    return sorted(found, key=lambda twins: (-twins.lines, twins))


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    for statement in _statements(text):
        if statement[0].string in {"import", "from"} or all(
            token.type in {tokenize.STRING, tokenize.NEWLINE} for token in statement
        ):
            continue
        depth, table_depth = 0, 0
        kind = ""
        for token, following in zip(statement, [*statement[1:], None], strict=True):
            if token.string in _OPENING:
                depth += 1
                table_depth = table_depth or (depth if kind == "=" else 0)
            elif token.string in _CLOSING:
                table_depth = 0 if table_depth == depth else table_depth
                depth -= 1
            elif token.string == "," and following is not None and following.string in _CLOSING:
                continue  # Whether it is there is layout.
            kind = _kind(token)
            tokens.append(_Token(kind, token.string, token.start[0], table_depth > 0))
    return tokens


def _statements(text: str) -> Iterator[list[tokenize.TokenInfo]]:
    """Yield the tokens of each logical line, the one that ends it included."""
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _IGNORED:
            continue
        statement.append(token)
        if token.type == tokenize.NEWLINE:
            yield statement
            statement = []


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return token.string if keyword.iskeyword(token.string) else _NAME
    if token.type in {tokenize.STRING, tokenize.NUMBER}:
        return _VALUE
    return _END if token.type == tokenize.NEWLINE else token.string


def _equal(one: str, start: int, other: str, begin: int, most: int | None) -> int:
    """Return how many tokens are equal; in one file the second stretch does not begin within the first."""
    length = _SEED_TOKENS
    longest = min(len(one) - start, len(other) - begin, most or len(one))
    while length < longest and one[start + length] == other[begin + length]:
        length += 1
    return min(length, longest)


def _count(one: list[_Token], other: list[_Token]) -> int:
    """Return how many lines of the first stretch count."""
    same, busy, plain = 0, 0, 0
    different = set()
    first = 0
    for end in range(1, len(one) + 1):
        if end < len(one) and one[end].line == one[first].line:
            continue
        line = one[first:end]
        is_same = all(left.text == right.text for left, right in zip(line, other[first:end], strict=True))
        different.add(tuple(token.text if is_same else token.kind for token in line))
        if is_same:
            same += 1
        elif not line[0].is_row:
            is_plain = _PLAIN.issuperset(token.kind for token in line) and not _has_call(line)
            plain, busy = plain + is_plain, busy + (not is_plain)
        first = end
    return min(same + busy + min(plain, same + busy), 2 * len(different))


def _has_call(line: list[_Token]) -> bool:
    return any(
        after.kind == "(" and before.kind in {_NAME, *_CLOSING} for before, after in zip(line, line[1:], strict=False)
    )


def _stretch(path: str, tokens: list[_Token]) -> Stretch:
    return Stretch(path, tokens[0].line, tokens[-1].line)
