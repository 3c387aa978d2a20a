"""Reads (never writes) Java's own key store format, JKS: private keys with their chains, and trusted certificates.

    magic, version, count, entries: tag, alias, time, then
        1: the encrypted key, and a chain of certificates      2: one certificate
    SHA-1 of the password, "Mighty Aphrodite" and everything before

A key is a PKCS #8 EncryptedPrivateKeyInfo under an algorithm of the JDK's own: a SHA-1 key stream, and a SHA-1 digest.
This is weak, and tools no longer write it by default (keytool's default has been PKCS12 since Java 9). Kafka reads it,
so this broker does too.

Source: the JDK's `sun.security.provider.JavaKeyStore` and `KeyProtector`, and files that keytool wrote.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.client.keystores import der

MAGIC = b"\xfe\xed\xfe\xed"
_KEY, _CERTIFICATE = 1, 2
_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"
_DIGEST = 20


class JksError(ValueError):
    """What is wrong with a key store. The message never contains the password."""


class WrongPassword(JksError):
    """The password does not fit the store, or a key in it."""


class JksKey(NamedTuple):
    """A private key, still encrypted, and its chain in DER, with its own certificate first."""

    encrypted: bytes
    chain: tuple[bytes, ...]


class Jks(NamedTuple):
    keys: list[JksKey]
    trusted: list[bytes]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise JksError("the file is cut short")
        found, self._at = self._data[self._at : end], end
        return found

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def certificate(self, version: int) -> bytes:
        if version == 2:
            kind = self.take(self.number(2))
            if kind != b"X.509":
                raise JksError("it has a certificate that is not X.509")
        return self.take(self.number(4))


def read(data: bytes, password: str | None) -> Jks:
    """A key store's entries. Without a password, tampering is not detected. Raises JksError."""
    if len(data) < len(MAGIC) + _DIGEST:
        raise JksError("the file is cut short")
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if password is not None:
        found = hashlib.sha1(_bytes(password) + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(found, digest):
            raise WrongPassword("the password is wrong, or the file is damaged")
    reader = _Reader(body)
    if reader.take(4) != MAGIC or (version := reader.number(4)) not in (1, 2):
        raise JksError("it is not a JKS key store")
    store = Jks([], [])
    for _ in range(reader.number(4)):
        tag = reader.number(4)
        reader.take(reader.number(2))  # the alias
        reader.take(8)  # the time of creation
        if tag == _KEY:
            encrypted = reader.take(reader.number(4))
            chain = tuple(reader.certificate(version) for _ in range(reader.number(4)))
            store.keys.append(JksKey(encrypted, chain))
        elif tag == _CERTIFICATE:
            store.trusted.append(reader.certificate(version))
        else:
            raise JksError(f"it has an entry of kind {tag}")
    return store


def decrypt(key: JksKey, password: str) -> bytes:
    """The private key as PKCS #8 in DER. Raises JksError."""
    try:
        algorithm, protected, *_ = der.elements(der.only(key.encrypted, der.SEQUENCE).content)
        if der.oid(der.only(algorithm.content, der.OID).content) != _PROTECTOR:
            raise JksError("its key is encrypted by an algorithm that is not known")
    except (der.DerError, ValueError) as error:
        raise error if isinstance(error, JksError) else JksError("its key is damaged") from None
    secret, text = _bytes(password), protected.content
    salt, cipher, check = text[:_DIGEST], text[_DIGEST:-_DIGEST], text[-_DIGEST:]
    stream = _stream(secret, salt)
    plain = bytes(a ^ b for a, b in zip(cipher, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), check):
        raise WrongPassword("the password of its key is wrong")
    return plain


def _stream(secret: bytes, salt: bytes) -> Iterator[int]:
    block = salt
    while True:
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        yield from block


def _bytes(password: str) -> bytes:
    return password.encode("utf-16-be")
