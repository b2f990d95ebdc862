"""S3 for tests: moto in a process of its own, and what stands between a client and it and does harm."""

from __future__ import annotations

import itertools
import json
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import boto3

KEY_ID = "AKIAHUSHHUSHHUSH1"
SECRET = "hush/hush+Secret+Key0"
TOKEN = "hushTokenOfTheSession=="
SECRETS = (KEY_ID, SECRET, TOKEN)
_READY_S = 60
_buckets = itertools.count()


class S3Server:
    """One S3 server, shared by the tests of a session; each test takes a bucket of its own.

    Attributes:
        url: Of its endpoint.

    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "moto_process.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            assert self._process.stdout is not None
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                assert selector.select(_READY_S), "moto does not start"
            self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def bucket(self) -> Bucket:
        """Make a bucket."""
        name = f"bucket-{os.getpid()}-{next(_buckets)}"
        client = boto3.client("s3", endpoint_url=self.url, **_login())
        client.create_bucket(Bucket=name)
        return Bucket(name, self.url, client)


class Bucket:
    """A bucket, as tests look at it behind the back of what is tested."""

    def __init__(self, name: str, url: str, client: Any) -> None:
        self.name = name
        self.url = url
        self.uri = f"s3://{name}"
        self._client = client

    def objects(self, prefix: str = "") -> dict[str, int]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return {one["Key"]: one["Size"] for page in pages for one in page.get("Contents", ())}

    def uploads(self) -> list[str]:
        """Return the keys of uploads that were begun and not completed."""
        return [one["Key"] for one in self._client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())]

    def get(self, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def put(self, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=key, Body=content)

    def begin_upload(self, key: str) -> None:
        """Leave an upload as a killed writer does."""
        upload = self._client.create_multipart_upload(Bucket=self.name, Key=key)["UploadId"]
        self._client.upload_part(Bucket=self.name, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * 100)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self.name, Key=key)

    def all_bytes(self) -> bytes:
        """Return all keys and all contents, for who looks for secrets."""
        return b"\n".join(key.encode() + b"\n" + self.get(key) for key in self.objects())

    def options(self, url: str | None = None) -> dict[str, str]:
        """Return options with which it is reached, by way of another address where one is given."""
        return {
            "aws_access_key_id": KEY_ID,
            "aws_secret_access_key": SECRET,
            "aws_session_token": TOKEN,
            "aws_region": "us-east-1",
            "aws_endpoint_url": url or self.url,
            "aws_allow_http": "true",
        }

    def options_file(self, folder: Path, url: str | None = None) -> Path:
        """Write the options into a file that its owner alone may read."""
        path = folder / "store.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(self.options(url)))
        return path

    def environment(self, url: str | None = None) -> dict[str, str]:
        """Return an environment with which it is reached."""
        own = {key.upper(): value for key, value in self.options(url).items()}
        return {**os.environ, **own, "AWS_EC2_METADATA_DISABLED": "true"}


def _login() -> dict[str, str]:
    return {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}


class Asked(NamedTuple):
    """A request that came to the go-between."""

    method: str
    path: str


class Harm(NamedTuple):
    """What is done to a request instead of passing it on.

    Attributes:
        status: Answered with; 0 = it is passed on.
        code: Of the store's error.
        message: Of the store's error.
        cut_at: Bytes of the answer that come through before the connection breaks; -1 = all.
        is_lost: It is passed on, and the connection breaks before any answer.

    """

    status: int = 0
    code: str = ""
    message: str = ""
    cut_at: int = -1
    is_lost: bool = False


SLOW_DOWN = Harm(503, "SlowDown", "Please reduce your request rate.")
DENIED = Harm(403, "AccessDenied", "Access Denied")
EXPIRED = Harm(400, "ExpiredToken", f"The provided token {TOKEN} has expired.")
WRONG_KEY = Harm(403, "InvalidAccessKeyId", f"The AWS Access Key Id {KEY_ID} does not exist in our records.")

Rule = Callable[[Asked], Harm | None]


class HarmfulProxy:
    """Stands between a client and a server and does what its rule says.

    Attributes:
        url: Of it.
        rule: Asked for each request; None = it is passed on.
        asked: All requests so far.

    """

    def __init__(self, url: str) -> None:
        self.rule: Rule = lambda _asked: None
        self.asked: list[Asked] = []
        host, _, port = url.removeprefix("http://").partition(":")
        handler = type("Handler", (_Handler,), {"proxy": self, "host": host, "port": int(port)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    proxy: ClassVar[HarmfulProxy]
    host: ClassVar[str]
    port: ClassVar[int]

    def log_message(self, *_words: object) -> None:
        """Say nothing."""

    def _pass(self) -> None:
        asked = Asked(self.command, self.path)
        self.proxy.asked.append(asked)
        body = self._body()
        harm = self.proxy.rule(asked) or Harm()
        if harm.status:
            self._answer(harm.status, _error(harm), {"Content-Type": "application/xml"})
            return
        forward = HTTPConnection(self.host, self.port, timeout=60)
        try:
            headers = _kept(self.headers.items())
            forward.request(self.command, self.path, body or None, {**headers, "Content-Length": str(len(body))})
            answer = forward.getresponse()
            content = answer.read()
        finally:
            forward.close()
        if harm.is_lost:
            self.close_connection = True
            return
        length = int(answer.getheader("Content-Length") or len(content))
        self._answer(answer.status, content, _kept(answer.getheaders()), harm.cut_at, length)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return found

    def _answer(
        self, status: int, content: bytes, headers: dict[str, str], cut_at: int = -1, length: int | None = None
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content if cut_at < 0 else content[:cut_at])
        self.close_connection = self.close_connection or cut_at >= 0

    def handle_expect_100(self) -> bool:
        self.send_response_only(100)
        self.end_headers()
        return True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass


def _kept(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Leave out what belongs to one connection."""
    own = {"transfer-encoding", "connection", "expect", "content-length"}
    return {name: value for name, value in headers if name.lower() not in own}


def _error(harm: Harm) -> bytes:
    signed = f"<StringToSign>AWS4-HMAC-SHA256 {TOKEN}</StringToSign><AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId>"
    return f"<Error><Code>{harm.code}</Code><Message>{harm.message}</Message>{signed}</Error>".encode()


def times(count: int, harm: Harm, matches: Callable[[Asked], bool] = lambda _asked: True) -> Rule:
    """Return a rule: harm to the first requests that match."""
    left = [count]

    def rule(asked: Asked) -> Harm | None:
        if left[0] <= 0 or not matches(asked):
            return None
        left[0] -= 1
        return harm

    return rule


@contextmanager
def harmful(url: str) -> Iterator[HarmfulProxy]:
    """Yield a go-between that ends with the block."""
    proxy = HarmfulProxy(url)
    try:
        yield proxy
    finally:
        proxy.stop()
