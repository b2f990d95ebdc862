"""Plan of a jail: decided by the worker, carried out by the child process, sent as JSON."""

from __future__ import annotations

import msgspec


class JailPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One child's jail.

    Attributes:
        code: Folder of the pool's code; read only.
        scratch: Folder that is its own, all that it may write to; with namespaces it is memory instead.
        root: An empty folder, on which the child's own file system is put together; with namespaces.
        reads: Files and folders that it may read: the system's, Python's, ours.
        has_namespaces: Own mounts, processes, network, IPC, host name.
        uid: User and group that it becomes; 0 = stays what it is. Needs root.
        landlock_abi: What the kernel speaks; 0 = nothing.
        has_seccomp: System calls are filtered.
        has_network: The network is the host's; otherwise there is none.
        cgroups: `cgroup.procs` files of cgroups made for it.
        memory_bytes: Address space of each of its processes; 0 = no bound.
        scratch_bytes: What it may write.
        processes: Of it at once, threads too; 0 = not bounded by its user.
        files: Open at once in each.
        cpu_s: Seconds of processor that a run may count on. A process is ended when it has used twice as many; a child
            that has used as many is not given another run. 0 = no bound.

    """

    code: str
    scratch: str
    root: str
    reads: list[str]
    has_namespaces: bool
    uid: int = 0
    landlock_abi: int = 0
    has_seccomp: bool = False
    has_network: bool = False
    cgroups: list[str] = []
    memory_bytes: int = 0
    scratch_bytes: int = 64 * 1024 * 1024
    processes: int = 64
    files: int = 1024
    cpu_s: int = 0
    has_name: bool = False

    @property
    def code_inside(self) -> str:
        """Folder of the code as the child sees it."""
        return "/pool/code" if self.has_namespaces else self.code

    @property
    def scratch_inside(self) -> str:
        """Scratch folder as the child sees it."""
        return "/pool/scratch" if self.has_namespaces else self.scratch
