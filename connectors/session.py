"""One place that starts Spark sessions: what this package needs set, and nothing that the user has set already.

What that is stands in `connectors.spark_settings`. Besides: tasks and the look-up of sources run this interpreter; a
package in the working directory that would hide ours is kept out of their way; and a program's own handler of SIGINT
stays (Spark puts its own in its place).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from connectors.errors import SessionSetupError
from connectors.gateway import spawned_gateway
from connectors.spark_settings import DAEMON_MODULE, When, chosen_settings

__all__ = ["cached_jars", "jar_folder", "session_settings", "spark_session"]

_LOGGER = logging.getLogger(__name__)
_DELTA_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_JARS = ("delta-spark_4.2_2.13-", "delta-storage-")
_PYTHON_VARIABLE = "PYSPARK_PYTHON"
_PYTHON_SETTING = "spark.pyspark.python"
_REMOTE_VARIABLE = "SPARK_REMOTE"
_REMOTE_SETTING = "spark.remote"
_SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"
_SECRET = re.compile("token|secret|password", re.IGNORECASE)
_DISTRIBUTION = "rsm-spark"
_OWN_PACKAGES = ("connectors", "rsm_spark", "ledger")


def jar_folder() -> Path:
    """Return where the set-up keeps Delta's JARs: `$RSM_CACHE_DIR/jars`, else under the user's cache folder."""
    cache = os.environ.get("RSM_CACHE_DIR")
    if cache:
        return Path(cache) / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rsm-spark" / "jars"


def cached_jars() -> list[Path]:
    """Return Delta's JARs, sorted.

    Raises:
        SessionSetupError: They are not in the cache.

    """
    folder = jar_folder()
    jars = sorted(folder.glob("*.jar"))
    missing = [start for start in _DELTA_JARS if not any(jar.name.startswith(start) for jar in jars)]
    if missing:
        raise SessionSetupError(
            f"Delta's JARs are not in {folder} (missing: {', '.join(f'{start}*.jar' for start in missing)}): run "
            "`make setup`, or point RSM_CACHE_DIR at a cache that has them; sessions without Delta need delta=False"
        )
    return jars


def session_settings(*, delta: bool, master: str, checkpoint: str | None) -> dict[str, str]:
    """Return what this package sets, before what the user has set is taken out.

    Args:
        delta: Whether Spark itself reads or writes Delta tables.
        master: The session's master.
        checkpoint: Checkpoint location of the stream that it will run, if known.

    Raises:
        SessionSetupError: Delta's JARs are needed and not there.

    """
    is_local = master.startswith("local")
    when: set[When] = set()
    if is_local:
        when |= {When.LOCAL, When.INSTALLED}
        if checkpoint is not None and (checkpoint.startswith("file:") or "://" not in checkpoint):
            when.add(When.LOCAL_CHECKPOINT)
    jars = ""
    if delta:
        when |= {When.DELTA, When.LOCAL_DELTA} if is_local else {When.DELTA}
        jars = ",".join(str(jar) for jar in cached_jars())
    return chosen_settings(frozenset(when), core_count=os.cpu_count() or 1, jars=jars)


def spark_session(
    app: str,
    *,
    delta: bool = True,
    local: str | None = None,
    checkpoint: str | None = None,
    conf: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with what this package needs; an active one is returned as it is.

    What spark-submit, spark-defaults.conf or `conf` say wins; what is set here is logged. Where SPARK_REMOTE or `conf`
    (spark.remote) names a server of Spark Connect, the session is one of that server: only `conf` is added to its own
    settings.

    Args:
        app: Name of the application.
        delta: Whether Spark itself reads or writes Delta tables.
        local: Master to use where the user names none, such as "local[2]"; None = all cores of this machine.
        checkpoint: Checkpoint location of the stream that the session will run, if known.
        conf: The caller's own settings.
        defaults: Settings for what nobody else has set.

    Raises:
        SessionSetupError: Delta's JARs are needed and not there.

    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    remote = (conf or {}).get(_REMOTE_SETTING) or os.environ.get(_REMOTE_VARIABLE, "")
    if remote.startswith("sc://"):
        return _connected(app, remote, conf or {})
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    users = {**_users_settings(is_submitted=is_submitted), **(conf or {})}
    _set_python(users)
    if not is_submitted:
        _keep_path_safe(Path.cwd())
    master = users.get("spark.master") or os.environ.get("MASTER") or local or "local[*]"
    settings = session_settings(delta=delta, master=master, checkpoint=checkpoint) | dict(defaults or {})
    if not _tasks_have_this_package(users, Path.cwd()):
        settings.pop(DAEMON_MODULE, None)
    settings |= {"spark.master": master, "spark.app.name": app}
    builder = SparkSession.builder
    for key, value in (conf or {}).items():
        builder = builder.config(key, value)
    for key, value in settings.items():
        if key not in users:
            _LOGGER.info("spark setting %s = %s", key, "…" if _SECRET.search(key) else value)
            builder = builder.config(key, value)
    with spawned_gateway(), _interrupt_kept():
        spark = builder.getOrCreate()
    if delta and is_submitted:
        _check_delta(spark)
    return spark


def _connected(app: str, remote: str, conf: Mapping[str, str]) -> SparkSession:
    """Return a session of a server of Spark Connect; nothing is started here."""
    builder = SparkSession.builder.appName(app).remote(remote)
    for key, value in conf.items():
        if key != _REMOTE_SETTING:
            builder = builder.config(key, value)
    return builder.getOrCreate()


def _set_python(users: Mapping[str, str]) -> None:
    """Have tasks and the look-up of sources run this interpreter: Spark's default is whatever `python3` is."""
    if _PYTHON_VARIABLE not in os.environ and _PYTHON_SETTING not in users:
        os.environ[_PYTHON_VARIABLE] = sys.executable
        _LOGGER.info("%s = %s", _PYTHON_VARIABLE, sys.executable)


