"""The streams driver's own certificate, for listeners that ask each client for one (`ssl.client.auth`).

Key and certificate follow from the driver's secret, so all nodes of a broker make the same ones. They only let the
driver connect: it is nobody until it has logged in with the secret.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import NamedTuple


class DriverCertificate(NamedTuple):
    """The private key (PEM, PKCS #8), and the self-signed certificate of its public key (PEM, and DER)."""

    key: str
    certificate: str
    der: bytes


def driver_certificate(secret: str) -> DriverCertificate:
    """The certificate for a driver's secret; the same one each time. Raises ImportError without `cryptography`."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    seed = hashlib.sha256(b"barnabas streams driver\0" + secret.encode()).digest()
    key = Ed25519PrivateKey.from_private_bytes(seed)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "barnabas-streams-driver")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key())
        .serial_number(1 + int.from_bytes(hashlib.sha256(seed).digest()[:8]))
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, None)
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return DriverCertificate(pem, made.public_bytes(Encoding.PEM).decode(), made.public_bytes(Encoding.DER))
