"""Arithmetic of dates and times as PostgreSQL spells it, respelled with SQLite's own functions. Pure.

A moment is a text, `2026-01-02 03:04:05`, in UTC where it names no zone; an interval is no value, and is respelled
where it is added, multiplied or counted in seconds. So what is written into views and triggers needs no functions of
ours.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlglot import exp

_UNITS: Final = {
    "YEAR": "%Y", "MONTH": "%m", "DAY": "%d", "HOUR": "%H", "MINUTE": "%M", "SECOND": "%S", "DOW": "%w", "DOY": "%j",
    "WEEK": "%V", "ISOYEAR": "%G", "ISODOW": "%u",
}  # fmt: skip
_TRUNCATED: Final = {
    "YEAR": "%Y-01-01 00:00:00", "MONTH": "%Y-%m-01 00:00:00", "DAY": "%Y-%m-%d 00:00:00", "HOUR": "%Y-%m-%d %H:00:00",
    "MINUTE": "%Y-%m-%d %H:%M:00", "SECOND": "%Y-%m-%d %H:%M:%S", "WEEK": "%Y-%m-%d 00:00:00",
    "QUARTER": "%Y-%m-01 00:00:00",
}  # fmt: skip
_MONTHS: Final = {"MONTH": 1, "MON": 1, "QUARTER": 3, "YEAR": 12, "Y": 12, "YR": 12, "DECADE": 120}
_DAYS: Final = {"DAY": 1, "D": 1, "WEEK": 7, "W": 7}
_SECONDS: Final = {
    "HOUR": 3600, "H": 3600, "HR": 3600, "MINUTE": 60, "MIN": 60, "M": 60, "SECOND": 1, "SEC": 1, "S": 1,
    "MILLISECOND": 0.001, "MSEC": 0.001, "MS": 0.001,
}  # fmt: skip
_PART = re.compile(
    r"\s*(?:([+-]?)(\d{1,6}):(\d\d)(?::(\d\d(?:\.\d{1,6})?))?(?![\w:.])|([+-]?\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]+))\s*"
)
_UTC_WORDS: Final = ("UTC", "GMT", "ETC/UTC", "Z")
_ISO_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
"""No finer than milliseconds: SQLite counts no finer."""
_HOUR_ZONE = re.compile(r".*:\d\d(?:\.\d*)?[+-]\d\d")
"""PostgreSQL writes +00, which SQLite does not know."""
_FORM: Final = "%Y-%m-%d %H:%M:%f"
_DAY_S: Final = 86_400
_YEAR_MIN: Final = 1
_YEAR_MAX: Final = 9999
_SPAN_MAX: Final = 1e12
_COPIED_NODES_MAX: Final = 100
"""Largest value that is written twice into a result: else nested ones would grow twofold with each level."""


class _Span(NamedTuple):
    """An interval that is written in a statement; a month has no length in days, and here a day none in seconds."""

    months: float
    days: float
    seconds: float

    def times(self, factor: float) -> _Span | None:
        return _bounded(self.months * factor, self.days * factor, self.seconds * factor)

    @property
    def is_whole(self) -> bool:
        """Has no decimals: what it is added to keeps its seconds."""
        return all(float(one).is_integer() for one in self)

    def modifiers(self) -> list[Any]:
        """Return what SQLite's functions add for it; the end of a month stays within the month."""
        months, days, seconds = self.months, self.days, self.seconds
        # PostgreSQL takes a month's part as days of 30, and a day's as hours.
        days, months = days + (months - int(months)) * 30, int(months)
        seconds, days = seconds + (days - int(days)) * _DAY_S, int(days)
        found = [f"{number:+g} {word}" for number, word in ((months, "months"), (days, "days")) if number]
        if months:
            found.insert(1, "floor")
        if seconds or not found:
            hours = seconds / 3600
            is_hours = float(hours).is_integer()
            shown = f"{hours:+.0f} hours" if is_hours and hours else f"{round(seconds, 6):+.6f}".rstrip("0").rstrip(".")
            found.append(shown if shown.endswith("hours") else f"{shown} seconds")
        return [exp.Literal.string(one) for one in found]


