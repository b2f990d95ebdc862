"""The dashboard's files and the headers that they are served with; who serves them, knows HTTP.

    for path, file in static_files().items(): ...     # "/" -> index.html, "/static/app.js", ...

Nothing is loaded from anywhere else, nothing inline is run, and no text becomes markup (`trusted-types 'none'`).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "static"
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
"""Headers of every file of the dashboard; `no-cache`: a browser asks each time, by ETag, whether it has the newest."""


class StaticFile(NamedTuple):
    """A file as it is sent."""

    content_type: str
    content: bytes
    etag: str


@functools.cache
def static_files() -> Mapping[str, StaticFile]:
    """Return the files by the path under which they are asked for; read once a process."""
    files: dict[str, StaticFile] = {}
    for path in sorted(_FOLDER.iterdir()):
        content_type = _CONTENT_TYPES.get(path.suffix)
        if content_type is not None:
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            files["/" if path.name == "index.html" else f"/static/{path.name}"] = StaticFile(
                content_type, content, etag
            )
    return MappingProxyType(files)
