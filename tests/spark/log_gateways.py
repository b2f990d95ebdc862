"""Gateways of logs as processes."""

from __future__ import annotations

import json
import subprocess
import sys


class LogGatewayProcess:
    """One `rsm log serve`."""

    def __init__(self, uri: str) -> None:
        command = [sys.executable, "-m", "rsm_spark", "log", "serve", "--metadata-uri", uri, "--http-port", "0"]
        self.process = subprocess.Popen([*command, "--session-timeout-ms", "2000", "--json"], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        try:
            self.url = json.loads(self.process.stdout.readline())["url"]
        except ValueError:
            self.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