def _bounded(months: float, days: float, seconds: float) -> _Span | None:
    """Return an interval; None if no calendar has it."""
    found = _Span(months, days, seconds)
    return found if all(abs(one) <= _SPAN_MAX for one in found) else None


def _call(name: str, *arguments: Any) -> Any:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _text(value: str) -> Any:
    return exp.Literal.string(value)


def _as(kind: str, value: Any) -> Any:
    return exp.Cast(this=value, to=exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=exp.to_identifier(kind)))


def _trimmed(moment: Any) -> Any:
    """Return a moment of three decimals without those that are 0, as PostgreSQL shows it."""
    return _call("RTRIM", _call("RTRIM", moment, _text("0")), _text("."))


def _seconds_of(moment: Any) -> Any:
    inside = moment.this if isinstance(moment, exp.Cast) else moment
    if isinstance(inside, exp.Literal) and inside.is_string and _HOUR_ZONE.fullmatch(inside.name):
        moment = _text(f"{inside.name}:00")
    return _call("UNIXEPOCH", moment, _text("subsec"))


# ---- intervals


def _span_of_text(text: str) -> _Span | None:
    months = days = seconds = 0.0
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            return None
        at = found.end()
        sign, hours, minutes, rest, amount, word = found.groups()
        if hours is not None:
            length = int(hours) * 3600 + int(minutes) * 60 + float(rest or 0)
            seconds += -length if sign == "-" else length
            continue
        unit, number = word.upper(), float(amount)
        unit = unit if unit in _SECONDS or unit in _DAYS or unit in _MONTHS else unit.removesuffix("S")
        if unit in _MONTHS:
            months += number * _MONTHS[unit]
        elif unit in _DAYS:
            days += number * _DAYS[unit]
        elif unit in _SECONDS:
            seconds += number * _SECONDS[unit]
        else:
            return None
    return _bounded(months, days, seconds) if text.strip() else None


def _span(node: Any) -> _Span | None:
    """Return the interval that stands here, if all of it is written; None = it is no such one."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Interval):
        amount, unit = node.this, node.args.get("unit")
        if not isinstance(amount, exp.Literal):
            return None
        return _span_of_text(amount.name if unit is None else f"{amount.name} {unit.name}")
    if isinstance(node, exp.Neg):
        inside = _span(node.this)
        return None if inside is None else inside.times(-1)
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            factor, inside = _number(other), _span(one)
            if factor is not None and inside is not None:
                return inside.times(factor)
    return None


def _number(node: Any) -> float | None:
    if isinstance(node, exp.Neg):
        inside = _number(node.this)
        return None if inside is None else -inside
    return float(node.name) if isinstance(node, exp.Literal) and not node.is_string else None


def _spread_span(node: Any) -> tuple[Any, _Span] | None:
    """Return number and interval of `n * interval '1 second'`, whose number is known when the statement is run."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            inside = _span(one)
            is_known = _span(other) is not None or _number(other) is not None
            if inside is not None and not is_known and not (inside.months or (inside.days and inside.seconds)):
                return other, inside
    return None


def written_interval(value: Any) -> Any:
    """Return what is cast to an interval, `'1 hour'::interval`, as one; None if it is no text."""
    return exp.Interval(this=_text(value.name)) if isinstance(value, exp.Literal) and value.is_string else None


def _added(sign: int) -> Callable[[Any], Any]:
    def turn(node: Any) -> Any:
        """Return `a + INTERVAL '1 day'` as `DATETIME(a, '+1 days')`."""
        moment, step = node.this, node.expression
        if sign > 0 and (_span(moment) is not None or _spread_span(moment) is not None):
            moment, step = step, moment
        span, spread = _span(step), _spread_span(step)
        if _span(moment) is not None or (span is None and spread is None):
            return node
        if span is not None:
            modifiers = (span if sign > 0 else _Span(-span.months, -span.days, -span.seconds)).modifiers()
            is_short = span.is_whole and isinstance(moment, exp.CurrentTimestamp | exp.CurrentDate)
            if is_short:
                return _call("DATETIME", moment, *modifiers)
            return _trimmed(_call("DATETIME", moment, *modifiers, _text("subsec")))
        assert spread is not None
        number, one = spread
        length = (one.days * _DAY_S + one.seconds) * sign
        product = exp.Mul(this=exp.Paren(this=number), expression=exp.Literal.number(f"{length:g}"))
        amount = exp.DPipe(this=exp.Paren(this=product), expression=_text(" seconds"))
        return _trimmed(_call("DATETIME", moment, amount, _text("subsec")))

    return turn


