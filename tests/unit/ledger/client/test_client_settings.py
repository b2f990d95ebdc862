"""What the environment says to every client of a process."""

from __future__ import annotations

import pytest

from ledger import ClientSettings
from ledger.errors import UsageError
from ledger.login import LoginSettings, read_users
from ledger.tls import TlsSettings


def test_connections_are_plain_when_the_environment_names_no_file() -> None:
    assert ClientSettings.from_environment({"RSM_CLIENT__TLS_CA": ""}) == ClientSettings()


def test_connections_are_encrypted_when_the_environment_names_an_authority() -> None:
    assert ClientSettings.from_environment({"RSM_CLIENT__TLS_CA": "ca.pem"}).tls == TlsSettings(ca="ca.pem")


def test_the_own_certificate_comes_from_the_environment() -> None:
    found = ClientSettings.from_environment({"RSM_CLIENT__TLS_CERT": "c.pem", "RSM_CLIENT__TLS_KEY": "k.pem"}).tls
    assert found == TlsSettings(cert="c.pem", key="k.pem")


def test_the_log_in_comes_from_a_file_and_shows_nowhere(tmp_path) -> None:
    file = tmp_path / "login"
    file.write_text("# of the cluster\n\ndigest:bookkeeper-hd:pass:word \n")
    settings = ClientSettings.from_environment({"RSM_CLIENT__AUTH_FILE": str(file)})
    assert settings.login == LoginSettings(user="bookkeeper-hd", password="pass:word ")
    assert "word" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a line"),
        ("hd:secret", "line 1 is not like"),
        ("digest:hd", "line 1 is not like"),
        ("digest:hd:", "line 1 is not like"),
        ("digest::secret", "line 1 is not like"),
        ("digest:hd:sec\tret", "line 1 is not like"),
        ("digest:hd:secret\ndigest:hd:secret", "line 2 names a user for the second time"),
        ("digest:hd:secret\ndigest:other:secret", "expected one line like digest:user:password, found 2"),
    ],
)
def test_a_log_in_file_of_another_form_is_refused_and_not_told(tmp_path, text: str, said: str) -> None:
    file = tmp_path / "login"
    file.write_text(text)
    with pytest.raises(UsageError, match=said) as raised:
        ClientSettings.from_environment({"RSM_CLIENT__AUTH_FILE": str(file)})
    assert "secret" not in str(raised.value)
    with pytest.raises(UsageError, match="cannot read the log-in"):
        read_users(str(tmp_path / "nowhere"))
