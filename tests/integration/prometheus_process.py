"""Prometheus as a process that watches ours every second, by the product's rules with short times."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from ledger.dev.ports import HOST, choose_port
from rsm_spark.monitoring.command import FOLDER

__all__ = ["PROMETHEUS", "PROMTOOL", "RULES", "PrometheusProcess", "until"]

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
RULES = FOLDER / "prometheus" / "rsm-rules.yml"
_LIMIT_S = 240
_SHORT = {
    "[1m]": "[5s]", "[6h]": "[20s]", "offset 15m": "offset 2m",
    "> 7200": "> 120", "> 3600": "> 60", "> 600": "> 10",
}  # fmt: skip
"""What the test cannot wait for: an age of an hour is one of a minute. Ranges that only look back further than it runs
stay as they are."""


class PrometheusProcess:
    """One process.

    Args:
        folder: Of its files.
        ports: What it asks, by job without `rsm-`.
        tls: Jobs that are asked over TLS.
        tokens: With which jobs are asked.

    """

    def __init__(
        self,
        folder: Path,
        ports: Mapping[str, int],
        *,
        tls: Collection[str] = (),
        tokens: Mapping[str, str] | None = None,
    ) -> None:
        assert PROMETHEUS is not None
        self._port = choose_port(taken=list(ports.values()))
        self.fired: set[str] = set()
        scrapes: list[dict[str, Any]] = []
        for name, port in ports.items():
            scrapes.append({"job_name": f"rsm-{name}", "static_configs": [{"targets": [f"{HOST}:{port}"]}]})
            if name in tls:
                scrapes[-1] |= {"scheme": "https", "tls_config": {"insecure_skip_verify": True}}
            if name in (tokens or {}):
                scrapes[-1]["authorization"] = {"credentials": (tokens or {})[name]}
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": scrapes}
        (folder / "rules.yml").write_text(_short_rules())
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with (folder / "prometheus.log").open("wb") as said:
            self._process = subprocess.Popen(
                [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address={HOST}:{self._port}"], stdout=said, stderr=said,
            )  # fmt: skip

    def rows(self, expression: str) -> list[Any]:
        """Return what an expression gives now."""
        return self._ask("query", query=expression)["result"]

    def alerts(self) -> set[str]:
        """Return the names of the alerts that fire."""
        firing = {one["labels"]["alertname"] for one in self._ask("alerts")["alerts"] if one["state"] == "firing"}
        self.fired |= firing
        return firing

    def until_fire(self, *names: str, why: str) -> None:
        """Wait until each of these alerts has fired since this call."""
        left = set(names)

        def have_fired() -> bool:
            left.difference_update(self.alerts())
            return not left

        until(have_fired, lambda: f"{why}: no {', '.join(sorted(left))}; now {sorted(self.alerts())}")

    def until_quiet(self, *names: str) -> None:
        """Wait until none of these fires."""
        until(lambda: not self.alerts() & set(names), lambda: f"still {sorted(self.alerts() & set(names))}")

    def _ask(self, path: str, **values: str) -> Any:
        url = f"http://{HOST}:{self._port}/api/v1/{path}?{urllib.parse.urlencode(values)}"
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own
            return json.load(answer)["data"]

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def until(condition: Callable[[], Any], what: str | Callable[[], str]) -> None:
    """Wait until something holds; what does not listen yet does not hold."""
    deadline = time.monotonic() + _LIMIT_S
    last: object = None
    while True:
        try:
            if condition():
                return
        except OSError as error:
            last = error
        if time.monotonic() >= deadline:
            raise AssertionError(f"after {_LIMIT_S} s: {what if isinstance(what, str) else what()} ({last})")
        time.sleep(0.5)


def _short_rules() -> str:
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "1s"
            for long, short in _SHORT.items():
                rule["expr"] = re.sub(re.escape(long), short, rule["expr"])
    return yaml.safe_dump(rules)
