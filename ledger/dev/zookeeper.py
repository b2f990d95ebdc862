"""ZooKeeper as a process, from the JARs that pyspark ships.

A single server is enough for development: what is tested against it is the protocol, the sessions and the
durability of one server (it syncs its log before it answers, as in production).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

from ledger.dev.errors import JavaError
from ledger.dev.ports import HOST

_JAVA_MAJOR_MIN = 17
# What the server loads, no more: all of pyspark's JARs cost 30 MiB of memory and half a second of start.
_JAR_PATTERNS = (
    "zookeeper-3*.jar",
    "zookeeper-jute-*.jar",
    "netty-buffer-*.jar",
    "netty-codec-base-*.jar",
    "netty-common-*.jar",
    "netty-handler-4*.jar",
    "netty-resolver-4*.jar",
    "netty-transport-4*.jar",
    "netty-transport-classes-epoll-*.jar",
    "netty-transport-native-unix-common-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "commons-cli-*.jar",
    "audience-annotations-*.jar",
)
_JVM_OPTIONS = ("-Xms32m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_CONFIG = """\
tickTime=500
dataDir={data_dir}
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
maxClientCnxns=1000
4lw.commands.whitelist=srvr
standaloneEnabled=true
extendedTypesEnabled=true
preAllocSize=4096
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
_LOG_CONFIG = """\
status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1} %m%n
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
"""


def find_java() -> str:
    """Return the path of a Java that is new enough: of `JAVA_HOME`, else of `PATH`.

    Raises:
        JavaError: There is none.

    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"at JAVA_HOME={home}" if home else "on the PATH"
        raise JavaError(f"no java {where}: install Java {_JAVA_MAJOR_MIN}, or name a ZooKeeper by --zookeeper")
    version = _java_version(java)
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    major = numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else (numbers or [0])[0]
    if major < _JAVA_MAJOR_MIN:
        raise JavaError(
            f"{java} is Java {version or 'of unknown version'}: install Java {_JAVA_MAJOR_MIN} or newer "
            "and point JAVA_HOME at it, or name a ZooKeeper by --zookeeper",
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


def find_jars() -> list[str]:
    """Return the JARs of ZooKeeper and of what it loads, from the installed pyspark (which is not imported).

    Raises:
        JavaError: pyspark is not installed, or lacks them.

    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JavaError(
            "the development ZooKeeper comes with pyspark: pip install 'rsm-spark[spark]', "
            "or name a ZooKeeper that runs by --zookeeper HOST:PORT",
        )
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    jars: list[str] = []
    for pattern in _JAR_PATTERNS:
        found = sorted(str(path) for path in folder.glob(pattern))
        if not found:
            raise JavaError(f"{folder} holds no {pattern}: this pyspark is not 4.2; use --zookeeper HOST:PORT")
        jars += found
    return jars


def write_files(folder: Path, *, port: int) -> None:
    """Write the server's configuration; the data beside it are left as they are."""
    data_dir = folder / "data"
    data_dir.mkdir(parents=True, exist_ok=True)
    config = _CONFIG.format(data_dir=data_dir, port=port, host=HOST)
    (folder / "zoo.cfg").write_text(config, encoding="utf-8")
    (folder / "log4j2.properties").write_text(_LOG_CONFIG, encoding="utf-8")


def zookeeper_command(folder: Path) -> list[str]:
    """Return the command that runs the server whose files `write_files` wrote to this folder."""
    return [
        find_java(),
        *_JVM_OPTIONS,
        "-Dzookeeper.jmx.log4j.disable=true",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        ":".join(find_jars()),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(folder / "zoo.cfg"),
    ]


def answers(host: str, port: int, *, timeout_s: float = 1.0) -> bool:
    """Tell whether a ZooKeeper serves sessions at this address.

    `ruok` would not do: it says `imok` as soon as the port is open, a moment before sessions are accepted.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(b"srvr")
            reply = b""
            while chunk := connection.recv(4096):
                reply += chunk
    except OSError:
        return False
    return b"Mode: " in reply or b"not in the whitelist" in reply