# ---- parts


def _extract(node: Any) -> Any:
    unit, of = node.name.upper(), node.expression
    if unit == "EPOCH":
        return _epoch(of)
    if unit == "QUARTER":
        month = _as("INTEGER", _call("STRFTIME", _text("%m"), of))
        months = exp.Paren(this=exp.Add(this=month, expression=_whole(2)))
        return exp.Paren(this=_divided(months, _whole(3)))
    form = _UNITS.get(unit)
    return node if form is None else _as("INTEGER", _call("STRFTIME", _text(form), of))


def _epoch(of: Any) -> Any:
    span = _span(of)
    if span is not None:
        # As PostgreSQL counts: a year has 365.25 days, a month of the rest 30.
        years = int(span.months / 12)
        months = span.months - years * 12
        days = years * 365.25 + months * 30 + span.days
        return exp.Literal.number(repr(days * _DAY_S + span.seconds))
    inside = of.unnest() if isinstance(of, exp.Paren) else of
    if isinstance(inside, exp.Sub):
        return exp.Paren(this=exp.Sub(this=_seconds_of(inside.this), expression=_seconds_of(inside.expression)))
    return _seconds_of(of)


def _whole(number: int) -> Any:
    return exp.Literal.number(number)


def _divided(value: Any, by: Any) -> Any:
    """Return a division as SQLite does it: whole numbers stay whole."""
    return exp.Div(this=value, expression=by, typed=True)


def _is_small(value: Any) -> bool:
    return sum(1 for _ in itertools.islice(value.walk(), _COPIED_NODES_MAX + 1)) <= _COPIED_NODES_MAX


def _truncated(node: Any) -> Any:
    unit, zone = node.args.get("unit"), node.args.get("zone")
    word = "" if unit is None else unit.name.upper()
    is_utc = zone is None or (isinstance(zone, exp.Literal) and zone.name.upper() in _UTC_WORDS)
    form = _TRUNCATED.get(word)
    if form is None or not is_utc:
        return node
    modifiers: list[Any] = []
    if word == "WEEK":  # Sunday is the last day of a week.
        modifiers = [_text("weekday 0"), _text("-6 days")]
    elif word == "QUARTER":
        if not _is_small(node.this):
            return node
        month = exp.Sub(this=_call("STRFTIME", _text("%m"), node.this.copy()), expression=_whole(1))
        back = exp.Paren(this=exp.Mod(this=exp.Paren(this=month), expression=_whole(3)))
        step = exp.DPipe(this=exp.DPipe(this=_text("-"), expression=back), expression=_text(" months"))
        modifiers = [_text("start of month"), step]
    return _call("STRFTIME", _text(form), node.this, *modifiers)


def _binned(node: Any) -> Any:
    """Return `date_bin(stride, moment, origin)`; a stride with months, or of no length, is left as it is."""
    stride, origin = node.this, node.args.get("unit")
    span = _span(stride) or (_span_of_text(stride.name) if isinstance(stride, exp.Literal) else None)
    if span is None or span.months or origin is None or not _is_small(origin):
        return node
    length = span.days * _DAY_S + span.seconds
    if length <= 0:
        return node
    # sqlglot takes a text in the last place for the name of a unit.
    first = _seconds_of(_text(origin.name) if isinstance(origin, exp.Var) else origin)
    number = exp.Literal.number(f"{length:.6f}".rstrip("0") + "0")
    passed = exp.Paren(this=exp.Sub(this=_seconds_of(node.expression), expression=first.copy()))
    bins = _call("FLOOR", _divided(passed, number.copy()))
    moment = exp.Add(this=first, expression=exp.Mul(this=bins, expression=number))
    return _trimmed(_call("DATETIME", moment, _text("unixepoch"), _text("subsec")))


