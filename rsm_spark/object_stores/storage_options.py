"""Options of object stores, with the keys that deltalake has: from a file, since some are secret, or the environment.

    {"aws_access_key_id": "…", "aws_secret_access_key": "…", "aws_region": "eu-west-1"}

A secret on a command line is read by everyone on the machine: an address that holds one is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl

from ledger.errors import UsageError
from ledger.options import Option
from ledger.private_files import refuse_loose

_SECRETS = (
    "secret",
    "password",
    "passphrase",
    "token",
    "account_key",
    "access_key",
    "sas_key",
    "credential",
    "private",
    "signature",
)
_NO_SECRETS = ("access_key_id", "_file", "_path", "_uri", "_url", "endpoint")
_STORES = ("AWS_", "AZURE_", "GOOGLE_")
_SECRET_LETTERS_MIN = 4
_read_secrets: set[str] = set()
# Of every file that this process has read, and of its tables: whoever words an error need not know of the options.

STORAGE_FILE_VARIABLE = "RSM_STORAGE_OPTIONS_FILE"
"""Variable that names the file of options."""

STORAGE_FILE_HELP = "JSON file with options of the object store, secrets too."
"""Help of the option, for every command that has it."""

StorageFile = Annotated[
    Path | None, Option(STORAGE_FILE_HELP, metavar="FILE", variables=(STORAGE_FILE_VARIABLE,), shown="the environment")
]
"""Type of the field `storage_options_file` of a command's or process's options."""


def is_secret(key: str) -> bool:
    """Return whether the value of an option must not be seen by others."""
    name = key.lower()
    return any(word in name for word in _SECRETS) and not name.endswith(_NO_SECRETS)


def read_storage_options(path: Path | None) -> dict[str, str]:
    """Return the options in a file; none without one.

    Raises:
        UsageError: It cannot be read, is no JSON object of texts, or holds a secret and others may read it.

    """
    if path is None:
        return {}
    what = f"--storage-options-file {path}"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{what}: it cannot be read: {error.strerror or error}") from None
    except ValueError:  # Its words would repeat what the file holds.
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise UsageError(f'{what}: it must be a JSON object of texts, {{"key": "value"}}')
    if any(is_secret(key) for key in found):
        refuse_loose(path, "--storage-options-file")
    remember_secrets(found)
    return found


def remember_secrets(options: Mapping[str, str] | None) -> None:
    """Have the words of every error in this process be without the secrets among some options."""
    _read_secrets.update(secrets_of(options, {}))


def checked_uri(place: str) -> str:
    """Return a folder or URI unless it holds a secret.

    Raises:
        UsageError: It does.

    """
    scheme, mark, rest = place.partition("://")
    if not mark:
        return place
    parameters = parse_qsl(rest.partition("?")[2])
    is_told = any(is_secret(key) or key.lower() in {"sig", "access_key_id"} for key, _ in parameters)
    if is_told or _has_login(scheme, rest):
        raise UsageError(
            f"{shown_uri(place)}: the address holds a secret, which everyone on this machine could read there: put it "
            f"into a file for --storage-options-file, or into a variable of the store, such as AWS_SECRET_ACCESS_KEY"
        )
    return place


def shown_uri(place: str) -> str:
    """Return a place as others may be told of it: without login and parameters."""
    scheme, mark, rest = place.partition("://")
    if not mark:
        return place
    shown = rest.rpartition("@")[2] if _has_login(scheme, rest) else rest
    return f"{scheme}{mark}{shown.partition('?')[0]}"


def _has_login(scheme: str, rest: str) -> bool:
    """Return whether an address begins with a password; one may hold slashes and question marks as it is typed."""
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    who, at, host = authority.rpartition("@")
    port = host.partition(":")[2]
    # Azure names a container before the @, HDFS a user.
    return ":" in who or bool(at and scheme.startswith("s3")) or bool(port and not port.isdigit())


def is_s3(place: str) -> bool:
    """Return whether a place is in S3, or in a store that speaks as it does."""
    return place.startswith(("s3://", "s3a://"))


def secrets_of(options: Mapping[str, str] | None, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return all values that must not be told: of options, and of the variables of stores."""
    known = [(key, value) for key, value in (options or {}).items()]
    known += [(key, value) for key, value in environment.items() if key.startswith(_STORES)]
    found = {value for key, value in known if is_secret(key) or key.lower().endswith("access_key_id")}
    found |= _read_secrets
    # The longest first: one may be a part of another.
    return sorted((one for one in found if len(one) >= _SECRET_LETTERS_MIN), key=len, reverse=True)
