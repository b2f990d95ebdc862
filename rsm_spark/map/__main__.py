"""`python -m rsm_spark.store run …` is `rsm store run …`."""

from __future__ import annotations

from rsm_spark.map.cli.store import app

if __name__ == "__main__":
    app(prog_name="rsm store")
