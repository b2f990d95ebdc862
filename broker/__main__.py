"""`python -m broker run …` is `rsm broker run …`."""

from __future__ import annotations

from broker.server.cli import app

if __name__ == "__main__":
    app(prog_name="rsm broker")
