"""The ASGI application of the broker."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

__all__ = ["create_app"]


async def _status(_request: Request) -> JSONResponse:
    return JSONResponse({"role": "follower"})


def create_app() -> Starlette:
    """Return the application."""
    return Starlette(routes=[Route("/api/v1/status", _status)])