def _keep_path_safe(folder: Path) -> None:
    """Have Spark's Python leave out the working directory, where it holds a package that would hide one of ours.

    Its processes are started with `python -m`, which puts that directory first; ours come from elsewhere, or this
    module would not be here.
    """
    hiding = _hiding(folder)
    if hiding and _SAFE_PATH_VARIABLE not in os.environ:
        os.environ[_SAFE_PATH_VARIABLE] = "1"
        _LOGGER.warning(
            "%s=1: tasks import nothing from %s, whose package %s would hide that of rsm-spark",
            _SAFE_PATH_VARIABLE,
            folder,
            hiding[0],
        )


def _hiding(folder: Path) -> list[str]:
    """Return which packages in a folder would hide ours, if Python looked there first."""
    home = Path(__file__).resolve().parents[1]
    return [name for name in _OWN_PACKAGES if folder.resolve() != home and (folder / name / "__init__.py").exists()]


def _tasks_have_this_package(users: Mapping[str, str], folder: Path) -> bool:
    """Return whether Python processes that are started on this machine, in this folder, are sure to find this package.

    They are of this interpreter, for which it is installed, and nothing hides it.
    """
    python = users.get(_PYTHON_SETTING) or os.environ.get(_PYTHON_VARIABLE) or sys.executable
    found = shutil.which(python)
    if found is None or Path(found).absolute() != Path(sys.executable).absolute():
        return False
    if _hiding(folder) and not os.environ.get(_SAFE_PATH_VARIABLE):
        return False
    try:
        return bool(version(_DISTRIBUTION))
    except PackageNotFoundError:
        return False


@contextlib.contextmanager
def _interrupt_kept() -> Iterator[None]:
    """Leave SIGINT to the program if it handles it; Spark's own handler breaks off what may be ending in order."""
    handler = signal.getsignal(signal.SIGINT)
    is_own = callable(handler) and handler is not signal.default_int_handler
    yield
    if is_own and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _users_settings(*, is_submitted: bool) -> dict[str, str]:
    """Return what the user has set outside this program."""
    if is_submitted:
        SparkContext._ensure_initialized()  # the JVM that spark-submit started knows
        return dict(SparkConf().getAll())
    # No JVM yet, and it needs the JARs when it starts: so its sources are read here.
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")  # noqa: PTH118
    found = _defaults(Path(folder) / "spark-defaults.conf")
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for option, value in itertools.pairwise(words):
        if option in {"--conf", "-c"} and "=" in value:
            key, _, text = value.partition("=")
            found[key] = text
        elif option == "--master":
            found["spark.master"] = value
        elif option == "--jars":
            found["spark.jars"] = value
    return found


def _defaults(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        text = line.strip()
        if text and not text.startswith("#"):
            key, *rest = (
                text.replace("=", " ", 1).split(maxsplit=1) if "=" in text.split()[0] else text.split(maxsplit=1)
            )
            found[key] = rest[0].strip() if rest else ""
    return found


def _check_delta(spark: SparkSession) -> None:
    """Tell a user of spark-submit that the driver was started without Delta: it is too late to add it here."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "a classic session has a JVM"
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(_DELTA_CLASS, False, loader)  # noqa: FBT003 - a Java signature
    except Exception as error:
        jars = ",".join(str(jar) for jar in cached_jars())
        raise SessionSetupError(
            f"spark-submit started the driver without Delta's JARs: submit again with --jars {jars}"
        ) from error
