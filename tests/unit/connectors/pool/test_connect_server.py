from __future__ import annotations

import asyncio
import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from connectors.errors import OptionError, SessionSetupError
from connectors.pool.connect_server import TOKEN_VARIABLE, ConnectServer, connect_settings

_TOKEN = "spark.connect.authenticate.token"  # noqa: S105 - a name


def test_the_token_is_no_setting_where_settings_are_on_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    settings = connect_settings()
    assert _TOKEN not in settings
    assert settings["spark.connect.grpc.binding.address"] == "127.0.0.1"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert len(connect_settings()[_TOKEN]) == 64


class _Session:
    """A session as far as a server looks at it before a call."""

    def __init__(self, **settings: str) -> None:
        self.sparkContext = SimpleNamespace(getConf=lambda: settings, _jvm=None)


def test_a_session_without_server_or_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    wrong: Any = _Session(**{"spark.plugins": "other.Plugin"})
    with pytest.raises(OptionError, match="has to name"):
        ConnectServer(wrong)
    open_to_all: Any = _Session(**{"spark.plugins": "other.Plugin,org.apache.spark.sql.connect.SparkConnectPlugin"})
    with pytest.raises(OptionError, match="is empty"):
        ConnectServer(open_to_all)


def test_what_cannot_be_taken_back_is_said_and_raises_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "0" * 64)
    gone: Any = _Session(**{"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"})
    asyncio.run(ConnectServer(gone).take_back(7, 9))
    assert "sessions of task 7 cannot be closed" in caplog.text


def test_nobody_else_gets_the_port_of_the_other_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    monkeypatch.setenv(TOKEN_VARIABLE, "0" * 64)
    session: Any = _Session(**{"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"})
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = server.getsockname()[1]
        monkeypatch.setattr(ConnectServer, "port", port)
        serving = ConnectServer(session)
        with serving.holding_port():
            try:
                other.bind(("::1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    pytest.skip("no loopback of IPv6")
            else:
                pytest.fail("somebody else has the port")
            with pytest.raises(SessionSetupError, match="another process has"), serving.holding_port():
                pytest.fail("it is held twice")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("::1", port), 5)
        other.bind(("::1", port))
