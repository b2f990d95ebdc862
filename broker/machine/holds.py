"""Author of a hold: kept behind the hold's reason, so that the row is as it ever was and every version folds it.

    database is down [by tenant 'ci of acme']

What was written before this was known, and whatever else has no such end, counts as the operator's: a ban is lifted by
nobody whom it was meant for. A reason that somebody gives cannot pretend: the true end is always written behind it.
"""

from __future__ import annotations

import re

import msgspec

_END = re.compile(r"^(?P<reason>.*?) ?\[by (?P<role>operator|tenant)(?: '(?P<name>[^'\[\]]*)')?\]$", re.DOTALL)
_NOT_IN_NAMES = re.compile(r"['\[\]\x00-\x1f\x7f]")
_NAME_MAX = 60


class AuthorRole:
    """Role of the author of a hold, by rank. An operator lifts every hold, a tenant those that tenants set."""

    OPERATOR = "operator"
    TENANT = "tenant"


class Author(msgspec.Struct, frozen=True, array_like=True):
    """Author of an act: the role, and a name for people (of the token)."""

    role: str = AuthorRole.OPERATOR
    name: str = ""

    def may_lift(self, other: Author) -> bool:
        """Return whether it may end or replace what another has set."""
        return self.role in {AuthorRole.OPERATOR, other.role}


OPERATOR = Author()


def signed(reason: str, author: Author) -> str:
    """Return what is kept of a hold's reason and author."""
    role = author.role if author.role == AuthorRole.OPERATOR else AuthorRole.TENANT
    name = _NOT_IN_NAMES.sub("_", author.name)[:_NAME_MAX]
    end = f"[by {role} '{name}']" if name else f"[by {role}]"
    return f"{reason} {end}" if reason else end


def author_of(kept: str) -> tuple[str, Author]:
    """Return reason and author of what is kept of a hold."""
    found = _END.match(kept)
    if found is None:
        return kept, OPERATOR
    return found["reason"], Author(found["role"], found["name"] or "")
