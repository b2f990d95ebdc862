"""What the environment says to every client of a process."""

from __future__ import annotations

from ledger import ClientSettings
from ledger.tls import TlsSettings


def test_connections_are_plain_when_the_environment_names_no_file() -> None:
    assert ClientSettings.from_environment({"RSM_CLIENT__TLS_CA": ""}) == ClientSettings()


def test_connections_are_encrypted_when_the_environment_names_an_authority() -> None:
    assert ClientSettings.from_environment({"RSM_CLIENT__TLS_CA": "ca.pem"}).tls == TlsSettings(ca="ca.pem")


def test_the_own_certificate_comes_from_the_environment() -> None:
    found = ClientSettings.from_environment({"RSM_CLIENT__TLS_CERT": "c.pem", "RSM_CLIENT__TLS_KEY": "k.pem"}).tls
    assert found == TlsSettings(cert="c.pem", key="k.pem")
