"""S3, and stores that speak as it does: objects appear whole or not at all.

1. What is short is written in one request, which the store takes whole or not at all.
2. What is long is written in parts, and completed only after the last one; an error before that ends the upload. What
   a writer that was killed has left is found by `unfinished`, and ended by `discard`: until then the store keeps it.
3. A reader that is cut off goes on where it was, in the same object.
4. What the store is too busy for is asked again some times, ever more slowly (`AWS_MAX_ATTEMPTS`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from rsm_spark.object_stores.complaints import ObjectStoreError, complaint_of
from rsm_spark.object_stores.unfinished import Unfinished

_PUT_BYTES_MAX = 96 << 20
_PART_BYTES = 16 << 20
_PARTS_MAX = 9_000
_TRIES = 8
_READ_TRIES = 5
_TIMEOUT_S = 60
_GONE = {"404", "NoSuchKey", "NotFound"}
_KEYS = {
    "aws_access_key_id": ("access_key_id",),
    "aws_secret_access_key": ("secret_access_key",),
    "aws_session_token": ("aws_token", "session_token", "token"),
    "region_name": ("aws_region", "region", "aws_default_region", "default_region"),
    "endpoint_url": ("aws_endpoint_url", "aws_endpoint_url_s3", "aws_endpoint", "endpoint"),
    "profile_name": ("aws_profile", "profile"),
    "virtual_hosted": ("aws_virtual_hosted_style_request", "virtual_hosted_style_request"),
}


class S3Store:
    """Objects below one address. All calls block.

    Args:
        uri: `s3://bucket/folder`; `?endpoint_override=HOST:PORT&scheme=http&region=…` may follow.
        options: As deltalake has them; what they do not say comes from the environment, or from the files of AWS.
        put_bytes_max: What is longer is written in parts.
        part_bytes: Length of a part.

    Raises:
        ObjectStoreError: The options contradict each other.

    """

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str] | None = None,
        *,
        put_bytes_max: int = _PUT_BYTES_MAX,
        part_bytes: int = _PART_BYTES,
    ) -> None:
        address, _, query = uri.partition("://")[2].partition("?")
        self._bucket, _, root = address.partition("/")
        self._root = root.strip("/")
        self._options = dict(options or {})
        self._put_bytes_max = put_bytes_max
        self._part_bytes = part_bytes
        with self._told():
            self._client: Any = _client(self._options, query)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all objects below a folder, by path below it.

        Raises:
            ObjectStoreError: They cannot be listed.

        """
        prefix = self._key(folder, is_folder=True)
        found: dict[str, int] = {}
        with self._told():
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
                found |= {one["Key"][len(prefix) :]: one["Size"] for one in page.get("Contents", ())}
        return {path: size for path, size in found.items() if path and not path.endswith("/")}

    @contextmanager
    def open(self, path: str) -> Iterator[S3Reader]:
        """Open an object for reading, as a stream.

        Raises:
            FileNotFoundError: It is not there.
            ObjectStoreError: It cannot be read.

        """
        with self._told():
            reader = S3Reader(self._client, self._bucket, self._key(path))
            try:
                yield reader
            finally:
                reader.close()

    def put(self, path: str, content: bytes) -> None:
        """Write a short object; it replaces one that is there.

        Raises:
            ObjectStoreError: It cannot be written: nothing of it is.

        """
        with self._told():
            self._client.put_object(Bucket=self._bucket, Key=self._key(path), Body=content)

    def copy_in(self, source: Path, path: str) -> None:
        """Write a local file as an object.

        Raises:
            ObjectStoreError: It cannot be written: nothing of it is.
            OSError: The file cannot be read: likewise.

        """
        size = source.stat().st_size
        with self._told(), source.open("rb") as file:
            if size <= self._put_bytes_max:
                self._client.put_object(Bucket=self._bucket, Key=self._key(path), Body=file)
            else:
                self._upload(file, self._key(path), size)

    def _upload(self, file: Any, key: str, size: int) -> None:
        where = {"Bucket": self._bucket, "Key": key}
        where["UploadId"] = self._client.create_multipart_upload(**where)["UploadId"]
        try:
            parts: list[dict[str, Any]] = []
            part_bytes = max(self._part_bytes, -(-size // _PARTS_MAX))
            while part := file.read(part_bytes):
                number = len(parts) + 1
                tag = self._client.upload_part(**where, PartNumber=number, Body=part)["ETag"]
                parts.append({"PartNumber": number, "ETag": tag})
            self._client.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
        except BaseException as error:
            # The reply to a completion may be lost: the next try then finds no upload, and the object whole.
            if _code_of(error) == "NoSuchUpload" and self._size_of(key) == size:
                return
            with contextlib.suppress(BotoCoreError, ClientError):  # It is found by `unfinished` later.
                self._client.abort_multipart_upload(**where)
            raise

    def _size_of(self, key: str) -> int:
        try:
            return int(self._client.head_object(Bucket=self._bucket, Key=key)["ContentLength"])
        except (BotoCoreError, ClientError):
            return -1

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error.

        Raises:
            ObjectStoreError: It cannot be removed.

        """
        with self._told():
            self._client.delete_object(Bucket=self._bucket, Key=self._key(path))

    def unfinished(self, folder: str) -> list[Unfinished]:
        """Return the uploads below a folder that were begun and not completed, by path below it.

        Raises:
            ObjectStoreError: They cannot be listed.

        """
        prefix = self._key(folder, is_folder=True)
        found: list[Unfinished] = []
        with self._told():
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
            for page in pages:
                found += [
                    Unfinished(one["Key"][len(prefix) :], one["UploadId"], one["Initiated"].timestamp())
                    for one in page.get("Uploads", ())
                ]
        return found

    def discard(self, upload: Unfinished) -> None:
        """End an upload, and have the store forget its parts; one that has ended is no error.

        Args:
            upload: Its path is below the address.

        Raises:
            ObjectStoreError: It cannot be ended.

        """
        with self._told():
            try:
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=self._key(upload.path), UploadId=upload.upload_id
                )
            except ClientError as error:
                if _code_of(error) != "NoSuchUpload":
                    raise

    def _key(self, path: str, *, is_folder: bool = False) -> str:
        key = "/".join(part for part in (self._root, path.strip("/")) if part)
        return f"{key}/" if is_folder and key else key

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            if _code_of(error) in _GONE:
                raise FileNotFoundError("it is not there") from None
            raise ObjectStoreError(complaint_of(error, self._options)) from None
        except (BotoCoreError, HTTPClientError, ValueError) as error:
            raise ObjectStoreError(complaint_of(error, self._options)) from None


class S3Reader:
    """One object, read from its beginning to its end.

    Args:
        client: Of boto3.
        bucket: Its name.
        key: Of the object.

    """

    def __init__(self, client: Any, bucket: str, key: str) -> None:
        self._client = client
        self._where = {"Bucket": bucket, "Key": key}
        found = client.get_object(**self._where)
        self._tag: str = found["ETag"]
        self._size: int = found["ContentLength"]
        self._body: Any = found["Body"]
        self._at = 0

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, at most so many; fewer only at the end."""
        wanted = self._size - self._at if count < 0 else min(count, self._size - self._at)
        found: list[bytes] = []
        tries = _READ_TRIES
        while wanted > 0:
            try:
                piece = self._body.read(wanted)
            except (BotoCoreError, HTTPClientError, OSError):
                piece = b""
            if not piece:  # Cut off; a body that ends too early says so by an end, or by an error.
                if tries <= 0:
                    raise ObjectStoreError(f"it broke off at byte {self._at:,} of {self._size:,}: try again")
                tries -= 1
                self._go_on()
                continue
            found.append(piece)
            self._at += len(piece)
            wanted -= len(piece)
        return b"".join(found)

    def _go_on(self) -> None:
        self.close()
        rest = self._client.get_object(**self._where, Range=f"bytes={self._at}-", IfMatch=self._tag)
        self._body = rest["Body"]

    def close(self) -> None:
        """Let go of the connection."""
        self._body.close()


def _client(options: Mapping[str, str], query: str) -> Any:
    lower = {key.lower(): value for key, value in options.items()}
    given = {
        name: value
        for name, keys in _KEYS.items()
        if (value := next((lower[key] for key in (name, *keys) if lower.get(key)), None)) is not None
    }
    asked = {key: values[-1] for key, values in parse_qs(query).items()}
    if asked.get("endpoint_override"):
        host = asked["endpoint_override"]
        given["endpoint_url"] = host if "://" in host else f"{asked.get('scheme', 'https')}://{host}"
    region = asked.get("region") or given.pop("region_name", None)
    session = Session(
        aws_access_key_id=given.get("aws_access_key_id"),
        aws_secret_access_key=given.get("aws_secret_access_key"),
        aws_session_token=given.get("aws_session_token"),
        profile_name=given.get("profile_name"),
        region_name=region or os.environ.get("AWS_REGION"),
    )
    is_virtual = given.get("virtual_hosted", "").lower() == "true"
    is_own = "endpoint_url" in given or any(os.environ.get(f"AWS_ENDPOINT_URL{end}") for end in ("", "_S3"))
    more: dict[str, Any] = {}
    if "AWS_MAX_ATTEMPTS" not in os.environ:
        more["retries"] = {"mode": "standard", "total_max_attempts": _TRIES}
    config = Config(
        connect_timeout=_TIMEOUT_S / 4,
        read_timeout=_TIMEOUT_S,
        s3={"addressing_style": "path" if is_own and not is_virtual else "auto"},
        user_agent_extra="rsm-spark",
        **more,
    )
    return session.client("s3", endpoint_url=given.get("endpoint_url"), config=config)


def _code_of(error: BaseException) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""