def _from_epoch(node: Any) -> Any:
    """Return `to_timestamp(seconds)`."""
    return _trimmed(_call("DATETIME", node.this, _text("unixepoch"), _text("subsec")))


# ---- comparisons

_FROM: Final = (exp.GT, exp.GTE)


def _iso_moment(node: Any) -> datetime | None:
    while isinstance(node, exp.Paren | exp.Cast):
        node = node.this
    if not isinstance(node, exp.Literal) or not node.is_string or not _ISO_MOMENT.fullmatch(node.name):
        return None
    try:
        found = datetime.fromisoformat(node.name)
    except ValueError:
        return None
    return found.astimezone(UTC) if _YEAR_MIN < found.year < _YEAR_MAX else None


def _compared(kind: Any, value: Any, moment: datetime) -> Any:
    """Return a comparison with a written moment."""
    shown = moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    day = (moment + timedelta(days=-1 if kind in _FROM else 2)).date().isoformat()
    return _compared_with(kind, value, _text(shown), _text(day))


def _compared_with(kind: Any, value: Any, shown: Any, day: Any) -> Any:
    """Return a comparison of moments: texts with a T, a zone or neither are the same moment.

    A column is compared as it is kept too, with days around, so that an index of it serves.
    """
    forms = [_call("STRFTIME", _text(_FORM), one) for one in (value.copy(), exp.DPipe(
        this=value.copy(), expression=_text(":00")  # PostgreSQL writes +00, which SQLite does not know.
    ))]  # fmt: skip
    exact = kind(this=_call("COALESCE", *forms, value.copy()), expression=shown)
    if not isinstance(value, exp.Column):
        return exact
    around = (exp.GTE if kind in _FROM else exp.LT)(this=value.copy(), expression=day)
    return exp.Paren(this=exp.And(this=around, expression=exact))


def _is_of_now(node: Any) -> bool:
    """Return whether a node, respelled already, is `now()`, or that with intervals added."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.CurrentTimestamp):
        return True
    is_moment = isinstance(node, exp.Anonymous) and node.name.upper() in ("DATETIME", "RTRIM")
    return is_moment and bool(node.expressions) and _is_of_now(node.expressions[0])


def _comparison(kind: Any) -> Callable[[Any], Any]:
    def turn(node: Any) -> Any:
        if not _is_small(node.this):
            return node
        moment = _iso_moment(node.expression)
        if moment is not None:
            return _compared(kind, node.this, moment)
        if not _is_of_now(node.expression) or not _is_small(node.expression):
            return node
        shown = _call("STRFTIME", _text(_FORM), node.expression.copy())
        day = _call("DATE", node.expression.copy(), _text("-1 day" if kind in _FROM else "+2 days"))
        return _compared_with(kind, node.this, shown, day)

    return turn


def _between(node: Any) -> Any:
    low, high = _iso_moment(node.args["low"]), _iso_moment(node.args["high"])
    if low is None or high is None or node.args.get("symmetric") or not _is_small(node.this):
        return node
    both = (_compared(exp.GTE, node.this, low), _compared(exp.LTE, node.this, high))
    return exp.Paren(this=exp.And(this=both[0], expression=both[1]))


MOMENT_TURNS: Final[dict[type, Callable[[Any], Any]]] = {
    exp.Add: _added(1), exp.Sub: _added(-1), exp.Extract: _extract, exp.TimestampTrunc: _truncated,
    exp.DateBin: _binned, exp.UnixToTime: _from_epoch, exp.Between: _between, exp.GT: _comparison(exp.GT),
    exp.GTE: _comparison(exp.GTE), exp.LT: _comparison(exp.LT), exp.LTE: _comparison(exp.LTE),
}  # fmt: skip
