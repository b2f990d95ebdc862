"""One end of a simulated TCP connection."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from ledger.testing.loop import SimProcess

if TYPE_CHECKING:
    # The network makes transports, and each one sends over it: two halves of one network.
    from ledger.testing.network import SimNetwork


_KERNEL_BYTES = 128 << 10
"""Bytes that the two kernels hold of one direction; the rest waits in the program, and is lost with it."""
_HIGH_BYTES = 64 << 10
_GIVE_UP_S = 60.0
_RETRANSMIT_S_MIN, _RETRANSMIT_S_MAX = 0.2, 5.0
_PAUSED_LOOK_S = 0.05


class SimTransport(asyncio.Transport):
    """Transport of one end of a connection. Callbacks run in the process that owns this end.

    Attributes:
        process: The owner; None for the test itself.
        host: Its name.
        peer: The other end.

    """

    peer: SimTransport

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess | None,
        context: Context,
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        super().__init__(extra={"peername": remote, "sockname": local})
        self.process = process
        self.host = local[0]
        self.context = context
        self._network = network
        self._loop = network.loop
        self._protocol: Any = None
        self._outbox = bytearray()
        self._inbox = bytearray()
        self._high_bytes, self._low_bytes = _HIGH_BYTES, _HIGH_BYTES // 4
        self._is_closing = False
        self._is_over = False  # connection_lost is called or on its way, or the process is dead
        self._has_ended = False  # no byte follows what the outbox holds
        self._is_eof_due = False  # the peer's end follows what the inbox holds
        self._is_reading = True
        self._is_pumping = False
        self._is_feeding = False
        self._is_writing_paused = False
        self._is_silent = False  # its host lost power
        self._stalled_at: float | None = None
        self._retransmit_s = _RETRANSMIT_S_MIN

    # --- asyncio.Transport

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what comes to another protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        """Return whether it is closed or about to be."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Return whether it hands on received bytes."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Leave what comes in the kernel."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Take from the kernel again."""
        if not self._is_closing:
            self._is_reading = True
            self._plan_feed()
            self.peer._pump_later(0.0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, after what was written before."""
        if self._is_closing or self._is_over or not data:
            return
        self._outbox += data
        if not self._is_writing_paused and self.get_write_buffer_size() > self._high_bytes:
            self._is_writing_paused = True
            self._protocol.pause_writing()
        self._pump_later(None)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Return False: half-closed connections are not simulated."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the kernel has not taken yet."""
        return max(0, len(self._outbox) - _KERNEL_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return (low, high) in bytes."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Choose when `pause_writing` and `resume_writing` are called."""
        self._high_bytes = high if high is not None else (4 * low if low is not None else _HIGH_BYTES)
        self._low_bytes = low if low is not None else self._high_bytes // 4

    def close(self) -> None:
        """Take nothing more, send what was written, then end."""
        if self._is_closing:
            return
        self._is_closing = True
        self._has_ended = True
        self._inbox.clear()
        if not self.get_write_buffer_size():
            self._lose(None)
        self._pump_later(None)

    def abort(self) -> None:
        """End at once; what waits is dropped and the peer sees a reset."""
        if self._is_over:
            return
        self._is_closing = True
        self._has_ended = True
        self._outbox.clear()
        self._network.later(self._network.delay_s(), self._tell_reset)
        self._lose(None)

    # --- what the network does

    def accept(self, factory: Callable[[], Any]) -> None:
        """Take the connection as the server."""
        self._protocol = factory()
        self._protocol.connection_made(self)

    def begin(self) -> None:
        """Take the connection as the client."""
        if not self._is_closing:
            self._protocol.connection_made(self)

    def reset(self) -> None:
        """End both ends with an error, at once."""
        self._break(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        self.peer._break(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def orphan(self, *, power_lost: bool) -> None:
        """Go on without a program: the kernel still sends some of what it took, then ends the connection."""
        self._is_over = self._is_closing = True
        self._inbox.clear()
        if power_lost:
            self._outbox.clear()
            self._is_silent = True
        elif not self._has_ended:
            del self._outbox[self._network.rng.randint(0, min(len(self._outbox), _KERNEL_BYTES)) :]
            self._has_ended = True
            self._pump_later(None)

    def _pump_later(self, delay_s: float | None) -> None:
        if not self._is_pumping and (self._outbox or self._has_ended) and not self._is_silent:
            self._is_pumping = True
            self._network.later(self._network.delay_s() if delay_s is None else delay_s, self._pump)

    def _pump(self) -> None:
        """Carry what is due to the other end."""
        self._is_pumping = False
        network, peer = self._network, self.peer
        if self._is_silent or (self._is_over and not self._has_ended):
            return
        if self.host != peer.host and network.is_blocked(self.host, peer.host):
            self._stall()
            return
        self._stalled_at, self._retransmit_s = None, _RETRANSMIT_S_MIN
        if peer._is_over or peer._is_closing:
            if self._outbox and not self._is_over:
                network.later(network.delay_s(), self._break, ConnectionResetError(errno.ECONNRESET, "reset by peer"))
            self._finish()
            return
        if network.rates.reset_rate and network.rng.random() < network.rates.reset_rate:
            self.reset()
            return
        if not peer._is_reading and len(peer._inbox) >= _KERNEL_BYTES:
            return  # its `resume_reading` goes on
        if peer.process is not None and peer.process.is_paused and len(peer._inbox) >= _KERNEL_BYTES:
            self._pump_later(_PAUSED_LOOK_S)
            return
        byte_count = min(len(self._outbox), _KERNEL_BYTES)
        if byte_count > 1 and network.rng.random() < network.rates.fragment_rate:
            byte_count = network.rng.randint(1, byte_count)
        self._carry(byte_count)

    def _carry(self, byte_count: int) -> None:
        peer = self.peer
        if byte_count:
            data = bytes(self._outbox[:byte_count])
            del self._outbox[:byte_count]
            self._loop.note(data)
            self._network.delivered_bytes += byte_count
            peer._inbox += data
            peer._plan_feed()
        if self._outbox:
            self._pump_later(None)
        elif self._has_ended:
            peer._is_eof_due = True
            peer._plan_feed()
            self._finish()
        if self._is_writing_paused and not self._is_over and self.get_write_buffer_size() <= self._low_bytes:
            self._is_writing_paused = False
            self._loop.call_soon(self._resume_writing, context=self.context)
        if self._is_closing and not self._is_over and not self.get_write_buffer_size():
            self._lose(None)

    def _resume_writing(self) -> None:
        if not self._is_over:
            self._protocol.resume_writing()

    def _stall(self) -> None:
        now = self._loop.time()
        if self._stalled_at is None:
            self._stalled_at = now
        if now - self._stalled_at > _GIVE_UP_S:
            self._break(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            self._finish()
            return
        self._pump_later(self._retransmit_s * self._network.rng.uniform(0.5, 1.0))
        self._retransmit_s = min(_RETRANSMIT_S_MAX, 2 * self._retransmit_s)

    def _plan_feed(self) -> None:
        if not self._is_feeding and self._is_reading and (self._inbox or self._is_eof_due) and not self._is_closing:
            self._is_feeding = True
            self._loop.call_soon(self._feed, context=self.context)

    def _feed(self) -> None:
        """Hand on what came; runs in the process that owns this end."""
        self._is_feeding = False
        if self._protocol is None:
            return
        while self._inbox and self._is_reading and not self._is_closing:
            data = bytes(self._inbox)
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self._protocol.get_buffer(-1))
                data = data[: len(buffer)]
                buffer[: len(data)] = data
                del self._inbox[: len(data)]
                buffer.release()
                self._protocol.buffer_updated(len(data))
            else:
                self._inbox.clear()
                self._protocol.data_received(data)
        if self._is_eof_due and not self._inbox and self._is_reading and not self._is_closing:
            self._is_eof_due = False
            if not self._protocol.eof_received():
                self.close()

    def _tell_reset(self) -> None:
        if self.host == self.peer.host or not self._network.is_blocked(self.host, self.peer.host):
            self.peer._break(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _break(self, error: OSError) -> None:
        """End this end by an error."""
        self._outbox.clear()
        self._inbox.clear()
        self._is_closing = True
        self._lose(error)

    def _lose(self, error: OSError | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if not self._outbox:
            self._network.forget(self)
        self._loop.call_soon(self._report_lost, error, context=self.context)

    def _report_lost(self, error: OSError | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _finish(self) -> None:
        """Nothing is left to carry."""
        self._outbox.clear()
        if self._is_over:
            self._network.forget(self)
