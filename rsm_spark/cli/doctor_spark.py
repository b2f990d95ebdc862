"""Checks of Spark's side of an installation, as Spark itself will see it.

Spark finds the sources in a process of its own, run by the interpreter that PYSPARK_PYTHON names: so that one is asked;
without it, the one that `connectors.session.spark_session` would name: this one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from rsm_spark.cli.doctor import Finding, Grade

_VARIABLE = "PYSPARK_PYTHON"
_SOURCES = ("ledger", "ledger_state")
_ANSWER_S = 60.0
# Run as Spark runs its look-up: the working directory comes first. Spark imports every such module; so is done here.
_ASK = """
import importlib, json, pkgutil, sys
found, jars = {}, {}
for module in pkgutil.iter_modules():
    if module.name.startswith("pyspark_"):
        try:
            source = importlib.import_module(module.name).DefaultSource
            source({"log": "any"}).schema()
            found[source.name()] = ""
        except Exception as error:
            found[module.name.removeprefix("pyspark_")] = f"{type(error).__name__}: {error}"
try:
    from connectors.session import cached_jars
    jars = {"files": [str(jar) for jar in cached_jars()]}
except Exception as error:
    jars = {"error": str(error)}
print(json.dumps({"sources": found, "jars": jars}))
"""


def look_at_spark(environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Look at what Spark needs to find the sources and to write Delta tables; nothing, if Spark is not installed."""
    if find_spec("pyspark") is None:
        return []
    python = environment.get(_VARIABLE) or sys.executable
    findings = [_interpreter(environment.get(_VARIABLE))]
    try:
        answer = _asked(python, environment)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        seen = f"{python} cannot be asked: {_last_line(error)}"
        return [*findings, Finding("Spark's sources", Grade.BAD, seen, _advice())]
    findings += [_source(name, answer["sources"], python) for name in _SOURCES]
    others = sorted(set(answer["sources"]) - set(_SOURCES))
    findings += [
        Finding(f"source {name}", Grade.BAD, answer["sources"][name], "no Python source is found by name with it")
        for name in others
        if answer["sources"][name]
    ]
    return [*findings, _jars(answer["jars"])]


def _interpreter(named: str | None) -> Finding:
    if not named:
        seen = f"not set: a session that spark_session did not start takes {shutil.which('python3') or 'python3'}"
        return Finding(_VARIABLE, Grade.NOTE, seen, _advice())
    return Finding(_VARIABLE, Grade.GOOD, named)


def _advice() -> str:
    return f"export {_VARIABLE}={sys.executable}"


def _asked(python: str, environment: Mapping[str, str]) -> dict[str, Any]:
    command: Sequence[str] = (python, "-c", _ASK)
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=_ANSWER_S, check=False
    )
    if done.returncode != 0:
        raise ValueError(done.stderr.strip() or f"exit code {done.returncode}")
    answer = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(answer, dict), "it is our own script"
    return answer


def _last_line(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {_ANSWER_S:g} s"
    return (str(error).splitlines() or [type(error).__name__])[-1]


def _source(name: str, found: Mapping[str, str], python: str) -> Finding:
    what = f"source {name}"
    if name not in found:
        advice = f"install rsm-spark[spark] for it, or {_advice()}; with --py-files: connectors.register"
        return Finding(what, Grade.BAD, f"{python} does not find it by name", advice)
    why = found[name]
    if why:
        return Finding(what, Grade.BAD, why.partition(": ")[2] or why, f"see there, or {_advice()}")
    return Finding(what, Grade.GOOD, f"found by name by {python}")


def _jars(jars: Mapping[str, Any]) -> Finding:
    what = "Delta's JARs"
    if "files" in jars:
        return Finding(what, Grade.GOOD, ",".join(jars["files"]))
    return Finding(what, Grade.NOTE, str(jars["error"]), "needed where Spark itself reads or writes Delta tables only")
