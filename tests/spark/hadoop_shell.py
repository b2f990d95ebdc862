"""`hdfs dfs`, run from the JARs that pyspark ships."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

_JARS = Path(pyspark.__file__).parent / "jars"
_TIMEOUT_S = 300


class HadoopShell:
    """Runs `hdfs dfs` on one file system.

    Args:
        folder: For its configuration.
        uri: Of the file system.
        settings: Of Hadoop.
        java: Words for Java.

    """

    def __init__(self, folder: Path, uri: str, settings: Mapping[str, str] | None = None, *java: str) -> None:
        given = {"fs.defaultFS": uri, **(settings or {})}
        text = "".join(f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in given.items())
        folder.mkdir()
        (folder / "core-site.xml").write_text(f"<configuration>{text}</configuration>")
        self._command = ["java", *java, "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{_JARS}/*"]
        self._command.append("org.apache.hadoop.fs.FsShell")

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*self._command, *words], capture_output=True, timeout=_TIMEOUT_S, check=False)

    def done(self, *words: str) -> bytes:
        found = self.run(*words)
        assert found.returncode == 0, found.stderr.decode()[-3000:]
        return found.stdout
