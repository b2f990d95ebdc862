"""`python -m ledger.bookie run …` is `rsm bookie run …`."""

from __future__ import annotations

from ledger.bookie.cli import app

if __name__ == "__main__":
    app(prog_name="rsm bookie")
