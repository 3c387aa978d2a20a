"""Certificates for tests: an authority, and the certificates that it signs, as PEM, PKCS12 and JKS.

    ca = Authority()
    broker = ca.issue("broker")                  # for localhost, 127.0.0.1 and ::1
    alice = ca.issue("alice", organization="Example")
    broker.pem(folder / "broker.pem")            # key and chain
    alice.pkcs12(folder / "alice.p12", "secret")
    ca.trust_pem(folder / "ca.pem")

Keys are made quickly (EC P-256) unless RSA is asked for. JKS files are made by Java's keytool.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
LOCAL = ("localhost", "127.0.0.1", "::1")
DAY = datetime.timedelta(days=1)


def new_key(kind: str = "ec") -> Key:
    """An EC key of P-256 ("ec"), or an RSA key of the named size ("rsa2048")."""
    if kind == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=int(kind.removeprefix("rsa")))


def keytool(*words: str) -> None:
    """Run Java's keytool."""
    command = ["keytool", "-J-XX:TieredStopAtLevel=1", *words]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}  # for passwords that are not ASCII
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def has_keytool() -> bool:
    """Whether JKS files can be made."""
    return shutil.which("keytool") is not None


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


@dataclass(frozen=True)
class Issued:
    """A key, its certificate, and its issuers' certificates."""

    key: Key
    certificate: x509.Certificate
    chain: Sequence[x509.Certificate]

    def key_pem(self, password: str | None = None) -> str:
        """The key in PEM, encrypted if there is a password."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)).decode()

    def chain_pem(self) -> str:
        """The certificates in PEM, its own first."""
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in (self.certificate, *self.chain))

    def pem(self, path: Path, password: str | None = None) -> str:
        """Write key and chain to a file; returns its name."""
        path.write_text(self.key_pem(password) + self.chain_pem())
        return str(path)

    def pkcs12(self, path: Path, password: str) -> str:
        """Write key and chain to a file; returns its name."""
        own, chain = self.certificate, self.chain
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"own", self.key, own, chain, _encryption(password)))
        return str(path)

    def jks(self, path: Path, password: str) -> str:
        """Write a file in Java's own format; returns its name."""
        source = self.pkcs12(path.with_suffix(".for-jks.p12"), "source")
        of, to = ("-srckeystore", source, "-srcstoretype", "PKCS12"), ("-destkeystore", str(path))
        stores = ("-srcstorepass", "source", "-deststorepass", password)
        keys = ("-srcalias", "own", "-srckeypass", "source", "-destkeypass", password)
        keytool("-importkeystore", *of, *to, "-deststoretype", "JKS", *stores, *keys, "-noprompt")
        return str(path)


@dataclass
class Authority:
    """A certificate authority. One that is `below` another has a certificate that the other one signed."""

    name: str = "Test CA"
    below: Authority | None = None
    key: Key = field(default_factory=new_key)
    certificate: x509.Certificate = field(init=False)

    def __post_init__(self) -> None:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        signer = self.below or self
        issuer = subject if self.below is None else self.below.certificate.subject
        builder = _builder(subject, issuer, self.key, -DAY, 3650 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    def issue(
        self,
        common_name: str = "broker",
        *,
        organization: str | None = None,
        subject: x509.Name | None = None,
        hosts: Sequence[str] = LOCAL,
        kind: str = "ec",
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = 365 * DAY,
        usage: x509.ObjectIdentifier | None = None,
        key: Key | None = None,
    ) -> Issued:
        """A certificate for a broker or a client. It is valid from `begins` to `ends`, relative to now."""
        if subject is None:
            parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
            if organization:
                parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
            subject = x509.Name(parts)
        key = key or new_key(kind)
        builder = _builder(subject, self.certificate.subject, key, begins, ends)
        if hosts:
            names = [_host(each) for each in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        usages = [usage] if usage else [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        chain = [] if self.below is None else [self.certificate]
        return Issued(key, builder.sign(self.key, hashes.SHA256()), chain)

    def trust_text(self) -> str:
        """The authority's certificate in PEM."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def trust_pem(self, path: Path) -> str:
        """Write the authority's certificate to a file; returns its name."""
        path.write_text(self.trust_text())
        return str(path)

    def trust_store(self, path: Path, password: str, kind: str) -> str:
        """Make a trust store with keytool, JKS or PKCS12; returns its name."""
        source = self.trust_pem(path.with_suffix(".for-store.pem"))
        words = ("-file", source, "-keystore", str(path), "-storetype", kind, "-storepass", password)
        keytool("-importcert", "-alias", "ca", *words, "-noprompt")
        return str(path)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, begins: datetime.timedelta, ends: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now + begins).not_valid_after(now + ends)
