"""Certificates for servers that only a test knows."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any


def authority(folder: Path, names: Sequence[str]) -> tuple[Path, ssl.SSLContext]:
    """A certificate authority of this test, and a server certificate for `names`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def certificate(subject: str, key: Any, issuer_key: Any, *, ca: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("Test Authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            alternatives = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
            made = made.add_extension(alternatives, critical=False)
        return made.sign(issuer_key, hashes.SHA256())

    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = certificate("Test Authority", root_key, root_key, ca=True)
    leaf = certificate(names[0], key, root_key, ca=False)
    ca_file, pem = folder / "ca.pem", folder / "server.pem"
    ca_file.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    pem.write_bytes(
        leaf.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return ca_file, context
