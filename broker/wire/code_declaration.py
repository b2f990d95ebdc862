"""Declaration in an archive of code, its file `rsm-pool.toml`: what tasks may call of it, and what it needs.

    entries = ["handlers:resize", "mails.send:Mailer.run", "nightly.py", "lib/sums.jar#org.example.Sums"]
    network = true

The last two are applications of Spark: a program in Python, and a class in a JAR. An archive without it can be kept,
and nothing of it can be called.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable

import msgspec

from ledger.decoding import convert
from ledger.errors import UsageError

DECLARATION_FILE = "rsm-pool.toml"
_BYTES_MAX = 64 * 1024
_ENTRIES_MAX = 1_000
_APPLICATION = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9_.-]*/)*[A-Za-z0-9][A-Za-z0-9_.-]*(?:\.py|\.jar#[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*)",
    re.ASCII,
)


class CodeDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See the module.

    Attributes:
        entries: What a task's `mode` may name: "module:function", or an application.
        network: Whether the code needs the network; whoever runs the worker grants it, or not.

    """

    entries: list[str]
    network: bool = False


def check_entry(entry: str) -> None:
    """Look at the name of an entry.

    Raises:
        UsageError: It is neither "module:function" nor an application, or names something private.

    """
    if not is_application(entry):
        check_function(entry)


def check_function(entry: str) -> None:
    """Look at the name of a function.

    Raises:
        UsageError: It is not "module:function", or names something private.

    """
    module, colon, attribute = entry.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise UsageError(
            f'entry {entry[:200]!r}: expected module:function, as in "handlers:resize"; an application of Spark is '
            "program.py or some.jar#org.example.Main"
        )
    if any(part.startswith("_") for part in parts):
        raise UsageError(f"entry {entry[:200]!r}: what begins with an underscore is private and is not called")


def is_application(entry: str) -> bool:
    """Return whether an entry is an application: the path of a program in Python, or of a JAR and a class in it."""
    return _APPLICATION.fullmatch(entry) is not None


def declaration_text(entries: Iterable[str], *, network: bool = False) -> str:
    """Return the file that declares these entries.

    Raises:
        UsageError: One is no entry.

    """
    named = list(dict.fromkeys(entries))
    for entry in named:
        check_entry(entry)
    # A TOML string is written as JSON's.
    return f"entries = {json.dumps(named)}\n" + ("network = true\n" if network else "")


def read_declaration(text: bytes) -> CodeDeclaration:
    """Read the file.

    Raises:
        UsageError: It does not say what it should.

    """
    if len(text) > _BYTES_MAX:
        raise UsageError(f"{DECLARATION_FILE} has {len(text):,} bytes, at most {_BYTES_MAX:,}")
    try:
        found = convert(tomllib.loads(text.decode()), CodeDeclaration)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UsageError(
            f'{DECLARATION_FILE} cannot be used: {error}. Expected: entries = ["module:function", …] and, if the code '
            "needs it, network = true"
        ) from error
    if not 1 <= len(found.entries) <= _ENTRIES_MAX:
        raise UsageError(f"{DECLARATION_FILE} declares {len(found.entries):,} entries; 1 to {_ENTRIES_MAX:,} are taken")
    for entry in found.entries:
        check_entry(entry)
    return found
