"""Screen of a person who watches the demonstration."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_EVENTS_SHOWN = 9
_PLAIN_LINE_EVERY_S = 5.0


class TenantLine(msgspec.Struct):
    """A tenant of the task broker at one moment."""

    tenant: str
    weight: float
    waiting: int
    ended: int
    per_s: float = 0.0


class View(msgspec.Struct):
    """The figures of one moment; None = not known yet."""

    acked_count: int = 0
    total_count: int = 0
    puts_per_s: float = 0.0
    leader: str | None = None
    leader_epoch: int = 0
    revision: int = 0
    bookies: dict[str, bool] = {}
    follower_lag: int | None = None
    spark_lag: int | None = None
    delta_lag: int | None = None
    tenants: list[TenantLine] = []


class Screen:
    """A live screen on a terminal; elsewhere a line per event and one every few seconds."""

    def __init__(self, console: Console, *, is_quiet: bool = False) -> None:
        self.view = View()
        self._console = console
        self._is_quiet = is_quiet
        self._events: deque[tuple[float, str]] = deque(maxlen=_EVENTS_SHOWN)
        self._began = time.monotonic()
        self._last_plain_line = 0.0
        live = console.is_terminal and not is_quiet
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4) if live else None

    def __enter__(self) -> Self:
        """Start to draw."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last picture standing."""
        if self._live is not None:
            self._live.stop()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the screen was made."""
        return time.monotonic() - self._began

    def event(self, text: str) -> None:
        """Tell that something happened."""
        self._events.append((self.elapsed_s, text))
        if self._live is None and not self._is_quiet:
            self._console.print(f"{self.elapsed_s:6.1f} s  {text}", highlight=False)

    def refresh(self) -> None:
        """Show the view's present figures."""
        if self._live is not None or self._is_quiet or self.elapsed_s - self._last_plain_line < _PLAIN_LINE_EVERY_S:
            return
        self._last_plain_line = self.elapsed_s
        view = self.view
        if view.tenants:
            said = "; ".join(
                f"{one.tenant} (weight {one.weight:g}) {one.per_s:,.0f}/s, {one.waiting:,} waiting"
                for one in view.tenants
            )
            self._console.print(f"{self.elapsed_s:6.1f} s  tasks: {said}", highlight=False)
            return
        self._console.print(
            f"{self.elapsed_s:6.1f} s  {view.acked_count:,} of {view.total_count:,} acknowledged, "
            f"{view.puts_per_s:,.0f} puts/s; lag: follower {_count(view.follower_lag)}, "
            f"Spark {_count(view.spark_lag)}, Delta {_count(view.delta_lag)} records",
            highlight=False,
        )

    def _render(self) -> RenderableType:
        view = self.view
        figures = Table.grid(padding=(0, 3))
        figures.add_row("leader", f"{view.leader or '(electing)'}   epoch {view.leader_epoch}")
        figures.add_row("revision", f"{view.revision:,}   {view.puts_per_s:,.0f} puts/s")
        figures.add_row("bookies", Text("   ").join(_bookies(view.bookies)))
        figures.add_row(
            "lag",
            f"follower {_count(view.follower_lag)}   Spark {_count(view.spark_lag)}   "
            f"Delta {_count(view.delta_lag)}   (records behind the last acknowledged)",
        )
        bar = ProgressBar(total=max(1, view.total_count), completed=view.acked_count, width=52)
        done = Text(f"{view.acked_count:,} of {view.total_count:,} flights acknowledged")
        events = Table.grid(padding=(0, 2))
        for at_s, text in self._events:
            events.add_row(Text(f"{at_s:6.1f} s", style="dim"), text)
        parts: list[RenderableType] = [figures, Text(), bar, done]
        if view.tenants:
            parts += [Text(), _tenants(view.tenants)]
        return Panel(Group(*parts, Text(), events), title="rsm demo", width=100)


def _tenants(tenants: Sequence[TenantLine]) -> Table:
    """Return a bar for each tenant's tasks a second."""
    table = Table.grid(padding=(0, 2))
    most = max(1.0, *(one.per_s for one in tenants))
    for one in tenants:
        table.add_row(
            one.tenant,
            f"weight {one.weight:g}",
            ProgressBar(total=most, completed=one.per_s, width=40),
            f"{one.per_s:,.0f} tasks/s",
            f"{one.waiting:,} waiting",
        )
    return table


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _bookies(bookies: dict[str, bool]) -> Sequence[Text]:
    return [
        Text(f"{name} {'up' if up else 'DOWN'}", style="green" if up else "bold red") for name, up in bookies.items()
    ]
