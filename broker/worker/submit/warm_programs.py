"""Processes that have loaded Spark's client, and wait in their jails for the program that they are to be.

Loading it takes longer than all else that a program has to do before Spark answers it. So a code pool whose programs
have run here lately has one such process in reserve. It is in the jail of that pool, and runs one program.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from broker.worker.code.folder import PoolFolder
from broker.worker.jail.jails import Jails
from broker.worker.submit.keeper import KeeperPlan
from broker.worker.submit.kept import KeptSubmission

_KEPT_BYTES_MAX = 64 * 1024
_FORCE_S = 15.0


class WarmProgram:
    """One such process; made by `start`. Used on one loop.

    Args:
        home: Where its folder is made.
        leave: Called when it is gone.

    """

    def __init__(self, home: PoolFolder, leave: Callable[[], None]) -> None:
        self._home = home
        self._leave = leave
        self._hear: tuple[Callable[[bytes], None], Callable[[bytes], None]] | None = None
        self._heard: list[tuple[int, bytes]] = []
        self._folder: Path | None = None
        self.kept: KeptSubmission | None = None
        self._living: asyncio.Task[int] | None = None

    @classmethod
    async def start(
        cls, home: PoolFolder, jails: Jails | None, environment: Callable[[str], dict[str, str]]
    ) -> WarmProgram:
        """Start one.

        Args:
            home: Where its folder is made.
            jails: Of its code pool; None = the code is trusted.
            environment: Its variables, given its folder.

        Raises:
            OSError: It cannot be started.

        """
        plan, leave = jails.enter() if jails is not None else (None, _nothing)
        made = cls(home, leave)
        try:
            made._folder = await asyncio.to_thread(home.make)
            folder = str(made._folder / "home")
            kept_plan = KeeperPlan(
                words=[sys.executable, f"{connectors_folder()}/pool/warm_program.py"],
                environment={**environment(folder), "PYTHONUNBUFFERED": "1"},
                folder=folder,
                is_asked=True,
                jail=plan,
                lock=home.lock,
            )
            made.kept = await KeptSubmission.start(kept_plan, made._on_output, made._on_log)
        except BaseException:
            await made._remove()
            raise
        made._living = asyncio.get_running_loop().create_task(made._live(made.kept), name="rsm-warm-program")
        return made

    @property
    def is_over(self) -> bool:
        """True if it has ended."""
        return self._living is None or self._living.done()

    def be(
        self,
        path: str,
        args: Sequence[str],
        environment: Mapping[str, str],
        *,
        on_output: Callable[[bytes], None],
        on_log: Callable[[bytes], None],
    ) -> None:
        """Have it be a program.

        Args:
            path: Of the program, as its jail has it.
            args: Of the program.
            environment: Variables besides those it has.
            on_output: Hears what comes on standard output.
            on_log: Hears what comes on standard error.

        """
        assert self.kept is not None, "it has been started"
        self._hear = (on_output, on_log)
        for which, chunk in self._heard:
            self._hear[which](chunk)
        self._heard.clear()
        told = {"path": path, "args": list(args), "environment": dict(environment)}
        self.kept.say(msgspec.json.encode(told))

    def end(self) -> None:
        """Have it end: soon, and without asking the program."""
        if self.kept is not None and not self.is_over:
            self.kept.end()
            asyncio.get_running_loop().call_later(_FORCE_S, self.kept.kill)

    async def wait(self) -> int:
        """Wait until it is gone, with what it wrote; return its exit code."""
        assert self._living is not None, "it has been started"
        return await asyncio.shield(self._living)

    async def _live(self, kept: KeptSubmission) -> int:
        try:
            return await kept.wait()
        finally:
            await self._remove()

    async def _remove(self) -> None:
        self._leave()
        if self._folder is not None:
            await asyncio.to_thread(self._home.discard, self._folder)

    def _on_output(self, chunk: bytes) -> None:
        self._on_chunk(0, chunk)

    def _on_log(self, chunk: bytes) -> None:
        self._on_chunk(1, chunk)

    def _on_chunk(self, which: int, chunk: bytes) -> None:
        if self._hear is not None:
            self._hear[which](chunk)
        elif sum(len(one) for _, one in self._heard) < _KEPT_BYTES_MAX:
            self._heard.append((which, chunk))


class WarmPrograms:
    """See the module. Used on one loop.

    Args:
        home: Where their folders are made.
        count_max: Most in reserve.
        idle_s: One that nobody has taken for so long is ended.
        environment: Variables of each, given its folder.

    """

    def __init__(
        self, home: PoolFolder, *, count_max: int, idle_s: float, environment: Callable[[str], dict[str, str]]
    ) -> None:
        self._home = home
        self._count_max = count_max
        self._idle_s = idle_s
        self._environment = environment
        # By the folder of the code; the one that has waited longest comes first.
        self._reserve: dict[str, tuple[WarmProgram, asyncio.TimerHandle]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[WarmProgram] = set()
        self._is_closed = False

    async def take(self, code: str, jails: Jails | None) -> WarmProgram:
        """Return one for a program, who has it end.

        Args:
            code: Folder of the code pool.
            jails: Of the code pool; None = the code is trusted.

        Raises:
            OSError: It cannot be started.

        """
        found = self._reserve.pop(code, None)
        if found is not None:
            program, timer = found
            timer.cancel()
            if not program.is_over:
                return program
        return await WarmProgram.start(self._home, jails, self._environment)

    def provide(self, code: str, jails: Jails | None) -> None:
        """Have one in reserve for the next program of a code pool."""
        if code in self._reserve or self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._provide(code, jails), name="rsm-warm-program-starts")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def close(self) -> None:
        """End all that are in reserve."""
        self._is_closed = True
        if self._starting:
            await asyncio.wait(self._starting)
        for code in list(self._reserve):
            self._drop(code)
        for program in list(self._ending):
            await program.wait()

    async def _provide(self, code: str, jails: Jails | None) -> None:
        try:
            program = await WarmProgram.start(self._home, jails, self._environment)
        except OSError:
            return  # The next program starts one itself, and says what is wrong.
        self._drop(code)
        timer = asyncio.get_running_loop().call_later(self._idle_s, self._drop, code)
        self._reserve[code] = (program, timer)
        while len(self._reserve) > self._count_max:
            self._drop(next(iter(self._reserve)))

    def _drop(self, code: str) -> None:
        found = self._reserve.pop(code, None)
        if found is not None:
            program, timer = found
            timer.cancel()
            program.end()
            self._ending = {one for one in self._ending if not one.is_over} | {program}


def connectors_folder() -> str:
    """Return the folder of the package that warm servers and programs begin in; it is not imported here."""
    spec = find_spec("connectors")
    places = spec.submodule_search_locations if spec is not None else None
    return str(Path(next(iter(places))).absolute()) if places else ""


def _nothing() -> None:
    pass
