"""Archives of the tests: good ones, and each kind of bad one."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import stat
import struct
import zipfile
from collections.abc import Iterable


def archive(files: dict[str, str | bytes]) -> bytes:
    return raw([(zipfile.ZipInfo(name), content) for name, content in files.items()])


def pool(files: dict[str, str | bytes], *entries: str, network: bool = False) -> bytes:
    """Make an archive that declares entries, rightly or not."""
    said = f"entries = {json.dumps(entries)}\n" + ("network = true\n" if network else "")
    return archive({"rsm-pool.toml": said, **files})


def raw(entries: Iterable[tuple[zipfile.ZipInfo, str | bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for info, content in entries:
            made.writestr(info, content, compress_type=zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def link(name: str, target: str) -> tuple[zipfile.ZipInfo, str]:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info, target


def renamed(files: dict[str, str | bytes], old: bytes, new: bytes) -> bytes:
    """Write a name into the bytes that `zipfile` would not write."""
    assert len(old) == len(new)
    made = archive(files)
    assert made.count(old) == 2
    return made.replace(old, new)


def understated(size: int, said: int) -> bytes:
    """Make an archive whose one file is larger than it says."""
    made = archive({"a.py": b"#" * size})
    packed = struct.pack("<I", size)
    assert made.count(packed) == 2
    return made.replace(packed, struct.pack("<I", said))


def wheel(files: dict[str, str], wrong: str = "", *, unlisted: str = "") -> bytes:
    rows = []
    for name, content in files.items():
        digest = hashlib.sha256(content.encode() if name != wrong else b"another").digest()
        rows.append(f"{name},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{len(content)}")
    if unlisted:
        rows.append(f"{unlisted},sha256=AAAA,1")
    record = "\n".join([*rows, "pool-1.dist-info/RECORD,,"])
    return archive({**files, "pool-1.dist-info/RECORD": record})
