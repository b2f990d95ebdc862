"""Methods of etcd's API as they are served: over gRPC, and as JSON over HTTP where a path is named."""

from __future__ import annotations

from typing import NamedTuple

import grpc
from google.protobuf.message import Message

from ledger.rights.table import Right
from rsm_spark.map.etcd.caller import Call, TextCall


class EtcdMethod(NamedTuple):
    """A method with one request and one answer.

    Attributes:
        kind: Of its request.
        call: Answers it.
        right: That a caller needs.
        paths: Of the JSON gateway, behind `/v3/`.
        text_call: Answers it in the bytes of gRPC, where that costs less.

    """

    kind: type[Message]
    call: Call
    right: Right
    paths: tuple[str, ...] = ()
    text_call: TextCall | None = None


class EtcdStream(NamedTuple):
    """A method with a stream of answers, and of requests.

    Attributes:
        kind: Of its requests.
        answers: Kind of its answers.
        handler: Of gRPC.
        right: That a caller needs.
        paths: Of the JSON gateway, behind `/v3/`.
        is_held: It goes on when all requests are there, until its caller leaves.

    """

    kind: type[Message]
    answers: type[Message]
    handler: grpc.RpcMethodHandler[bytes, bytes]
    right: Right
    paths: tuple[str, ...] = ()
    is_held: bool = False
