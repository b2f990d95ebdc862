"""Files of a page for people, and the headers that they are served with; who serves them, knows HTTP.

    for path, file in web_files(_FOLDER).items(): ...     # "/" -> index.html, "/static/app.js", ...

A page has a folder of its own files, with `index.html`, beside the parts that all pages share. Nothing is loaded from
anywhere else, nothing inline is run, and no text becomes markup (`trusted-types 'none'`).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ledger.http.replies import HttpReply

_SHARED = Path(__file__).parent / "static"
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
STATIC_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }
)
"""Headers of every file of a page; `no-cache`: a browser asks each time, by ETag, whether it has the newest."""
_HEADERS = tuple((name.lower().encode("ascii"), value.encode("ascii")) for name, value in STATIC_HEADERS.items())


class StaticFile(NamedTuple):
    """A file as it is sent."""

    content_type: str
    content: bytes
    etag: str

    def reply(self, known: bytes) -> HttpReply:
        """Return the file as an answer, or that the browser has it.

        Args:
            known: Header If-None-Match of the request; b"" = there is none.

        """
        etag, kind = self.etag.encode("ascii"), self.content_type.encode("ascii")
        headers = (*_HEADERS, (b"etag", etag))
        if etag in {one.strip().removeprefix(b"W/") for one in known.split(b",")}:
            return HttpReply(304, b"", headers, kind)
        return HttpReply(200, self.content, headers, kind)


@functools.cache
def web_files(folder: Path) -> Mapping[str, StaticFile]:
    """Return the files of a page by the path under which they are asked for; read once a process.

    Args:
        folder: Its own files; one of the name of a shared file takes the place of that.

    """
    files: dict[str, StaticFile] = {}
    for path in [*sorted(_SHARED.iterdir()), *sorted(folder.iterdir())]:
        content_type = _CONTENT_TYPES.get(path.suffix)
        if content_type is not None:
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            name = "/" if path.name == "index.html" else f"/static/{path.name}"
            files[name] = StaticFile(content_type, content, etag)
    return MappingProxyType(files)
