"""Certificates of a broker of ours: made, and named by the fingerprint of their key."""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from protocol.identity import fingerprint

_VALID_DAYS = 20 * 365
"""Whoever knows the fingerprint does not look at the dates; others get them out of the way."""


def certificate_fingerprint(certificate: bytes) -> str:
    """The 26 letters and digits that name the public key in a certificate (DER, or PEM).

    A renewed certificate of the same key has the same ones. Raises ValueError for no certificate.
    """
    if certificate.lstrip().startswith(b"-----"):
        parsed = x509.load_pem_x509_certificate(certificate)
    else:
        parsed = x509.load_der_x509_certificate(certificate)
    key = parsed.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return fingerprint(key)


def self_signed(names: list[str]) -> tuple[bytes, bytes]:
    """A new certificate for host names and addresses, and its private key: both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shoal broker")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return built.public_bytes(Encoding.PEM), private


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
