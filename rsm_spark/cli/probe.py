"""`rsm probe`: one page of a process's HTTP port, for health checks of containers, which have no curl."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from ledger.errors import UsageError
from ledger.exit_codes import ExitCode
from rsm_spark.cli.terminal import print_json, printable

_HTTPS = "https"
_ANSWER_BYTES_MAX = 64 * 1024
_SHOWN_LETTERS_MAX = 500
_DEFAULT_URL = "http://localhost:8700/readyz"


def probe(
    url: Annotated[
        str, typer.Argument(envvar="RSM_PROBE_URL", help="What is asked, such as /healthz or /readyz of a process.")
    ] = _DEFAULT_URL,
    ca: Annotated[
        Path | None,
        typer.Option("--ca", envvar="RSM_PROBE_CA", help="Authority (PEM) of the certificate. Default: the system's."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", envvar="RSM_PROBE_TOKEN_FILE", help="Its first word is sent as token."),
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(
            "--cert", envvar="RSM_PROBE_CERT", help="Certificate (PEM) to show where one is asked for, as bookies may."
        ),
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", envvar="RSM_PROBE_KEY", help="Its private key (PEM).")] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, metavar="S", help="How long to wait.")] = 4.0,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Ask a process whether it works: exit code 0 if it answers 200, 6 if it does not or is not reached.

    The answer's first line is printed. Redirects are not followed, and no proxy is used.

    Examples:
        rsm probe http://localhost:8000/readyz

        rsm probe https://localhost:8700/readyz --ca /etc/rsm-spark/ca.pem --token-file /etc/rsm-spark/token

    """
    headers = {} if token_file is None else {"Authorization": f"Bearer {_token_of(token_file)}"}
    try:
        status, words = _asked(url, lambda: _context(ca, cert, key), headers, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        status, words = 0, f"no answer: {str(error) or type(error).__name__}"
    if json:
        print_json({"url": url, "status": status, "said": words})
    else:
        typer.echo(printable(f"{status or url} {words}"))
    raise typer.Exit(0 if status == http.client.OK else ExitCode.UNAVAILABLE)


def _asked(
    url: str, context: Callable[[], ssl.SSLContext], headers: dict[str, str], timeout_s: float
) -> tuple[int, str]:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{url!r}: {error}") from error
    if parts.scheme not in ("http", _HTTPS) or not host or parts.username is not None:
        raise UsageError(f"{url!r}: expected http://HOST:PORT/PATH or https://HOST:PORT/PATH")
    connection: http.client.HTTPConnection
    if parts.scheme == _HTTPS:
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context())
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}", headers=headers)
        answer = connection.getresponse()
        lines = answer.read(_ANSWER_BYTES_MAX).decode(errors="replace").splitlines()
    except (http.client.InvalidURL, UnicodeError) as error:
        raise UsageError(f"{url!r}: {error}") from error
    finally:
        connection.close()
    return answer.status, (lines[0] if lines else "")[:_SHOWN_LETTERS_MAX]


def _context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        raise UsageError(f"--ca {ca}: no certificates can be read from it: {error}") from error
    if cert is not None:
        try:
            context.load_cert_chain(cert, key)
        except OSError as error:
            raise UsageError(f"--cert {cert}, --key {key}: they cannot be used: {error}") from error
    return context


def _token_of(path: Path) -> str:
    try:
        lines = path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {path}: {error}") from error
    if not lines:
        raise UsageError(f"--token-file {path}: it holds no token")
    return lines[0]
