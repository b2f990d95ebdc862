"""`python -m ledger.replication run …` is `rsm autorecovery run …`."""

from __future__ import annotations

from ledger.replication.cli import app

if __name__ == "__main__":
    app(prog_name="rsm autorecovery")
