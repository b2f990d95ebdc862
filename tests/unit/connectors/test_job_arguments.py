"""Arguments that jobs share."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from connectors.errors import OptionError
from connectors.job import job_parser
from connectors.job_arguments import (
    add_log_arguments,
    add_storage_arguments,
    source_options,
    storage_options,
    table_place,
)


def parsed(*argv: str) -> argparse.Namespace:
    parser = job_parser("count", "Count.")
    add_log_arguments(parser)
    add_storage_arguments(parser)
    return parser.parse_args(["--log", "orders", *argv])


def test_what_is_given_becomes_options_of_the_source() -> None:
    assert source_options(parsed()) == {"rsmRoot": "/rsm"}
    given = parsed(
        "--metadata-uri", "zk://h/ledgers", "--password-env", "SECRET", "--zk-auth-file", "/etc/login",
        "--zk-tls-file", "/etc/zk.toml",
    )  # fmt: skip
    assert source_options(given) == {
        "metadataUri": "zk://h/ledgers",
        "rsmRoot": "/rsm",
        "passwordEnv": "SECRET",
        "zkAuthFile": "/etc/login",
        "zkTlsFile": "/etc/zk.toml",
    }


def test_options_for_a_store_come_from_a_file_and_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"aws_secret_access_key": "s", "aws_region": "a"}')
    given = parsed(
        "--storage-options-file", str(tmp_path / "store.json"), "--storage-option", "aws_region=b=c",
        "--storage-option", "AWS_ACCESS_KEY_ID=id",
    )  # fmt: skip
    assert storage_options(given) == {"aws_secret_access_key": "s", "aws_region": "b=c", "AWS_ACCESS_KEY_ID": "id"}


@pytest.mark.parametrize("key", ["aws_secret_access_key", "AZURE_STORAGE_ACCOUNT_KEY", "aws_session_token", "password"])
def test_a_secret_on_the_command_line_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(OptionError, match=f"--storage-option {key}.*--storage-options-file") as raised:
        storage_options(parsed("--storage-option", f"{key}=hush"))
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("text", ["aws_region", "=b"])
def test_an_option_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="KEY=VALUE"):
        storage_options(parsed("--storage-option", text))


@pytest.mark.parametrize("content", ["[1]", '{"a": 1}', "{"])
def test_a_file_of_options_must_be_an_object_of_texts(content: str, tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(OptionError, match="store.json"):
        storage_options(parsed("--storage-options-file", str(tmp_path / "store.json")))


def test_a_place_that_holds_a_secret_is_refused_and_not_repeated() -> None:
    assert table_place("s3://bucket/lake") == "s3://bucket/lake"
    with pytest.raises(argparse.ArgumentTypeError, match="holds a secret") as raised:
        table_place("s3://me:hush@bucket/lake")
    assert "hush" not in str(raised.value)
