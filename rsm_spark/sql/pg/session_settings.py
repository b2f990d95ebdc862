"""Settings of a session: what SET, SHOW, RESET and the options of a connection name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness, at_least, bounded
from rsm_spark.sql.pg.faults import BAD_PARAMETER, NO_OBJECT, SYNTAX, TOO_LARGE, PgFault

SERVER_VERSION: Final = "15.0"
"""Version of PostgreSQL whose words are spoken here."""
READ_LEVEL: Final = "rsm.read"
COPY_AS: Final = "rsm.copy"
COPY_WAYS: Final = ("whole", "batches")
_SETTINGS_MAX: Final = 200
_VALUE_CHARS_MAX: Final = 1_000
_SET = re.compile(
    r"SET\s+(?:(?:SESSION|LOCAL)\s+)?(?:(?P<zone>TIME\s+ZONE)\s+|(?P<names>NAMES)\s+|(?P<name>[\w.\"]+)\s*(?:=|\bTO\b)\s*)"
    r"(?P<value>.+)",
    re.IGNORECASE | re.DOTALL,
)
_SET_ALWAYS_SO = re.compile(r"SET\s+((SESSION\s+CHARACTERISTICS\s+AS\s+)?TRANSACTION|CONSTRAINTS)\b", re.IGNORECASE)
_NAMED = re.compile(r"(?:SHOW|RESET)\s+(?P<name>.+)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"(?:-c\s*|--)([\w.\-]+)=((?:\\.|\S)*)")
_LAG = re.compile(r"(\d{1,7})\s*ms")
_TEXTS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[^,\s]+")

_TOLD: Final = {
    "server_version": SERVER_VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "default_transaction_read_only": "off",
    "in_hot_standby": "off",
    "is_superuser": "off",
    "session_authorization": "",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
}
"""Settings that clients are told when they connect, and when they change."""
_OTHERS: Final = {
    "search_path": '"$user", public',
    "transaction_isolation": "serializable",
    "default_transaction_isolation": "serializable",
    "transaction_read_only": "off",
    "extra_float_digits": "1",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "client_min_messages": "notice",
    "bytea_output": "hex",
    "row_security": "on",
    "max_identifier_length": "63",
    "server_version_num": "150000",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "block_size": "8192",
    "max_index_keys": "32",
    "jit": "off",
    "default_table_access_method": "heap",
    READ_LEVEL: "linearizable",
    COPY_AS: "whole",
}
_FIXED: Final = frozenset({
    "server_version", "server_encoding", "integer_datetimes", "is_superuser", "session_authorization", "in_hot_standby",
    "server_version_num", "max_identifier_length",
})  # fmt: skip
_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "client_encoding": ("utf8", "utf-8", "unicode", "sql_ascii"),
    "standard_conforming_strings": ("on", "true", "1", "yes"),
    "timezone": ("utc", "gmt", "etc/utc", "default", "local", "0", "+00:00", "zulu"),
    "bytea_output": ("hex",),
}
"""Settings of which one value is true here, and how it is written; `TimeZone` is taken as it comes: times are texts."""


class SessionSettings:
    """See the module.

    Args:
        user: Who has logged in.

    """

    def __init__(self, user: str) -> None:
        self._first = {**_TOLD, **_OTHERS, "session_authorization": user}
        self._values = dict(self._first)
        self._names = {name.lower(): name for name in self._values}

    def begin(self, parameters: Mapping[str, str]) -> None:
        """Take what a client said when it connected.

        Raises:
            PgFault: A value makes no sense here.

        """
        for name, value in parameters.items():
            if name in ("user", "database", "replication") or name.startswith("_pq_."):
                continue
            if name == "options":
                for option, text in _OPTION.findall(value):
                    self.set(option.replace("-", "_"), re.sub(r"\\(.)", r"\1", text))
            else:
                self.set(name, value)
        self._first = dict(self._values)

    def told(self) -> Iterator[tuple[str, str]]:
        """Iterate over what clients are told when they connect."""
        for name in _TOLD:
            yield name, self._values[name]

    def all(self) -> Iterator[tuple[str, str]]:
        """Iterate over names and values."""
        yield from self._values.items()

    def get(self, name: str) -> str:
        """Return the value of a setting.

        Raises:
            PgFault: There is none of this name.

        """
        found = self._names.get(name.lower())
        if found is None:
            raise PgFault(NO_OBJECT, f"there is no setting {name!r}")
        return self._values[found]

    def set(self, name: str, value: str) -> str:
        """Change a setting; return its name if clients are told of it, else "".

        Raises:
            PgFault: The value makes no sense here, or it does not change.

        """
        lower = name.lower()
        if lower in _FIXED:
            raise PgFault(BAD_PARAMETER, f"the setting {name} does not change")
        if len(value) > _VALUE_CHARS_MAX:
            raise PgFault(TOO_LARGE, f"the value of {name} is longer than {_VALUE_CHARS_MAX} letters")
        if lower == "client_encoding":
            value = value.strip("'\"")  # asyncpg quotes it
        only = _ONLY.get(lower) if lower != "timezone" else None
        if only is not None and value.lower() not in only:
            raise PgFault(BAD_PARAMETER, f"{name} = {value!r}: {only[0]} is all that is served")
        if lower == READ_LEVEL:
            level_of(value, 0)
        if lower == COPY_AS and value not in COPY_WAYS:
            raise PgFault(BAD_PARAMETER, f"{COPY_AS} = {value!r}: it is one of {', '.join(COPY_WAYS)}")
        if lower == "client_encoding":
            value = "UTF8"
        known = self._names.get(lower)
        if known is None:
            if "." not in name and lower not in _IGNORED:
                raise PgFault(NO_OBJECT, f"there is no setting {name!r}")
            if len(self._values) >= _SETTINGS_MAX:
                raise PgFault(TOO_LARGE, f"a session has at most {_SETTINGS_MAX} settings")
            known = self._names[lower] = name
        self._values[known] = value
        return known if known in _TOLD else ""

    def reset(self, name: str) -> list[str]:
        """Set a setting, or "all", back; return the names of those that clients are told of."""
        if name.lower() != "all":
            known = self._names.get(name.lower(), name)
            self.get(known)
            if known in self._first:
                self._values[known] = self._first[known]
            return [known] if known in _TOLD else []
        changed = [one for one in _TOLD if self._values[one] != self._first[one]]
        self._values = dict(self._first)
        self._names = {one.lower(): one for one in self._values}
        return changed

    def level(self, revision: int) -> Freshness:
        """Return how fresh reads must be.

        Args:
            revision: That the session has seen last.

        """
        return level_of(self._values[READ_LEVEL], revision)


_IGNORED: Final = frozenset({
    "datestyle", "synchronous_commit", "work_mem", "maintenance_work_mem", "geqo", "check_function_bodies",
    "default_tablespace", "default_table_access_method", "xmloption", "tcp_keepalives_idle", "random_page_cost",
    "enable_seqscan", "effective_io_concurrency", "escape_string_warning", "backslash_quote", "array_nulls",
    "role", "constraint_exclusion", "cursor_tuple_fraction", "from_collapse_limit", "quote_all_identifiers",
    "transaction_timeout", "idle_session_timeout", "force_parallel_mode", "max_parallel_workers_per_gather",
    "plan_cache_mode", "temp_buffers", "log_statement", "log_min_duration_statement", "track_activities",
})  # fmt: skip
"""Settings that change nothing here."""


def level_of(text: str, revision: int) -> Freshness:
    """Return how fresh reads must be, by the value of `rsm.read`.

    Raises:
        PgFault: It is none.

    """
    match text.lower():
        case "linearizable":
            return LINEARIZABLE
        case "session":
            return at_least(revision)
        case "stale":
            return STALE
        case lower if (found := _LAG.fullmatch(lower)) is not None:
            return bounded(max_lag_ms=int(found[1]))
        case _:
            raise PgFault(
                BAD_PARAMETER,
                f"{READ_LEVEL} = {text!r}: it is linearizable, session, stale, or an age such as '2000ms'",
            )


def set_of(sql: str) -> tuple[str, str] | None:
    """Return name and value of a SET; None = it concerns what is always so here.

    Isolation is serializable; a constraint is looked at when its table says.

    Raises:
        PgFault: It is none.

    """
    if _SET_ALWAYS_SO.match(sql):
        return None
    found = _SET.fullmatch(sql.strip())
    if found is None:
        raise PgFault(SYNTAX, "SET is written: SET name = value")
    values = [_unquoted(text) for text in _TEXTS.findall(found["value"].strip())]
    name = "TimeZone" if found["zone"] else "client_encoding" if found["names"] else found["name"].replace('"', "")
    return name, ", ".join(values)


def name_of(sql: str) -> str:
    """Return which setting SHOW or RESET names.

    Raises:
        PgFault: It names none.

    """
    found = _NAMED.fullmatch(sql.strip())
    if found is None:
        raise PgFault(SYNTAX, "the name of a setting is missing")
    words = found["name"].strip()
    spoken = {"TRANSACTION ISOLATION LEVEL": "transaction_isolation", "TIME ZONE": "TimeZone"}
    return spoken.get(" ".join(words.upper().split()), words.replace('"', ""))


def _unquoted(text: str) -> str:
    if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1].replace(text[0] * 2, text[0])
    return text
