"""Hosts of their own on one machine: network namespaces around a router that can cut one direction between two.

Each host has an address in a network of its own; what it sends to another goes through the router's namespace, where
a rule drops silently what comes from the one and is for the other. The way back stays open.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from ledger.zookeeper_server.server import write_files, zookeeper_command
from ledger.zookeeper_server.settings import ZooKeeperSettings

__all__ = ["Namespaces", "why_not"]

_BOOKIE_PORT = 3181
_ZOOKEEPER_PORT = 2181
_START_S_MAX = 60.0


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def why_not() -> str | None:
    """Return why this machine cannot do it, or None."""
    if shutil.which("ip") is None:
        return "no `ip` command (iproute2)"
    name = f"rsm{os.getpid()}t"
    try:
        _run("ip", "netns", "add", name)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: {error.stderr.decode().strip()}"
    _run("ip", "netns", "del", name)
    return None


class Namespaces:
    """A router, a host for ZooKeeper, hosts for bookies, a host `client`, and further hosts on which nothing runs."""

    def __init__(self, folder: Path, *, bookie_count: int, more_hosts: Sequence[str] = ()) -> None:
        self.bookies = [f"bookie-{n + 1}" for n in range(bookie_count)]
        self.hosts = ["zookeeper", "client", *self.bookies, *more_hosts]
        self.folder = folder
        self._tag = f"rsm{os.getpid()}"
        self._made: list[str] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._zookeeper: list[str] = []
        self._cuts: list[tuple[str, str]] = []

    @property
    def metadata_uri(self) -> str:
        """Where the cluster is, seen from its hosts."""
        return f"zk+hierarchical://{self.address('zookeeper')}:{_ZOOKEEPER_PORT}/ledgers"

    @property
    def is_cut(self) -> bool:
        """Whether some direction is cut."""
        return bool(self._cuts)

    def address(self, host: str) -> str:
        """Return a host's address."""
        return f"10.77.{self.hosts.index(host) + 1}.2"

    def inside(self, host: str) -> tuple[str, ...]:
        """Return what to put before a command that is to run on a host."""
        return ("ip", "netns", "exec", self._name(host))

    def __enter__(self) -> Self:
        """Make the networks and start the servers."""
        try:
            self._make_networks()
            self._start_servers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the servers and remove the namespaces."""
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()
        for name in self._made:
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "del", name)

    def cut(self, source: str, target: str) -> None:
        """Drop whatever `source` sends to `target` from now on."""
        self._cuts.append((source, target))
        self._rule("add", source, target)

    def heal(self) -> None:
        """End all cuts."""
        cuts, self._cuts = self._cuts, []
        for source, target in cuts:
            self._rule("del", source, target)

    def pause(self, host: str) -> None:
        """Freeze the server of a host (SIGSTOP)."""
        self._processes[host].send_signal(signal.SIGSTOP)

    def resume(self, host: str) -> None:
        """Let the frozen server of a host go on."""
        self._processes[host].send_signal(signal.SIGCONT)

    def kill_zookeeper(self) -> None:
        """End ZooKeeper by SIGKILL."""
        process = self._processes["zookeeper"]
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def start_zookeeper(self) -> None:
        """Start ZooKeeper on its data; return when it answers."""
        self._spawn("zookeeper", self._zookeeper)
        address = self.address("zookeeper")
        question = f"from ledger.zookeeper_server.probe import answers; exit(not answers('{address}', 2181))"
        deadline = time.monotonic() + _START_S_MAX
        while subprocess.run([*self.inside("zookeeper"), sys.executable, "-c", question], check=False).returncode:
            assert time.monotonic() < deadline, f"no ZooKeeper: see {self.folder}"

    def _rule(self, verb: str, source: str, target: str) -> None:
        rule = ("rule", verb, "from", self.address(source), "to", self.address(target), "blackhole")
        _run(*self.inside("router"), "ip", *rule)

    def _name(self, host: str) -> str:
        return f"{self._tag}{'r' if host == 'router' else self.hosts.index(host)}"

    def _make_networks(self) -> None:
        for host in ["router", *self.hosts]:
            _run("ip", "netns", "add", self._name(host))
            self._made.append(self._name(host))
            _run(*self.inside(host), "ip", "link", "set", "lo", "up")
        _run(*self.inside("router"), "sysctl", "-q", "net.ipv4.ip_forward=1")
        for number, host in enumerate(self.hosts, 1):
            here, there = f"{self._tag}h{number}", f"{self._tag}v{number}"
            peer = ("peer", "name", there, "netns", self._name("router"))
            _run("ip", "link", "add", here, "netns", self._name(host), "type", "veth", *peer)
            for place, link, address in (
                (host, here, f"10.77.{number}.2/24"),
                ("router", there, f"10.77.{number}.1/24"),
            ):
                _run(*self.inside(place), "ip", "address", "add", address, "dev", link)
                _run(*self.inside(place), "ip", "link", "set", link, "up")
            _run(*self.inside(host), "ip", "route", "add", "default", "via", f"10.77.{number}.1")

    def _start_servers(self) -> None:
        address, folder = self.address("zookeeper"), str(self.folder / "zookeeper")
        settings = ZooKeeperSettings(
            data_dir=folder, bind=address, port=_ZOOKEEPER_PORT, insecure=True, heap_mib=96, is_small=True
        )
        write_files(settings)
        self._zookeeper = zookeeper_command(settings)
        self.start_zookeeper()
        for host in self.bookies:
            arguments = ["--bind", self.address(host), "--port", str(_BOOKIE_PORT), "--insecure", "--json"]
            arguments += ["--metadata-uri", self.metadata_uri, "--data-dir", str(self.folder / host)]
            command = [sys.executable, "-m", "ledger.bookie", "run", *arguments, "--journal-file-mib", "10"]
            command.append("--no-autorecovery")  # A cut that lasts would have others copy; here it has to hold.
            process = self._spawn(host, command)
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["ready"], f"{host} did not start: see {self.folder}"

    def _spawn(self, host: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{host}.log").open("ab") as log:
            process = subprocess.Popen([*self.inside(host), *command], stdout=subprocess.PIPE, stderr=log)
        self._processes[host] = process
        return process
