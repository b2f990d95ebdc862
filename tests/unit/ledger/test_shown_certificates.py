"""The end of a certificate, as a small reader finds it and as cryptography does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from ledger.shown_certificates import certificate_ends, end_of_certificate, note_certificate


def _certificate(end: datetime) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a" * 60)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=2))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 2120])
def test_the_end_is_what_was_written(year: int) -> None:
    end = datetime(year, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert end_of_certificate("words\n" + _certificate(end)) == end.timestamp()


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        end_of_certificate(text)


def test_every_prefix_of_a_certificate_is_refused_or_has_its_end() -> None:
    import base64
    import ssl

    end = datetime(2030, 1, 1, tzinfo=UTC)
    der = ssl.PEM_cert_to_DER_cert(_certificate(end))
    for length in range(len(der)):
        body = base64.encodebytes(der[:length]).decode()
        try:
            found = end_of_certificate(f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
        except ValueError:
            continue
        assert found == end.timestamp()


def test_files_that_are_gone_are_left_out(tmp_path: Path) -> None:
    end = datetime(2030, 1, 1, tzinfo=UTC)
    shown, gone = tmp_path / "a.pem", tmp_path / "b.pem"
    shown.write_text(_certificate(end))
    for path in (shown, gone):
        note_certificate(str(path))
    found = certificate_ends()
    assert found[str(shown)] == end.timestamp()
    assert str(gone) not in found
