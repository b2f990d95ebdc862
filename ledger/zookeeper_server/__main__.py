"""`python -m ledger.zookeeper_server`: the command without the others of `rsm`."""

from __future__ import annotations

from ledger.zookeeper_server.cli import app

if __name__ == "__main__":
    app(prog_name="rsm zookeeper")
