"""Difference between two states of a file of principals, in words: names, roles, scopes; no token, no hash of one.

Pure: no IO, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ledger.rereads import names_changed, shortened
from ledger.rights.entries import IssuerEntry
from ledger.rights.principal import Principal

_VALUE_CHARS_MAX = 60
_NAMELESS = "a token without a name"


class RightsHeld(NamedTuple):
    """Content of a file of principals, without secrets.

    Attributes:
        entries: (principal, hashes of its tokens, names of certificates, users at bookies), by name.
        issuers: Of signed tokens, by name.
        key_ids: Of each issuer's keys.

    """

    entries: Mapping[str, Sequence[tuple[Principal, tuple[str, ...], tuple[str, ...], tuple[str, ...]]]]
    issuers: Mapping[str, IssuerEntry]
    key_ids: Mapping[str, tuple[str, ...]]


def changes(before: RightsHeld, after: RightsHeld) -> str:
    """Return what is another, in words; "" = nothing."""
    words: list[str] = []
    for name in sorted({*before.entries, *after.entries}):
        was, is_ = before.entries.get(name, ()), after.entries.get(name, ())
        shown = name or _NAMELESS
        if len(was) == 1 and len(is_) == 1 and name:
            words += _entry(shown, was[0], is_[0])
            continue
        words += [f"+{shown} ({one[0].role.value})" for one in is_ if one not in was]
        words += [f"-{shown} ({one[0].role.value})" for one in was if one not in is_]
    for name in sorted({*before.issuers, *after.issuers}):
        if before.issuers.get(name) is None or after.issuers.get(name) is None:
            words.append(f"{'+' if name in after.issuers else '-'}issuer {name}")
            continue
        if before.issuers[name] != after.issuers[name]:
            words.append(f"issuer {name}: rules")
        ids = names_changed(before.key_ids.get(name, ()), after.key_ids.get(name, ()))
        words += [f"issuer {name}: keys {ids}"] if ids else []
    return shortened(words)


def _entry(
    name: str,
    was: tuple[Principal, tuple[str, ...], tuple[str, ...], tuple[str, ...]],
    is_: tuple[Principal, tuple[str, ...], tuple[str, ...], tuple[str, ...]],
) -> list[str]:
    said = []
    for field in ("role", *(field for field in Principal.__struct_fields__ if field != "role")):
        old, new = getattr(was[0], field), getattr(is_[0], field)
        if old != new:
            said.append(f"{field} {_value(old)} -> {_value(new)}")
    came, went = len(set(is_[1]) - set(was[1])), len(set(was[1]) - set(is_[1]))
    if came or went:
        said.append(f"tokens +{came} -{went}")
    for what, place in (("certificates", 2), ("logins", 3)):
        if was[place] != is_[place]:
            said.append(f"{what} {names_changed(was[place], is_[place]) or 'in another order'}")  # type: ignore[arg-type]
    return [f"{name}: {'; '.join(said)}"] if said else []


def _value(value: object) -> str:
    text = str(getattr(value, "value", value)) or "-"
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[: _VALUE_CHARS_MAX - 1]}…"
