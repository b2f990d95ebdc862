"""`rsm store` on a machine whose clock is an hour ahead: all that it reads of the time of day is."""

from __future__ import annotations

import time

OFFSET_S = 3600


def install() -> None:
    """Shift this process's clock; what was imported before may hold the right one."""
    right_s, right_ns = time.time, time.time_ns
    vars(time)["time"] = lambda: right_s() + OFFSET_S
    vars(time)["time_ns"] = lambda: right_ns() + OFFSET_S * 1_000_000_000


if __name__ == "__main__":
    install()
    from rsm_spark.map.cli.store import app

    app(prog_name="rsm store")
