"""`rsm probe`: what a health check is told, and by which exit code."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ledger.errors import UsageError
from ledger.exit_codes import ExitCode
from rsm_spark.cli.probe import probe
from rsm_spark.deploy.certificates import new_authority, sign

_TOKEN = "a-token-of-this-machine"


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, words = {
            "/healthz": (200, b"ok\nmore\n"),
            "/readyz": (503, b"not ready: \x1b[2J\n"),
            "/moved": (302, b"elsewhere\n"),
        }.get(self.path, (404, b"nothing\n"))
        if self.path == "/secret":
            status = 200 if self.headers.get("Authorization") == f"Bearer {_TOKEN}" else 401
        self.send_response(status)
        self.send_header("Content-Length", str(len(words)))
        self.send_header("Location", "/healthz")
        self.end_headers()
        self.wfile.write(words)

    def log_message(self, *_: object) -> None:
        pass


def _serve(server: HTTPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def port() -> Iterator[int]:
    yield from _serve(HTTPServer(("127.0.0.1", 0), _Pages))


def _probe(*words: str):
    app = typer.Typer()
    app.command()(probe)
    return CliRunner().invoke(app, list(words), env={"RSM_PROBE_CA": "", "RSM_PROBE_TOKEN_FILE": "", "NO_COLOR": "1"})


def test_the_exit_code_says_whether_it_works(port: int) -> None:
    said = _probe(f"http://127.0.0.1:{port}/healthz")
    assert (said.exit_code, said.output) == (0, "200 ok\n")
    said = _probe(f"http://127.0.0.1:{port}/readyz")
    assert (said.exit_code, said.output) == (ExitCode.UNAVAILABLE, "503 not ready: \\x1b[2J\n")
    said = _probe(f"http://127.0.0.1:{port}/moved", "--json")
    assert said.exit_code == ExitCode.UNAVAILABLE
    assert '"status":302' in said.output


def test_where_nobody_listens_it_says_so(port: int) -> None:
    said = _probe("http://127.0.0.1:1/healthz")
    assert said.exit_code == ExitCode.UNAVAILABLE
    assert "no answer: " in said.output
    said = _probe(f"https://127.0.0.1:{port}/healthz")
    assert said.exit_code == ExitCode.UNAVAILABLE
    assert "no answer: " in said.output


def test_the_token_of_a_file_is_sent(port: int, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{_TOKEN}\n")
    assert _probe(f"http://127.0.0.1:{port}/secret").exit_code == ExitCode.UNAVAILABLE
    assert _probe(f"http://127.0.0.1:{port}/secret", "--token-file", str(tmp_path / "token")).exit_code == 0
    for content in ("", "\n"):
        (tmp_path / "token").write_text(content)
        refused = _probe(f"http://127.0.0.1:{port}/secret", "--token-file", str(tmp_path / "token"))
        assert isinstance(refused.exception, UsageError)


@pytest.mark.parametrize(
    "url", ["localhost:8700", "ftp://a/b", "http://a:b/", "http://u:p@a/", "http://", "http://a/b c", "http://a/ü"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    assert isinstance(_probe(url).exception, UsageError)


def test_a_certificate_of_another_authority_is_no_answer(tmp_path: Path) -> None:
    now = datetime.fromtimestamp(time.time() - 3600, UTC)
    ours, others = new_authority(now), new_authority(now)
    made = sign(ours, "a", ["127.0.0.1"], now, 2)
    for name, content in (("ca", ours.cert), ("other", others.cert), ("cert", made.cert), ("key", made.key)):
        (tmp_path / f"{name}.pem").write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server = HTTPServer(("127.0.0.1", 0), _Pages)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    for port in _serve(server):
        said = _probe(f"https://127.0.0.1:{port}/healthz", "--ca", str(tmp_path / "ca.pem"))
        assert (said.exit_code, said.output) == (0, "200 ok\n")
        said = _probe(f"https://127.0.0.1:{port}/healthz", "--ca", str(tmp_path / "other.pem"))
        assert said.exit_code == ExitCode.UNAVAILABLE
        assert "CERTIFICATE_VERIFY_FAILED" in said.output
        assert isinstance(_probe(f"https://127.0.0.1:{port}/", "--ca", str(tmp_path / "key.pem")).exception, UsageError)


def test_a_certificate_is_shown_where_one_is_asked_for(tmp_path: Path) -> None:
    now = datetime.fromtimestamp(time.time() - 3600, UTC)
    authority = new_authority(now)
    made = sign(authority, "a", ["127.0.0.1"], now, 2)
    for name, content in (("ca", authority.cert), ("cert", made.cert), ("key", made.key)):
        (tmp_path / f"{name}.pem").write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    server = HTTPServer(("127.0.0.1", 0), _Pages)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    for port in _serve(server):
        words = (f"https://127.0.0.1:{port}/healthz", "--ca", str(tmp_path / "ca.pem"))
        own = ("--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem"))
        assert _probe(*words).exit_code == ExitCode.UNAVAILABLE
        assert _probe(*words, *own).exit_code == 0
        assert isinstance(_probe(*words, "--cert", str(tmp_path / "ca.pem")).exception, UsageError)
