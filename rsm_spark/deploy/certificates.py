"""A cluster's own authority, and the certificates that it signs.

A certificate names its machine for who connects to it (DNS name or address), and itself by a URI, `rsm-spark:HOST`, by
which bookies and replicas know whose it is (`certificates` of a file of principals).
"""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ledger.errors import UsageError
from rsm_spark.deploy.plan import is_address

_AUTHORITY_DAYS = 3650
_SLACK = timedelta(days=1)  # A machine whose clock is behind takes a new certificate too.


class SignedPair(NamedTuple):
    """A certificate and its private key (PKCS #8), PEM."""

    cert: bytes
    key: bytes


def certificate_name(name: str) -> str:
    """Return the URI that names whose certificate it is."""
    return f"rsm-spark:{name}"


def new_authority(now: datetime) -> SignedPair:
    """Make an authority that signs certificates of one cluster."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rsm-spark cluster")])
    builder = (
        _builder(key, name, now, _AUTHORITY_DAYS)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pem(builder.sign(key, hashes.SHA256()), key)


def sign(authority: SignedPair, name: str, hosts: list[str], now: datetime, days: int) -> SignedPair:
    """Make a key, and a certificate of it for servers and clients.

    Args:
        authority: Signs it.
        name: Whose it is.
        hosts: Names and addresses under which it serves; none for a client alone.
        now: Begin of its time.
        days: Length of its time.

    Raises:
        UsageError: The authority is damaged.

    """
    try:
        signer = load_pem_private_key(authority.key, None)
        issuer = x509.load_pem_x509_certificate(authority.cert)
    except ValueError as error:
        raise UsageError(f"the authority's certificate or key is no PEM, or damaged: {error}") from error
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(host)) if is_address(host) else x509.DNSName(host) for host in hosts
    ]
    names.append(x509.UniformResourceIdentifier(certificate_name(name)))
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(key, subject, now, days)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
    )
    return _pem(builder.sign(signer, hashes.SHA256()), key)  # type: ignore[arg-type]


def _builder(key: ec.EllipticCurvePrivateKey, subject: x509.Name, now: datetime, days: int) -> x509.CertificateBuilder:
    builder: x509.CertificateBuilder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=days))
    )
    return builder


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> SignedPair:
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return SignedPair(cert.public_bytes(Encoding.PEM), text)
