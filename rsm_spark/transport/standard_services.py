"""Services that gRPC's own tools expect of every port: health checks and reflection.

    grpc.health.v1.Health/Check   open to everybody, as probes bring no token; tells no more than "serves" or not
    grpc.health.v1.Health/Watch   pushes changes; needs the right to see the status
    grpc.health.v1.Health/List    tells all conditions; needs the same right
    grpc.reflection.v1alpha       names services and messages to grpcurl and its like; needs the same right

A condition is what a check names as its service: "" = the process as a whole. See https://grpc.io/docs/guides/health-checking/.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from ledger.rights.table import Right

HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION: Final = reflection.SERVICE_NAME
HEALTH_CHECK: Final = f"/{HEALTH}/Check"
HEALTH_RIGHTS: Final = {"Check": Right.STATUS, "Watch": Right.STATUS, "List": Right.STATUS}
REFLECTION_RIGHTS: Final = {"ServerReflectionInfo": Right.STATUS}
_UNKNOWN: Final[int] = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
_SERVING: Final[int] = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final[int] = health_pb2.HealthCheckResponse.NOT_SERVING


class HealthService:
    """Answers health checks by conditions, as they are at that moment. A watcher that does not read holds up nobody.

    Attributes:
        conditions: By name: whether it holds.

    """

    def __init__(self) -> None:
        self.conditions: dict[str, Callable[[], bool]] = {"": lambda: True}
        self._told: dict[str, int] = {}
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Wake those who watch if a condition is another than before; called once a second."""
        found = {name: self._status_of(name) for name in self.conditions}
        if found != self._told:
            self._told = found
            self._changed.set()
            self._changed = asyncio.Event()

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Return the methods of the service."""
        parse = health_pb2.HealthCheckRequest.FromString
        pack = health_pb2.HealthCheckResponse.SerializeToString
        return {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, parse, pack),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, parse, pack),
            "List": grpc.unary_unary_rpc_method_handler(
                self._list, health_pb2.HealthListRequest.FromString, health_pb2.HealthListResponse.SerializeToString
            ),
        }

    def _status_of(self, name: str) -> int:
        holds = self.conditions.get(name)
        if holds is None:
            return _UNKNOWN
        return _SERVING if holds() else _NOT_SERVING

    async def _check(self, request: Any, context: Any) -> Any:
        status = self._status_of(request.service)
        if status == _UNKNOWN:
            known = ", ".join(repr(name) for name in self.conditions)
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no such condition: ask for one of {known}")
        return health_pb2.HealthCheckResponse(status=status)

    async def _list(self, _request: Any, _context: Any) -> Any:
        statuses = {name: health_pb2.HealthCheckResponse(status=self._status_of(name)) for name in self.conditions}
        return health_pb2.HealthListResponse(statuses=statuses)

    async def _watch(self, request: Any, context: Any) -> None:
        told = None
        while True:
            changed = self._changed
            status = self._status_of(request.service)
            if status != told:
                await context.write(health_pb2.HealthCheckResponse(status=status))
                told = status
            await changed.wait()


def reflection_handlers(services: Sequence[str]) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """Return the methods of reflection.

    Args:
        services: Names of all that the port serves.

    """
    servicer: Any = reflection_aio.ReflectionServicer(services)
    return {
        "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
            servicer.ServerReflectionInfo,
            reflection_pb2.ServerReflectionRequest.FromString,
            reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
    }
