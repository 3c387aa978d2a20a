"""Reads private keys, their certificates and trusted certificates as Kafka's settings name them: PEM, PKCS12 or JKS.

PEM is a file or the text of a setting (KIP-651). Like the JDK, this reads a store of type JKS or PKCS12 by its actual
format. Secrets stay in memory, and appear in no message.

Source: KIP-651 (PEM), RFC 7292 (PKCS12), `client.keystores.jks`.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.keystores import jks
from barnabas.wire import portable

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MAX_FILE = 16 << 20
# A handshake with a longer key would hold up all other clients for too long.
MAX_RSA_BITS = 4096
_JCEKS = b"\xce\xce\xce\xce"
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_TO_PKCS12 = "convert it: keytool -importkeystore -srckeystore OLD -destkeystore NEW -deststoretype PKCS12"


class Identity(NamedTuple):
    """A private key and its chain as PEM, with its own certificate first; and the names in that certificate."""

    pem: bytes
    subject: str
    names: frozenset[str]


class StoreError(ValueError):
    """A store that cannot be used: reason and remedy, without the setting's name and without its secrets."""


def _cryptography() -> Any:
    try:
        import cryptography.x509
    except ImportError:
        remedy = "run `make setup-all` in its checkout, or pip install 'PATH[security]'"
        raise StoreError(f"TLS needs the library cryptography: {remedy}") from None
    return cryptography.x509


def read_identities(values: Mapping[str, Any]) -> list[Identity]:
    """The keys with which this side proves its identity, from the values of the settings `ssl.*`.

    Raises StoreError with the key, the file, the reason and the remedy.
    """
    kind, location = _kind(values, "keystore"), values["ssl.keystore.location"]
    texts = [values["ssl.keystore.key"], values["ssl.keystore.certificate.chain"]]
    if any(texts):
        if kind != "PEM" or not all(texts):
            raise StoreError(
                "ssl.keystore.key and ssl.keystore.certificate.chain go together, with ssl.keystore.type=PEM"
            )
        if location:
            raise StoreError("ssl.keystore.location and ssl.keystore.key are both set: remove one of them")
        with _told("ssl.keystore.key"):
            return [_pem_identity("\n".join(texts), values["ssl.key.password"])]
    if not location:
        raise StoreError("ssl.keystore.location is not set: name a file with the broker's key and certificates")
    with _told(f"ssl.keystore.location={location}"):
        data = _read(location)
        password = values["ssl.keystore.password"]
        if kind == "PEM":
            if password:
                raise StoreError("a PEM file has no password of its own: set ssl.key.password instead")
            return [_pem_identity(_text(data), values["ssl.key.password"])]
        if password is None:
            raise StoreError("its password is missing: set ssl.keystore.password")
        return _binary_identities(data, password, values["ssl.key.password"] or password)


def read_trusted(values: Mapping[str, Any]) -> list[bytes] | None:
    """The trusted certificates in DER, for checking the other side's; None if none are named. Raises StoreError."""
    kind, location = _kind(values, "truststore"), values["ssl.truststore.location"]
    text = values["ssl.truststore.certificates"]
    if text:
        if kind != "PEM":
            raise StoreError("ssl.truststore.certificates needs ssl.truststore.type=PEM")
        if location:
            raise StoreError("ssl.truststore.location and ssl.truststore.certificates are both set: remove one of them")
        with _told("ssl.truststore.certificates"):
            return _some(_certificates(text))
    if not location:
        return None
    with _told(f"ssl.truststore.location={location}"):
        data, password = _read(location), values["ssl.truststore.password"]
        if kind == "PEM":
            if password:
                raise StoreError("a PEM file has no password: remove ssl.truststore.password")
            return _some(_certificates(_text(data)))
        return _some(_binary_trusted(data, password))


def certificates_of(identity: Identity) -> str:
    """The chain without the key, as PEM."""
    return "".join(pem for label, pem in _blocks(identity.pem.decode("ascii")) if label == "CERTIFICATE")


