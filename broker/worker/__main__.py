"""`python -m broker.worker run …` is `rsm worker run …`."""

from __future__ import annotations

from broker.worker.cli import app

if __name__ == "__main__":
    app(prog_name="rsm worker")
