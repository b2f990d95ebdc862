"""Complaints of stores: one line, the store's own code, what to do, and never a secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import UsageError
from rsm_spark.object_stores.complaints import complaint_in, complaint_of, without_secrets
from rsm_spark.object_stores.storage_options import (
    checked_uri,
    is_secret,
    read_storage_options,
    secrets_of,
    shown_uri,
)

_OPTIONS = {"aws_access_key_id": "IDIDID", "aws_secret_access_key": "hush+hush", "aws_session_token": "tok/en==1"}
_BODY = (
    "<Error><Code>{}</Code><Message>It is {}.</Message><AWSAccessKeyId>IDIDID</AWSAccessKeyId>"
    "<StringToSign>AWS4 hush+hush</StringToSign></Error>"
)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("NoSuchBucket", "make it"),
        ("AccessDenied", "give others"),
        ("SignatureDoesNotMatch", "give others"),
        ("ExpiredToken", "have expired"),
        ("SlowDown", "try again later"),
        ("PreconditionFailed", "somebody else wrote"),
        ("InternalError", "the store failed"),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        (
            "Generic S3 error: Error performing GET http://h/b?list-type=2&X-Amz-Credential=hush+hush in 1s, after 10 "
            "retries, max_retries: 10, retry_timeout: 180s - Server returned non-2xx status code: 418 Teapot: {body}"
        ),
        "An error occurred ({code}) when calling the PutObject operation: It is so.\nX-Amz-Security-Token: tok/en==1",
        'Service error: code: "{code}"\nAuthorization: AWS4-HMAC-SHA256 Credential=IDIDID/x, Signature=abc',
    ],
)
def test_each_code_is_known_in_the_words_of_each_library(code: str, advice: str, form: str) -> None:
    told = complaint_in(form.format(code=code, body=_BODY.format(code, "so")), _OPTIONS)
    assert code in told
    assert advice in told
    assert "\n" not in told
    for secret in ("hush", "IDIDID", "tok/en", "Signature=abc"):
        assert secret not in told


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Client error with status 403 Forbidden: nothing", "give others"),
        ("returned non-2xx status code: 503 Service Unavailable", "try again later"),
        ("Unable to locate credentials", "there are no credentials"),
        ("error sending request: client error (Connect): tcp connect error", "cannot be reached"),
        ("operation timed out", "cannot be reached"),
    ],
)
def test_without_a_code_the_status_or_the_words_tell(said: str, advice: str) -> None:
    assert advice in complaint_in(said)


def test_what_is_not_known_is_told_as_it_is_and_never_at_length() -> None:
    assert complaint_of(OSError("the\n  disk is full.")) == "the disk is full"
    assert complaint_of(KeyError()) == "KeyError"
    assert len(complaint_in("x" * 10_000)) < 300


@given(st.text("ab"), st.text("xyz", min_size=4), st.text("ab"))
def test_a_secret_never_comes_through(before: str, secret: str, after: str) -> None:
    assert secret not in without_secrets(f"{before}{secret}{after}", {"aws_secret_access_key": secret})


def test_secrets_are_those_of_options_and_of_the_environment() -> None:
    environment = {
        "AWS_SECRET_ACCESS_KEY": "abcdef",
        "AWS_REGION": "eu-west-1",
        "MY_SECRET": "xyzxyz",
        "AWS_TOKEN": "no",
    }
    assert secrets_of({"aws_access_key_id": "abcdefgh", "aws_region": "r"}, environment) == ["abcdefgh", "abcdef"]
    assert is_secret("AZURE_STORAGE_ACCOUNT_KEY")
    assert not is_secret("aws_access_key_id")
    assert not is_secret("google_service_account_path")


@pytest.mark.parametrize(
    "place",
    [
        "s3://key:hush@bucket/x", "s3://key:hu/hush?hush@bucket/x", "hdfs://me:hu/hush@host/x",
        "s3://hush@bucket", "hdfs://me:hush@host/x", "s3://b?secret_key=hush",
        "s3://b/x?a=1&session_token=hush", "abfss://c@a/x?sig=hush", "s3://b/x?access_key=hush",
    ],
)  # fmt: skip
def test_an_address_with_a_secret_is_refused_and_not_repeated(place: str) -> None:
    with pytest.raises(UsageError, match="holds a secret") as refused:
        checked_uri(place)
    assert "hush" not in str(refused.value)
    assert "hush" not in shown_uri(place)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("/lake", "/lake"), ("s3://bucket/x", "s3://bucket/x"), ("abfss://c@a.net/x", "abfss://c@a.net/x"),
        ("hdfs://me@host:9000/x", "hdfs://me@host:9000/x"), ("s3://b/x?region=eu&scheme=http", "s3://b/x"),
    ],
)  # fmt: skip
def test_other_addresses_are_taken(place: str, shown: str) -> None:
    assert checked_uri(place) == place
    assert shown_uri(place) == shown


_BAD: Mapping[str, str] = {"[1]": "JSON object", '{"a": 1}': "JSON object", '{"secret": "hush"': "JSON object"}


@pytest.mark.parametrize("content", _BAD)
def test_a_file_that_holds_something_else_is_refused_and_not_repeated(content: str, tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=_BAD[content]) as refused:
        read_storage_options(path)
    assert "hush" not in str(refused.value)


def test_a_file_with_a_secret_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    assert read_storage_options(None) == {}
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_storage_options(path)
    path.write_text('{"aws_region": "eu-west-1"}')
    path.chmod(0o644)
    assert read_storage_options(path) == {"aws_region": "eu-west-1"}
    path.write_text('{"aws_secret_access_key": "hush"}')
    with pytest.raises(UsageError, match="chmod 600"):
        read_storage_options(path)
    path.chmod(0o600)
    assert read_storage_options(path) == {"aws_secret_access_key": "hush"}