def load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    """Load an identity. Python reads keys from files only, so this one is in memory and private. Raises StoreError."""
    try:
        with _as_file(identity.pem) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise StoreError(f"OpenSSL does not take the key and certificate of the key store: {error.reason}") from None


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """The path of a file in memory; on a system without these, of a file that only this user can open."""
    if portable.has(os, "memfd_create"):
        file = os.memfd_create("tls")
        try:
            os.write(file, data)
            yield f"/proc/self/fd/{file}"
        finally:
            os.close(file)
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(data)
            named.flush()
            yield named.name


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Errors raised inside get the name of their origin."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{where}: {error}") from None


def _kind(values: Mapping[str, Any], store: str) -> str:
    kind: str = values[f"ssl.{store}.type"].upper()
    if kind not in ("JKS", "PKCS12", "PEM"):
        raise StoreError(f"ssl.{store}.type={kind} is not supported: take PEM, PKCS12 or JKS")
    return kind


def _read(location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no name of a file"
        raise StoreError(f"cannot read the file: {why}") from None
    if len(data) > MAX_FILE:
        raise StoreError(f"the file has more than {MAX_FILE >> 20} MiB: it is not a key store")
    return data


def _text(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise StoreError("it is not a PEM file: set the type to PKCS12 or JKS, or name another file") from None


def _some(certificates: list[bytes]) -> list[bytes]:
    if not certificates:
        raise StoreError("it has no certificate: put the one of the certificate authority in")
    for each in certificates:
        _parsed(each)
    return certificates


# --- PEM --------------------------------------------------------------------------------------------------------------


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield (label, PEM) for each block. In a setting, a block's lines may have become one line."""
    for label, body in _PEM.findall(text):
        if ":" in body:  # in the old form of encryption, headers come before the base64
            yield label, f"-----BEGIN {label}-----{body}-----END {label}-----\n"
            continue
        lines = "\n".join(re.findall(".{1,64}", "".join(body.split())))
        yield label, f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def _certificates(text: str) -> list[bytes]:
    found = []
    for label, pem in _blocks(text):
        if label == "CERTIFICATE":
            try:
                found.append(base64.b64decode("".join(pem.splitlines()[1:-1]), validate=True))
            except binascii.Error:
                raise StoreError("it has a certificate that is damaged: its base64 ends too early") from None
    return found


def _pem_identity(text: str, password: str | None) -> Identity:
    _cryptography()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    keys = [pem for label, pem in _blocks(text) if label.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise StoreError(f"it has {len(keys) or 'no'} private key{'s' * (len(keys) > 1)}: there must be one")
    is_encrypted = "ENCRYPTED" in keys[0]
    if is_encrypted and not password:
        raise StoreError("its key is encrypted: set ssl.key.password")
    try:
        key = load_pem_private_key(keys[0].encode(), password.encode() if is_encrypted and password else None)
    except Exception:  # of many kinds, and some contain the text
        hint = "the password is wrong (ssl.key.password), or the key is damaged" if is_encrypted else "it is damaged"
        raise StoreError(f"its private key cannot be read: {hint}") from None
    return _identity(key, _certificates(text))


# --- PKCS12 and JKS ---------------------------------------------------------------------------------------------------


def _binary_identities(data: bytes, password: str, key_password: str) -> list[Identity]:
    _cryptography()
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    if data.startswith(jks.MAGIC):
        try:
            store = jks.read(data, password)
            keys = [(jks.decrypt(key, key_password), key.chain) for key in store.keys]
        except jks.WrongPassword as error:
            raise StoreError(f"{error}: check ssl.keystore.password and ssl.key.password") from None
        except jks.JksError as error:
            raise StoreError(f"{error}; {_TO_PKCS12}") from None
        if not keys:
            raise StoreError("it has no private key: make one with keytool -genkeypair")
        try:
            return [_identity(load_der_private_key(plain, None), list(chain)) for plain, chain in keys]
        except (ValueError, TypeError):
            raise StoreError("its private key cannot be read: it is damaged") from None
    key, certificate, others = _pkcs12(data, password, "ssl.keystore.password")
    if key is None or certificate is None:
        raise StoreError("it has no private key with a certificate: make one with openssl pkcs12 -export -inkey")
    return [_identity(key, _chain(certificate, others))]


def _binary_trusted(data: bytes, password: str | None) -> list[bytes]:
    if data.startswith(jks.MAGIC):
        try:
            return jks.read(data, password).trusted
        except jks.WrongPassword as error:
            raise StoreError(f"{error}: check ssl.truststore.password") from None
        except jks.JksError as error:
            raise StoreError(f"{error}; {_TO_PKCS12}") from None
    if password is None:
        raise StoreError("its password is missing: set ssl.truststore.password")
    _, certificate, others = _pkcs12(data, password, "ssl.truststore.password")
    return [*([certificate] if certificate else []), *others]


def _pkcs12(data: bytes, password: str, setting: str) -> tuple[Any, bytes | None, list[bytes]]:
    """The key, its certificate, and the other certificates, in DER."""
    if data.startswith(_JCEKS):
        raise StoreError(f"it is a JCEKS key store, which is not supported; {_TO_PKCS12}")
    if data.lstrip().startswith(b"-----BEGIN"):
        raise StoreError("it is a PEM file: set its type to PEM")
    _cryptography()
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    if not data.startswith(b"\x30"):
        raise StoreError("it is neither PKCS12 nor JKS: name another file")
    try:
        store = load_pkcs12(data, password.encode())
    except Exception:  # of many kinds, and some contain parts of the file
        raise StoreError(f"the password is wrong ({setting}), or the file is damaged") from None
    own = store.cert.certificate.public_bytes(Encoding.DER) if store.cert else None
    return store.key, own, [each.certificate.public_bytes(Encoding.DER) for each in store.additional_certs]


def _chain(certificate: bytes, others: Sequence[bytes]) -> list[bytes]:
    """The chain from a certificate to its signer, and so on: PKCS12 stores them in any order."""
    chain, last = [certificate], _parsed(certificate)
    left = {each: _parsed(each) for each in others}
    while last.issuer != last.subject:
        signer = next((der for der, each in left.items() if each.subject == last.issuer), None)
        if signer is None:
            break
        chain.append(signer)
        last = left.pop(signer)
    return chain


# --- both -------------------------------------------------------------------------------------------------------------


def _parsed(certificate: bytes) -> Certificate:
    x509 = _cryptography()
    try:
        found: Certificate = x509.load_der_x509_certificate(certificate)
    except Exception:
        raise StoreError("it has a certificate that is damaged") from None
    return found


def _identity(key: Any, chain: list[bytes]) -> Identity:
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if not chain:
        raise StoreError("it has no certificate: put the certificate of the key in, and what signed it")
    if not isinstance(
        key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
    ):
        raise StoreError("its key is of a kind that TLS does not use: make an RSA or EC key")
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size > MAX_RSA_BITS:
        raise StoreError(
            f"its RSA key has {key.key_size} bits, and each handshake would hold up all clients: "
            f"take EC P-256, or RSA of at most {MAX_RSA_BITS} bits"
        )
    own = _parsed(chain[0])
    if own.public_key() != key.public_key():
        raise StoreError("its certificate is not the one of its key: put the key's own certificate first")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem += b"".join(_parsed(each).public_bytes(Encoding.PEM) for each in chain)
    return Identity(pem, *_said_names(own))


def _said_names(certificate: Certificate) -> tuple[str, frozenset[str]]:
    """A certificate's subject and alternative names."""
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except (ExtensionNotFound, ValueError):
        return certificate.subject.rfc4514_string(), frozenset()
    return certificate.subject.rfc4514_string(), frozenset(f"{type(n).__name__}:{n.value}" for n in names)
