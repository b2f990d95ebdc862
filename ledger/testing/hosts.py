"""Simulated machines: a name that is the address, a disk that outlives processes, a wall clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ledger.testing.disk import SimDisk
from ledger.testing.executor import SimExecutor
from ledger.testing.loop import SimProcess, outside

if TYPE_CHECKING:
    # The simulation makes its hosts, and each one asks it for loop and network: two halves of one world.
    from ledger.testing.simulation import Simulation


T = TypeVar("T")

FIRST_WALL_CLOCK_MS = 1_700_000_000_000
"""Unix time at which every simulation begins."""


class SimHost:
    """One machine; made by `Simulation.host`.

    Attributes:
        name: Its address in the network.
        disk: Outlives processes; see `SimDisk`.
        program: What `start` runs: called with the host, it returns the main coroutine. None: only `spawn`.
        clock_offset_ms: Error of the wall clock.
        clock_rate: How fast `monotonic` goes; timers go as the virtual time does.
        exits: Why each process ended, oldest first: "killed", "power lost", "done", or the exception.
        on_exit: Called (in no process) when a process ended for whatever reason.

    """

    def __init__(self, simulation: Simulation, name: str, program: Program | None) -> None:
        self.name = name
        self.program = program
        self.disk = SimDisk(simulation.loop.random_for(f"disk {name}"), note=simulation.loop.note)
        self.clock_offset_ms = 0
        self.clock_rate = 1.0
        self.exits: list[str | BaseException] = []
        self.on_exit: list[Callable[[SimHost], None]] = []
        self._simulation = simulation
        self._loop = simulation.loop
        self._process: SimProcess | None = None
        self._executors: list[SimExecutor] = []

    @property
    def is_up(self) -> bool:
        """True if a process is alive; a paused one is."""
        return self._process is not None

    @property
    def is_paused(self) -> bool:
        """True if the process is stopped by `pause`."""
        return self._process is not None and self._process.is_paused

    @property
    def step_count(self) -> int:
        """Steps that the process has run; 0 if there is none."""
        return self._process.step_count if self._process is not None else 0

    # --- what its programs use

    def clock_ms(self) -> int:
        """Return the wall clock: the virtual time and this host's error."""
        return FIRST_WALL_CLOCK_MS + int(self._loop.time() * 1000) + self.clock_offset_ms

    def monotonic(self) -> float:
        """Return the virtual time as this host counts it, seconds."""
        return self._loop.time() * self.clock_rate

    def executor(self, *, worker_count: int = 1) -> SimExecutor:
        """Return the twin of a `ThreadExecutor` for blocking functions of this host's process."""
        executor = SimExecutor(self._loop, self.disk, worker_count=worker_count)
        self._executors.append(executor)
        return executor

    # --- what tests and faults do to it

    def start(self, program: Program | None = None) -> asyncio.Task[Any]:
        """Boot: run the program in a new process. When it returns or raises, the process has exited.

        Args:
            program: What to run from now on; None runs what ran before.

        """
        assert self._process is None, f"{self.name} is up already"
        self.program = program or self.program
        assert self.program is not None, f"{self.name} has no program"
        task = self.spawn(self.program(self))
        process = self._process
        task.add_done_callback(lambda done: self._exited(process, done), context=outside())
        return task

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in the host's process, which is made if there is none."""
        if self._process is None:
            self._process = SimProcess(self.name)
            self._simulation.network.power_on(self.name)
        return self._loop.spawn(self._process, coroutine)

    def kill(self, *, power: bool = False) -> None:
        """Kill -9: no `finally` runs; what was written to files stays, synced or not.

        Args:
            power: Cut the power of the whole machine: of the unsynced writes any part stays; peers hear nothing.

        """
        if power:
            self._end("power lost", power_lost=True)
        else:
            self._end("killed", power_lost=False)

    def pause(self) -> None:
        """Stop the process as SIGSTOP does; its sockets stay open and its timers fire late."""
        if self._process is not None:
            self._process.is_paused = True

    def resume(self) -> None:
        """Let a paused process go on."""
        if self._process is not None and self._process.is_paused:
            self._loop.unpark(self._process)

    def _end(self, reason: str | BaseException, *, power_lost: bool) -> None:
        process = self._process
        if process is None:
            if power_lost:
                self.disk.lose_power()
            return
        self._loop.note(b"end " + process.label)
        process.is_alive = False
        process.parked.clear()
        self._process = None
        for executor in self._executors:
            executor.process_ended()
        self._executors.clear()
        self._simulation.network.end_process(process, power_lost=power_lost)
        if power_lost:
            self.disk.lose_power()
        else:
            self.disk.close_handles()
        self.exits.append(reason)
        for listener in list(self.on_exit):
            listener(self)

    def _exited(self, process: SimProcess | None, task: asyncio.Task[Any]) -> None:
        if process is None or self._process is not process:
            return
        if task.cancelled():
            reason: str | BaseException = "cancelled"
        else:
            reason = task.exception() or "done"
        self._end(reason, power_lost=False)


Program: TypeAlias = Callable[[SimHost], Coroutine[Any, Any, Any]]
"""Program that a host runs from each start to its end."""
