"""Finds a Java that is new enough for ZooKeeper and Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from ledger.zookeeper_server.errors import JavaError

_JAVA_MAJOR_MIN = 17


def find_java() -> str:
    """Return the path of a Java that is new enough: of `JAVA_HOME`, else of `PATH`.

    Raises:
        JavaError: There is none.

    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"at JAVA_HOME={home}" if home else "on the PATH"
        raise JavaError(f"no java {where}: install Java {_JAVA_MAJOR_MIN} (on Debian: openjdk-17-jre-headless)")
    version = _java_version(java)
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    major = numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else (numbers or [0])[0]
    if major < _JAVA_MAJOR_MIN:
        raise JavaError(
            f"{java} is Java {version or 'of unknown version'}: install Java {_JAVA_MAJOR_MIN} or newer "
            "and point JAVA_HOME at it",
        )
    return java


def _java_version(java: str) -> str:
    # The file beside it saves the start of a virtual machine.
    try:
        release = (Path(java).resolve().parent.parent / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        release = ""
    if found := re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE):
        return found.group(1)
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', result.stderr)
    return found.group(1) if found else ""
