"""Model of a key of the map, for the judge of histories: a state and a call give a state, or contradict each other."""

from __future__ import annotations

from typing import NamedTuple

from rsm_spark.testing.history import CallerCall, Kind, Value, is_write


class KeyState(NamedTuple):
    """A key between two calls.

    Attributes:
        value: None = no such key.
        revision: Of the write that brought it here, or, if not `is_exact`, one that is certainly lower or equal.
        is_exact: Whether that write's revision is known.

    """

    value: Value | None
    revision: int
    is_exact: bool

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.value!r}, revision {'' if self.is_exact else 'at least '}{self.revision}"


ABSENT = KeyState(None, 0, is_exact=True)


def revision_limit(call: CallerCall) -> int | None:
    """Return the highest revision of the key, before a call, at which its reply can be given; None = any."""
    assert call.reply is not None
    revision = call.reply.revision
    if call.kind is Kind.COMPARE_AND_SET and call.by_revision and call.reply.done and isinstance(call.expected, int):
        return call.expected
    if not revision:
        return None
    return revision - 1 if is_write(call) else revision


def carry_out(state: KeyState, call: CallerCall) -> KeyState | None:
    """Return the key after a call, or None if its reply cannot be given in this state."""
    match call.kind:
        case Kind.PUT:
            return _written(state, call, call.argument)
        case Kind.GET:
            return _read(state, call)
        case Kind.COMPARE_AND_SET:
            return _compared(state, call)
        case Kind.DELETE:
            return _deleted(state, call)
    before = 0 if state.value is None else state.value
    if not isinstance(before, int) or not isinstance(call.argument, int):
        return None
    sum_ = before + call.argument
    if call.reply is not None and call.reply.value != sum_:
        return None
    return _written(state, call, sum_)


def _written(state: KeyState, call: CallerCall, value: Value | None) -> KeyState | None:
    """Return the key after a record of this call: revisions rise."""
    revision = None if call.reply is None else call.reply.revision
    if revision is None:
        return KeyState(value, state.revision + 1, is_exact=False)
    lowest = state.revision + 1
    return KeyState(value, revision, is_exact=True) if revision >= lowest else None


def _read(state: KeyState, call: CallerCall) -> KeyState | None:
    assert call.reply is not None
    if call.reply.value != state.value:
        return None
    return state if state.value is None else _narrowed(state, call.reply.revision)


def _narrowed(state: KeyState, revision: int | None) -> KeyState | None:
    """Return an existing key whose mod revision is said to be this, or None if it cannot be."""
    if revision is None:
        return state
    if state.is_exact:
        return state if revision == state.revision else None
    return state._replace(revision=revision, is_exact=True) if revision >= state.revision else None


def _compared(state: KeyState, call: CallerCall) -> KeyState | None:
    if call.reply is None:
        found = _matched(state, call)
        return None if found is None else _changed(found, call)
    if call.reply.done:
        found = _matched(state, call)
        return None if found is None else _changed(found, call)
    revision = call.reply.revision
    if state.value is None:
        return None if call.expected is None or revision else state
    if call.by_revision and revision is not None and revision == call.expected:
        return None
    if not call.by_revision and call.expected == state.value:
        return None
    narrowed = _narrowed(state, revision)
    if narrowed is not None and call.by_revision and narrowed.is_exact and narrowed.revision == call.expected:
        return None
    return narrowed


def _matched(state: KeyState, call: CallerCall) -> KeyState | None:
    """Return the key as it was found if it is as expected, else None."""
    if call.expected is None or state.value is None:
        return state if call.expected is None and state.value is None else None
    if not call.by_revision:
        return state if call.expected == state.value else None
    assert isinstance(call.expected, int)
    return _narrowed(state, call.expected)


def _changed(found: KeyState, call: CallerCall) -> KeyState | None:
    if call.argument is None and found.value is None:
        return found  # To expect no key and to delete it changes nothing.
    return _written(found, call, call.argument)


def _deleted(state: KeyState, call: CallerCall) -> KeyState | None:
    if state.value is None:
        return None if call.reply is not None and call.reply.done else state
    return None if call.reply is not None and not call.reply.done else _written(state, call, None)
