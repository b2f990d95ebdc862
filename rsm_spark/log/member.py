"""Advertisement of a replica: one ephemeral node a replica."""

from __future__ import annotations

import msgspec

from ledger.decoding import json_decoder


class Member(msgspec.Struct, frozen=True):
    """A live replica.

    Attributes:
        replica_id: Stable name.
        incarnation: 32 hex digits, drawn anew by each process.
        address: "host:port" that its clients use; "" if it serves none.
        format_level: Highest record format that this process reads and writes.
        domain: What its disk fails together with; "" = nothing but itself.
        http: "host:port" of its HTTP API; "" if it has none.
        key_ids: Keys of the log that it has: entries are sealed with none that a live replica lacks.
        is_tls: Whether `address` is encrypted; None = not said, as by processes of before.
        http_is_tls: The same of `http`.
        is_memory_full: Its memory is nearly used up: the leader takes nothing that makes the state grow.
        machine_version: Of its machine; 0 = not said, as by processes of before.
        machine: Name of its machine; "" = not said, as by processes of before.
        framed: "host:port" of its framed port; "" if it has none, as processes of before.
        etcd: "host:port" that etcd's clients use; "" if it serves none.
        gateway_grpc: "host:port" of a gateway's gRPC, encrypted as `http`; "" if it has none.

    """

    replica_id: str
    incarnation: str
    address: str
    format_level: int = 1
    domain: str = ""
    http: str = ""
    key_ids: tuple[str, ...] = ()
    is_tls: bool | None = None
    http_is_tls: bool | None = None
    is_memory_full: bool = False
    machine_version: int = 0
    framed: str = ""
    etcd: str = ""
    gateway_grpc: str = ""
    machine: str = ""

    @property
    def failure_domain(self) -> str:
        """Failure domain of its disk: as set, or its own name."""
        return self.domain or self.replica_id


def encode_member(member: Member) -> bytes:
    return msgspec.json.encode(member)


def decode_member(value: bytes) -> Member | None:
    """Return the member, or None if the bytes are none (a foreign or half-written node)."""
    try:
        return json_decoder(Member).decode(value)
    except msgspec.MsgspecError:
        return None
