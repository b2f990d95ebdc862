"""Containers of the image, by runc as Docker and Kubernetes run them: read-only root, no capability, own address.

The image has to be there: `make image`. Its file system is mounted by buildah and shared by all containers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from tests.integration.machines import Machines
from tests.integration.namespaces import why_not

__all__ = ["USER", "ContainerImage", "ContainerSpec", "Containers", "needs_containers"]

USER = 10001
_READY_S_MAX = 240
_MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def needs_containers() -> None:
    """Skip the test where no container can be run."""
    if os.geteuid() != 0:
        pytest.skip("containers of their own addresses need root")
    for command in ("buildah", "runc"):
        if shutil.which(command) is None:
            pytest.skip(f"no {command}: apt-get install {command}")
    if (reason := why_not()) is not None:
        pytest.skip(reason)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class ContainerImage:
    """The image: its file system, and what it says about itself."""

    def __init__(self, name: str) -> None:
        if subprocess.run(["buildah", "inspect", "--type", "image", name], capture_output=True, check=False).returncode:
            pytest.skip(f"no image {name}: make image")
        self.config: dict[str, Any] = json.loads(_run("buildah", "inspect", "--type", "image", name))["Docker"][
            "config"
        ]
        self._container = _run("buildah", "from", "--pull-never", name)
        self.root = Path(_run("buildah", "mount", self._container))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _run("buildah", "rm", self._container)


class ContainerSpec(NamedTuple):
    """One container.

    Attributes:
        name: Its host name, too.
        words: Behind the image's entry point; or the whole command, if `is_whole`.
        environment: Beside that of the image.
        mounts: Folder here, folder there, and whether it is read-only.
        is_whole: See `words`.

    """

    name: str
    words: Sequence[str]
    environment: Mapping[str, str]
    mounts: Sequence[tuple[Path, str, bool]]
    is_whole: bool = False


class Containers:
    """Runs containers on machines with addresses of one network.

    Args:
        machines: One for each name of a container.
        image: Theirs.
        names: All names by which they find each other, and the machine of each.

    """

    def __init__(self, machines: Machines, image: ContainerImage, names: Mapping[str, str]) -> None:
        self._machines = machines
        self._image = image
        self._hosts = machines.folder / "hosts"
        lines = [f"{machines.address(machine)} {name}\n" for name, machine in names.items()]
        self._hosts.write_text("127.0.0.1 localhost\n" + "".join(lines))
        (machines.folder / "resolv.conf").write_text("")
        for name in ("hosts", "resolv.conf"):
            (machines.folder / name).chmod(0o644)  # Whatever the umask: the image's user reads them.
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._specs: dict[str, ContainerSpec] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)

    def start(self, spec: ContainerSpec) -> None:
        """Start a container; what it says goes to a log."""
        self._specs[spec.name] = spec
        bundle = self._machines.folder / f"bundle-{spec.name}"
        bundle.mkdir(exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(self._config(spec)))
        with self.log(spec.name).open("ab") as log:
            command = ["runc", "run", "--bundle", str(bundle), self._id(spec.name)]
            self._running[spec.name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, spec: ContainerSpec) -> subprocess.CompletedProcess[str]:
        """Run a container until it ends."""
        bundle = self._machines.folder / f"bundle-{spec.name}"
        bundle.mkdir(exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(self._config(spec)))
        command = ["runc", "run", "--bundle", str(bundle), self._id(spec.name)]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_READY_S_MAX
        )

    def execute(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a container that runs, as its user."""
        return subprocess.run(
            ["runc", "exec", self._id(name), *command], capture_output=True, text=True, check=False, timeout=120
        )

    def wait_for(self, name: str, *command: str) -> None:
        """Wait until a command in a container says by its exit code that all is well.

        A container that ends meanwhile is started again, as a kubelet does: what it needs may not have been there yet.
        """
        end_s = time.monotonic() + _READY_S_MAX
        while (said := self.execute(name, *command)).returncode:
            if time.monotonic() > end_s:
                raise AssertionError(f"{name}: {said.stdout}{said.stderr}\n{self.log(name).read_text()[-4000:]}")
            time.sleep(1)
            if self._running[name].poll() is not None:
                self.start(self._specs[name])

    def stop(self, name: str) -> int:
        """End a container as `docker stop` does; return its exit code."""
        _run("runc", "kill", self._id(name), "TERM")
        return self._running.pop(name).wait(150)

    def kill(self, name: str) -> None:
        """End a container at once, with all of its processes."""
        subprocess.run(["runc", "delete", "--force", self._id(name)], capture_output=True, check=False)
        with contextlib.suppress(KeyError):
            self._running.pop(name).wait(30)

    def log(self, name: str) -> Path:
        """Return the file of what a container says."""
        return self._machines.folder / f"{name}.log"

    def _id(self, name: str) -> str:
        return f"rsm{os.getpid()}-{name}"

    def _config(self, spec: ContainerSpec) -> dict[str, Any]:
        image = self._image.config
        assert image["User"] == f"{USER}:{USER}"
        binds = [*spec.mounts, (self._hosts, "/etc/hosts", True)]
        binds.append((self._machines.folder / "resolv.conf", "/etc/resolv.conf", True))
        private = ["nosuid", "noexec", "nodev"]
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": USER, "gid": USER},
                "args": [*(() if spec.is_whole else image["Entrypoint"]), *spec.words],
                "env": [*image["Env"], *(f"{name}={value}" for name, value in spec.environment.items())],
                "cwd": image["WorkingDir"],
                "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")},
                "noNewPrivileges": True,
            },
            "root": {"path": str(self._image.root), "readonly": True},
            "hostname": spec.name,
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                {
                    "destination": "/dev/shm", "type": "tmpfs", "source": "shm",
                    "options": [*private, "mode=1777", "size=64m"],
                },
                {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*private, "ro"]},
                {
                    "destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
                    "options": ["nosuid", "nodev", "mode=1777", "size=64m"],
                },
                *(
                    {
                        "destination": there, "type": "bind", "source": str(here),
                        "options": ["rbind", "ro" if is_read_only else "rw"],
                    }
                    for here, there, is_read_only in binds
                ),
            ],
            "linux": {
                "namespaces": [
                    *({"type": kind} for kind in ("pid", "ipc", "uts", "mount")),
                    {"type": "network", "path": str(self._machines.namespace(spec.name))},
                ],
                "maskedPaths": _MASKED,
                "readonlyPaths": _READ_ONLY,
            },
        }  # fmt: skip
