"""The certificate of a broker of ours: one that we make and pin, or one that was brought."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import ShoalError

CERTIFICATE, KEY = "broker.crt", "broker.key"


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate chain and its private key, in PEM files that we can read."""

    certificate: Path
    key: Path
    pin: str
    """fingerprint of the certificate's key"""
    proves_name: bool
    """whether it was brought: clients then ask their certificate authorities about it"""

    def context(self) -> ssl.SSLContext:
        """For a server in this process."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # With an empty passphrase one that is needed is an error, else it is asked for.
        context.load_cert_chain(self.certificate, self.key, password="")
        return context

    def url(self, host: str, port: int) -> str:
        """Where others reach a broker with that certificate."""
        place = f"[{host}]" if ":" in host else host
        pin = "" if self.proves_name else f"#.{self.pin}"
        return f"mqtts://{place}:{port}{pin}"


def own(directory: Path, names: list[str]) -> Tls:
    """The self-signed certificate in a directory, made for `names` where there is none yet.

    The same one after every restart: join lines pin its key. Raises ShoalError.
    """
    certificate, key = directory / CERTIFICATE, directory / KEY
    try:
        if not (certificate.exists() and key.exists()):
            directory.mkdir(parents=True, exist_ok=True)
            from protocol.certificate import self_signed  # takes a moment to load

            made, private = self_signed(names)
            key.unlink(missing_ok=True)
            with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(private)
            certificate.write_bytes(made)
        return _read(certificate, key, proves_name=False)
    except OSError as error:
        raise ShoalError(
            f"the broker's certificate can't be kept in {directory} ({error.strerror}): see to the "
            "disk, or bring one with --tls-cert and --tls-key"
        ) from None


def brought(certificate: Path, key: Path) -> Tls:
    """A certificate that somebody else made. Raises ShoalError where the pair can't be used.

    One that is its own authority is pinned as ours is.
    """
    try:
        return _read(certificate, key, proves_name=True)
    except OSError as error:
        raise ShoalError(
            f"--tls-cert {certificate} and --tls-key {key} must be a certificate and its private "
            f"key in PEM without a passphrase ({error.strerror or error}): give readable ones"
        ) from None


def _read(certificate: Path, key: Path, *, proves_name: bool) -> Tls:
    """Raises OSError (ssl.SSLError is one) where the two don't fit."""
    from cryptography.x509 import load_pem_x509_certificate

    from protocol.certificate import certificate_fingerprint

    try:
        content = certificate.read_bytes()
        pin = certificate_fingerprint(content)
    except ValueError:
        raise OSError(f"{certificate} holds no certificate") from None
    parsed = load_pem_x509_certificate(content)
    tls = Tls(certificate, key, pin, proves_name and parsed.issuer != parsed.subject)
    tls.context()
    return tls
