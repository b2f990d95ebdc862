from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import UsageError
from ledger.tls import TlsSettings
from ledger.zookeeper.tls_file import TLS_FILE_VARIABLE, tls_of


def test_the_files_are_read_from_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TLS_FILE_VARIABLE, raising=False)
    assert tls_of() is None
    file = tmp_path / "zk.toml"
    file.write_text('ca = "ca.pem"\ncert = "/etc/zk/cert.pem"\nkey = "/etc/zk/key.pem"\n')
    monkeypatch.setenv(TLS_FILE_VARIABLE, str(file))
    told = TlsSettings(ca=str(tmp_path / "ca.pem"), cert="/etc/zk/cert.pem", key="/etc/zk/key.pem")
    assert tls_of() == told
    file.write_text("check_hostname = false\n")
    assert tls_of(str(file)) == TlsSettings(check_hostname=False)


@pytest.mark.parametrize(
    ("text", "said"), [("ca = 7", "ca"), ('trustStore = "x"', "trustStore"), ("ca", "TOML"), ('[ca]\na = ""', "flat")]
)
def test_a_file_of_another_form_is_named_with_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "zk.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=rf"zk\.toml.*{said}"):
        tls_of(str(file))
    with pytest.raises(UsageError, match="missing"):
        tls_of(str(tmp_path / "missing"))
