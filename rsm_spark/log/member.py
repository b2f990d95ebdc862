"""How a replica advertises itself: one ephemeral node a replica."""

from __future__ import annotations

import msgspec

__all__ = ["Member", "decode_member", "encode_member"]


class Member(msgspec.Struct, frozen=True):
    """A live replica.

    Attributes:
        replica_id: Stable name.
        incarnation: 32 hex digits, drawn anew by each process.
        address: "host:port" that its clients use; "" if it serves none.
        format_level: Highest record format that this process reads and writes.
        domain: What its disk fails together with; "" = nothing but itself.
        http: "host:port" of its HTTP API; "" if it has none.

    """

    replica_id: str
    incarnation: str
    address: str
    format_level: int = 1
    domain: str = ""
    http: str = ""

    @property
    def failure_domain(self) -> str:
        """Return the domain of its disk: as set, or its own name."""
        return self.domain or self.replica_id


def encode_member(member: Member) -> bytes:
    """Return the node's bytes."""
    return msgspec.json.encode(member)


def decode_member(value: bytes) -> Member | None:
    """Return the member, or None if the bytes are none (a foreign or half-written node)."""
    try:
        return msgspec.json.decode(value, type=Member)
    except msgspec.MsgspecError:
        return None
