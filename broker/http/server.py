"""Serves the application on the event loop of the broker."""

from __future__ import annotations

import uvicorn

from broker.http.app import create_app

__all__ = ["make_server"]


def make_server(host: str, port: int) -> uvicorn.Server:
    """Return a server that listens once its `serve` runs."""
    return uvicorn.Server(uvicorn.Config(create_app(), host=host, port=port, http="httptools", log_config=None))
