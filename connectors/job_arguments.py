"""Arguments that jobs share: which log, where it is, and how to get at it and at an object store.

A secret on a command line is read by everyone on the machine: it comes from a file or from the environment.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from connectors.errors import OptionError
from ledger.errors import UsageError
from rsm_spark.object_stores.storage_options import (
    STORAGE_FILE_VARIABLE,
    checked_uri,
    is_secret,
    read_storage_options,
)

# Argument -> option of the source.
_SOURCE = {
    "metadata_uri": "metadataUri",
    "rsm_root": "rsmRoot",
    "zk_auth_file": "zkAuthFile",
    "zk_tls_file": "zkTlsFile",
    "password_file": "passwordFile",
    "password_env": "passwordEnv",
    "log_key_file": "logKeyFile",
}


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--log` and what `add_source_arguments` adds."""
    parser.add_argument("--log", required=True, help="name of the log")
    add_source_arguments(parser)


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where logs are and how to get at them."""
    where = parser.add_argument_group("where logs are")
    where.add_argument("--metadata-uri", help="default: $RSM_METADATA_URI, else ZooKeeper on this machine")
    where.add_argument("--rsm-root", default="/rsm", help="where logs are registered (%(default)s)")
    where.add_argument(
        "--zk-auth-file", help="file with the login for ZooKeeper, `scheme:credential` (default: $RSM_ZK_AUTH_FILE)"
    )
    where.add_argument(
        "--zk-tls-file", help="TOML file with certificates for ZooKeeper, `ca = …` (default: $RSM_ZK_TLS_FILE)"
    )
    password = where.add_mutually_exclusive_group()
    password.add_argument("--password-file", help="file with the password of the ledgers")
    password.add_argument("--password-env", metavar="NAME", help="variable with the password of the ledgers")
    where.add_argument("--log-key-file", metavar="FILE", help="key file of the log: seals are checked")


def add_hold_arguments(parser: argparse.ArgumentParser) -> None:
    """Add under which name the job holds the log, and how long."""
    hold = parser.add_argument_group("hold the log")
    hold.add_argument(
        "--consumer", metavar="NAME", help="what the tables do not have yet is not trimmed, also while the job is down"
    )
    hold.add_argument("--hold-time", metavar="TIME", help="with --consumer, not longer than this, like 12h (7d)")
    hold.add_argument("--hold-bytes", metavar="SIZE", help="with --consumer, not more than this, like 10g (64g)")


def hold_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source that `add_hold_arguments` stand for."""
    given = {"consumer": arguments.consumer, "holdTime": arguments.hold_time, "holdBytes": arguments.hold_bytes}
    return {option: value for option, value in given.items() if value}


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source that `add_source_arguments` stand for."""
    given = {option: getattr(arguments, name) for name, option in _SOURCE.items()}
    return {option: value for option, value in given.items() if value}


def add_storage_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how to get at an object store."""
    store = parser.add_argument_group("object stores")
    store.add_argument(
        "--storage-option", action="append", default=[], metavar="KEY=VALUE", help="may be repeated; no secrets"
    )
    store.add_argument(
        "--storage-options-file",
        metavar="FILE",
        default=os.environ.get(STORAGE_FILE_VARIABLE),
        help='JSON file with options, secrets too: {"aws_secret_access_key": "…"} '
        f"(default: ${STORAGE_FILE_VARIABLE})",
    )


def storage_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options for the object store; those of the command line win.

    Raises:
        OptionError: One has no value, is a secret, or the file cannot be read.

    """
    try:
        named = arguments.storage_options_file
        found = read_storage_options(None if named is None else Path(named))
    except UsageError as error:
        raise OptionError(str(error)) from None
    for text in arguments.storage_option:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise OptionError(f"--storage-option {text.split('=')[0]!r}: write it KEY=VALUE")
        if is_secret(key):
            raise OptionError(
                f"--storage-option {key}: everyone on this machine could read it there; put it into a file for "
                "--storage-options-file, or into the store's own variable, such as AWS_SECRET_ACCESS_KEY"
            )
        found[key] = value
    return found


def table_place(text: str) -> str:
    """Return a path or URI as an argument names it, the type of such an argument.

    Raises:
        argparse.ArgumentTypeError: It holds a secret.

    """
    try:
        return checked_uri(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def interval(text: str) -> str:
    """Write "1s", "500ms", "5m" as Spark wants them; leave its own form alone."""
    for short, long in (("ms", "milliseconds"), ("s", "seconds"), ("m", "minutes")):
        if text.endswith(short) and text.removesuffix(short).isdigit():
            return f"{text.removesuffix(short)} {long}"
    return text
