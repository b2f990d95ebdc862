"""Memory of unfinished frames, bounded in all and by address; above a bound the greatest holders are cut.

A frame that began is memory which its client may leave lying. So there is a pot with a bound, and another bound for the
connections of one address. Above a bound the connections that hold most are cut until an eighth of it is free again:
one that delivers its frame in time is never the one. What a connection holds is weighed by how long it has held it,
counted in bytes that others brought meanwhile: otherwise many small holders, one after the other, could push out each
honest long frame while it arrives.
"""

from __future__ import annotations

from collections.abc import Callable


class FrameShare:
    """The part of one connection in a pot.

    Args:
        pot: Where it counts; see `move`.
        address: Whose connection it is.
        cut: Ends the connection at once.

    Attributes:
        byte_count: What it holds.
        began: What had come to the pot when its frame began, and what came of it since.

    """

    __slots__ = ("address", "began", "byte_count", "cut", "pot")

    def __init__(self, pot: FramePot, address: str = "", cut: Callable[[], None] = lambda: None) -> None:
        self.pot = pot
        self.address = address
        self.cut = cut
        self.byte_count = 0
        self.began = 0

    def set(self, byte_count: int, *, is_new_frame: bool) -> None:
        """Tell what the connection holds now; it, or others, may be cut for it."""
        if byte_count or self.byte_count:
            self.pot.account(self, byte_count, is_new_frame=is_new_frame)

    def move(self, pot: FramePot) -> None:
        """Count in another pot from now on; nothing is held at the time."""
        self.set(0, is_new_frame=True)
        self.pot = pot


class FramePot:
    """See the module.

    Args:
        bytes_max: What all connections may hold.
        address_bytes_max: What those of one address may hold.

    Attributes:
        held_bytes: What they hold.

    Invariants: `_shares` are those that hold anything, in the order in which they began to; `held_bytes` is their sum,
    `_by_address` the sums by address, none of which is 0.

    """

    def __init__(self, bytes_max: int, address_bytes_max: int) -> None:
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._address_bytes_max = address_bytes_max
        self._shares: dict[FrameShare, None] = {}
        self._by_address: dict[str, int] = {}
        self._came_bytes = 0

    def account(self, share: FrameShare, byte_count: int, *, is_new_frame: bool) -> None:
        """Take note of what a share holds now; see `FrameShare.set`."""
        before, address = share.byte_count, share.address
        is_new_frame = is_new_frame or not before
        growth = byte_count if is_new_frame else max(0, byte_count - before)
        self._came_bytes += growth
        share.began = self._came_bytes if is_new_frame else share.began + growth
        share.byte_count = byte_count
        if not byte_count:
            self._shares.pop(share, None)
        elif not before:
            self._shares[share] = None
        self.held_bytes += byte_count - before
        of_address = self._by_address.get(address, 0) + byte_count - before
        if of_address:
            self._by_address[address] = of_address
        else:
            self._by_address.pop(address, None)
        if byte_count <= before:
            return
        if of_address > self._address_bytes_max:
            self._cut([x for x in self._shares if x.address == address], of_address, self._address_bytes_max)
        if self.held_bytes > self._bytes_max:
            self._cut(list(self._shares), self.held_bytes, self._bytes_max)

    def _cut(self, shares: list[FrameShare], held_bytes: int, bytes_max: int) -> None:
        """Cut those that hold most, the oldest first among equals, until an eighth of a bound is free."""
        came = self._came_bytes
        shares.sort(key=lambda x: x.byte_count * (came - x.began), reverse=True)  # Stable: the oldest stay in front.
        for share in shares:
            if held_bytes <= bytes_max - bytes_max // 8:
                break
            held_bytes -= share.byte_count
            share.set(0, is_new_frame=True)
            share.cut()
