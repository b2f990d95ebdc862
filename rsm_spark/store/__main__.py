"""`python -m rsm_spark.store run …` is `rsm store run …`."""

from __future__ import annotations

from rsm_spark.store.cli import app

__all__: list[str] = []

if __name__ == "__main__":
    app(prog_name="rsm store")
