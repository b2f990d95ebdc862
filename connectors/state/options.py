"""Options of the source `ledger_state`, parsed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from connectors.errors import OptionError
from connectors.source.option_table import STORAGE_OPTION_PREFIX
from connectors.source.option_values import parse_size
from connectors.source.options import SourceOptions, parse_options
from connectors.state.as_of import AsOf, parse_as_of

TAIL_BYTES_MAX = 128 * 1024 * 1024
"""Payload of the log that the driver folds at most, unless `maxTailBytes` says otherwise: seconds of work."""

_LEDGER_OPTIONS = (
    "log",
    "metadataUri",
    "rsmRoot",
    "zkAuthFile",
    "zkTlsFile",
    "passwordFile",
    "passwordEnv",
    "logKeyFile",
    "lake",
)
_OWN_OPTIONS = ("asOfRevision", "asOfTimestamp", "asOfPosition", "table", "maxTailBytes")
STATE_OPTIONS = (*_LEDGER_OPTIONS, *_OWN_OPTIONS)
"""Options of the state's source, besides `storageOption.<key>`."""

_BY_LOWER = {name.lower(): name for name in STATE_OPTIONS}
_STORAGE = STORAGE_OPTION_PREFIX.lower()


class StateOptions(msgspec.Struct, frozen=True):
    """All options of one query.

    Attributes:
        source: Where the log is and how to get at it; `lake` and `storage_options` too.
        as_of: Which state.
        table: With that table's columns; "" = rows of all tables as bytes.
        tail_bytes_max: Payload that the driver folds at most.

    """

    source: SourceOptions
    as_of: AsOf
    table: str
    tail_bytes_max: int

    def __repr__(self) -> str:
        """Leave out what may be secret."""
        return f"StateOptions({self.source.log!r}, {self.as_of!r})"


def parse_state_options(options: Mapping[str, str]) -> StateOptions:
    """Check and parse the options of a query.

    Args:
        options: As Spark hands them over; the case of names does not matter.

    Raises:
        OptionError: Names the option, what it had and what it may have.

    """
    own: dict[str, str] = {}
    others: dict[str, str] = {}
    for key, value in options.items():
        name = _BY_LOWER.get(key.lower())
        if name in _OWN_OPTIONS:
            own[name] = value
        elif name is not None or key.lower().startswith(_STORAGE) or key.lower() == "password":
            others[name or key] = value
        else:
            near = difflib.get_close_matches(key.lower(), list(_BY_LOWER), n=1, cutoff=0.5)
            hint = f"did you mean {_BY_LOWER[near[0]]}?" if near else f"known are {', '.join(STATE_OPTIONS)}"
            raise OptionError(f"source ledger_state: unknown option {key}: {hint}")
    if not others.get("log", "").strip():
        raise OptionError("source ledger_state: option log is missing: name the log")
    as_of = parse_as_of(*(own.get(name) for name in ("asOfRevision", "asOfTimestamp", "asOfPosition")))
    tail = parse_size(own, "maxTailBytes")
    return StateOptions(
        parse_options({**others, "rows": "raw"}, is_stream=False),
        as_of,
        own.get("table", "").strip(),
        TAIL_BYTES_MAX if tail is None else tail,
    )
