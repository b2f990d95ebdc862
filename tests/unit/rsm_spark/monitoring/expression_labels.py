"""Which metrics and labels an expression of Prometheus uses, and the labels that its result has.

It knows what the rules and dashboards use of the language; anything else is an error, so that nothing goes unseen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

Labels = frozenset[str]
_TOKEN = re.compile(
    r'\s*(?:(?P<text>"[^"]*")|(?P<range>\[[^\]]+\])|(?P<number>\d+(?:\.\d+)?(?P<unit>[smhd])?)|(?P<name>[A-Za-z_:][\w:]*)'
    r"|(?P<sign>==|!=|>=|<=|=~|!~|[-+*/<>=(){},]))"
)
_STRENGTH = {"or": 1, "and": 2, "unless": 2} | dict.fromkeys(("==", "!=", ">", "<", ">=", "<="), 3)
_STRENGTH |= {"+": 4, "-": 4, "*": 5, "/": 5}
_SETS = {"or", "and", "unless"}
_AGGREGATES = {"sum", "max", "min", "avg", "count"}
_FUNCTIONS = {"rate", "increase", "abs", "timestamp", "predict_linear", "histogram_quantile", "time"}
_TEMPLATE = re.compile(r"\{\{\s*\$labels\.(\w+)")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class WrongNameError(Exception):
    """A name that nothing exports, or an expression that this reader does not know."""


class _Token(NamedTuple):
    kind: str
    text: str


class _Matching(NamedTuple):
    """How the samples of two sides find each other; `taken` are labels of the side of which there is one."""

    how: str
    names: Labels
    many: str
    taken: Labels


def labels_of(expression: str, exported: Mapping[str, Labels]) -> Labels:
    """Return the labels of an expression's result.

    Args:
        expression: In Prometheus' language.
        exported: Labels by metric name, with those that Prometheus adds.

    Raises:
        WrongNameError: It uses a metric that is not exported or a label that its metrics have not, or its two sides
            can never match.

    """
    reader = _Reader(expression, exported)
    found = reader.expression(0)
    if reader.token.kind != "end":
        raise reader.error(f"{reader.token.text!r} is not expected")
    if found is None:
        raise reader.error("it is a number alone")
    return found


def check_texts(labels: Labels, *texts: str, is_legend: bool = False) -> None:
    """Raise `WrongNameError` if a text shows a label that a result has not."""
    for text in texts:
        for name in (_LEGEND if is_legend else _TEMPLATE).findall(text):
            if name not in labels:
                raise WrongNameError(f"{text!r} shows the label {name}; the result has {sorted(labels)}")


class _Reader:
    """Reads one expression from left to right; labels of None are those of a number."""

    def __init__(self, expression: str, exported: Mapping[str, Labels]) -> None:
        self._text, self._exported, self._place = expression, exported, 0
        self.token = _Token("end", "")
        self._next()

    def error(self, why: str) -> WrongNameError:
        return WrongNameError(f"{self._text}: {why}")

    def expression(self, strength: int) -> Labels | None:
        left = self._one()
        while _STRENGTH.get(sign := self.token.text, 0) > strength:
            self._next()
            by = self._matching()
            left = self._joined(sign, left, self.expression(_STRENGTH[sign]), by)
        return left

    def _next(self) -> _Token:
        last = self.token
        rest = self._text[self._place :]
        if not rest.strip():
            self.token = _Token("end", "")
            return last
        found = _TOKEN.match(rest)
        if found is None:
            raise self.error(f"{rest!r} is not known")
        self._place += found.end()
        kind = "number" if found.lastgroup == "unit" else str(found.lastgroup)
        self.token = _Token(kind, found[kind])
        return last

    def _take(self, text: str) -> None:
        if self._next().text != text:
            raise self.error(f"{text!r} is expected before {self._text[self._place :]!r}")

    def _names(self) -> Labels:
        self._take("(")
        names = set()
        while self.token.text != ")":
            names.add(self._next().text)
            if self.token.text == ",":
                self._next()
        self._take(")")
        return frozenset(names)

    def _matching(self) -> _Matching:
        """Read `on (…)` or `ignoring (…)`, and `group_left (…)` or `group_right (…)`, behind a sign."""
        how, many, names, taken = "", "", Labels(), Labels()
        if self.token.text in {"on", "ignoring"}:
            how, names = self._next().text, self._names()
        if self.token.text in {"group_left", "group_right"}:
            many = self._next().text
            taken = self._names() if self.token.text == "(" else taken
        return _Matching(how, names, many, taken)

    def _joined(self, sign: str, left: Labels | None, right: Labels | None, by: _Matching) -> Labels | None:
        if left is None or right is None:
            return right if left is None else left
        if sign == "or":
            return left & right
        self._known(by.names, left)
        self._known(by.names, right)
        if by.how != "on" and left - by.names != right - by.names:
            raise self.error(f"the sides of {sign} never match: {sorted(left)}, {sorted(right)}")
        if by.many:
            many, one = (left, right) if by.many == "group_left" else (right, left)
            self._known(by.taken, one)
            return many | by.taken
        if sign in _SETS or not by.how:
            return left
        return by.names if by.how == "on" else left - by.names

    def _known(self, names: Labels, labels: Labels) -> None:
        if wrong := names - labels:
            raise self.error(f"no label {', '.join(sorted(wrong))} in {sorted(labels)}")

    def _one(self) -> Labels | None:
        first = self._next()
        if first.kind == "number":
            return None
        if first.text == "(":
            found = self.expression(0)
            self._take(")")
            return found
        if first.kind != "name":
            raise self.error(f"{first.text!r} is not expected")
        if first.text in _AGGREGATES and self.token.text in {"by", "without", "("}:
            return self._aggregate()
        if self.token.text == "(":
            return self._function(first.text)
        return self._selector(first.text)

    def _aggregate(self) -> Labels:
        grouping = (self._next().text, self._names()) if self.token.text in {"by", "without"} else None
        self._take("(")
        labels = self.expression(0)
        self._take(")")
        if grouping is None and self.token.text in {"by", "without"}:
            grouping = (self._next().text, self._names())
        if labels is None:
            raise self.error("an aggregate of a number")
        if grouping is None:
            return Labels()
        how, names = grouping
        self._known(names, labels)
        return names if how == "by" else labels - names

    def _function(self, name: str) -> Labels | None:
        if name not in _FUNCTIONS:
            raise self.error(f"the function {name} is not known")
        self._take("(")
        found: Labels | None = None
        while self.token.text != ")":
            one = self.expression(0)
            found = one if one is not None else found
            if self.token.text == ",":
                self._next()
        self._take(")")
        if name == "histogram_quantile" and found is not None:
            self._known(Labels({"le"}), found)
            return found - {"le"}
        return found

    def _selector(self, name: str) -> Labels:
        if name not in self._exported:
            raise self.error(f"nothing exports {name}")
        labels = self._exported[name]
        if self.token.text == "{":
            self._next()
            while self.token.text != "}":
                self._known(Labels({self._next().text}), labels)
                if self._next().text not in {"=", "!=", "=~", "!~"} or self._next().kind != "text":
                    raise self.error("a matcher is not whole")
                if self.token.text == ",":
                    self._next()
            self._take("}")
        if self.token.kind == "range":
            self._next()
        if self.token.text == "offset":
            self._next()
            self._next()
        return labels
