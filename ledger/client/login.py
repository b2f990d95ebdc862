"""The log-in on a new connection, before anything else is asked: BookKeeper's SASL plugin, with DIGEST-MD5."""

from __future__ import annotations

import secrets

from ledger.client.channel import Channel
from ledger.errors import LoginError
from ledger.login import LoginSettings
from ledger.wire.codes import Status
from ledger.wire.packets import AuthRequest, AuthResponse
from ledger.wire.protocol import WireProtocol
from ledger.wire.sasl_digest import DISABLED_PLUGIN, PLUGIN, ClientLogin


async def log_in(channel: Channel, login: LoginSettings, protocol: WireProtocol) -> None:
    """Log in; a bookie that demands none says so, and that is as good.

    Args:
        channel: Just connected.
        login: Who we are.
        protocol: What the log-in is said in; v3 where a START_TLS follows, which only v3 has.

    Raises:
        LoginError: We are not let in; the text says why.
        RemoteProtocolError: It answers with something else.

    """
    client = ClientLogin(login.user, login.password, secrets.token_hex(16))
    payload: bytes | None = b""
    channel.awaited = (
        f"answer to the log-in as {login.user!r} (a BookKeeper bookie does not answer a wrong user or password)"
    )
    while payload is not None:
        frame, _ = protocol.encode(AuthRequest(0, PLUGIN, payload))
        try:
            response, _ = protocol.decode(await channel.ask(frame))
        except ConnectionError as error:
            raise LoginError(f"log-in as {login.user!r}: it closed the connection ({error})") from error
        if not isinstance(response, AuthResponse) or response.status != Status.EOK:
            raise LoginError(
                f"log-in as {login.user!r}: the bookie answers {response.status.name}: the user or the password is "
                "wrong, or it demands a log-in of another kind than SASL"
            )
        payload = None if response.plugin == DISABLED_PLUGIN else client.step(response.payload)
    channel.awaited = "connection"
