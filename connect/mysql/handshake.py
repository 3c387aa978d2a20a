"""How a connection begins, without I/O: the server's greeting, our answer, and the proof of the password.

Plugins: mysql_native_password, caching_sha2_password, client_ed25519 (MariaDB), and mysql_clear_password over TLS only.
Source: "Connection Phase" of MariaDB's and MySQL's documentation.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from barnabas.connect.mysql.packets import ProtocolError, nul_bytes

LONG_PASSWORD, FOUND_ROWS, PROTOCOL_41, TLS, TRANSACTIONS = 0x1, 0x2, 0x200, 0x800, 0x2000
SECURE_CONNECTION, PLUGIN_AUTH, PLUGIN_AUTH_LENENC = 0x8000, 0x80000, 0x200000
_OURS = LONG_PASSWORD | FOUND_ROWS | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH | PLUGIN_AUTH_LENENC
_UTF8MB4 = 45
_MAX_PACKET = 1 << 30
NATIVE, SHA2, ED25519, CLEAR = (
    "mysql_native_password",
    "caching_sha2_password",
    "client_ed25519",
    "mysql_clear_password",
)


class AuthError(Exception):
    """The password cannot be proven to this server; the message has the remedy."""


class Greeting(NamedTuple):
    """The server's first message."""

    version: str
    thread_id: int
    capabilities: int
    nonce: bytes
    plugin: str

    @property
    def is_mariadb(self) -> bool:
        return "MariaDB" in self.version


def greeting_of(payload: bytes) -> Greeting:
    """The greeting in the first packet. Raises ProtocolError."""
    if payload[:1] != b"\x0a":
        raise ProtocolError("its greeting is not that of a MariaDB or MySQL server")
    version, at = nul_bytes(payload, 1)
    try:
        thread_id, first, low, _, _, high, size = struct.unpack_from("<I8sxHBHHB", payload, at)
    except struct.error:
        raise ProtocolError("the server's greeting is cut off") from None
    at += 31
    capabilities = low | high << 16
    second = payload[at : at + max(13, size - 8)]
    plugin = nul_bytes(payload, at + len(second))[0] if capabilities & PLUGIN_AUTH else NATIVE.encode()
    if not capabilities & PROTOCOL_41:
        raise ProtocolError("the server is older than MySQL 4.1")
    version_text = version.decode("ascii", "replace").removeprefix("5.5.5-")  # MariaDB's, for old replicas
    return Greeting(version_text, thread_id, capabilities, (first + second)[:20], plugin.decode("ascii", "replace"))


def tls_request() -> bytes:
    """The packet that asks to continue with TLS."""
    return struct.pack("<IIB23x", _OURS | TLS, _MAX_PACKET, _UTF8MB4)


def answer(greeting: Greeting, user: str, proof: bytes, plugin: str, *, tls: bool) -> bytes:
    """Our answer to the greeting."""
    flags = _OURS | (TLS if tls else 0)
    head = struct.pack("<IIB23x", flags, _MAX_PACKET, _UTF8MB4)
    return head + user.encode() + b"\0" + bytes([len(proof)]) + proof + plugin.encode() + b"\0"


def proof_of(plugin: str, password: str, nonce: bytes, *, tls: bool) -> bytes:
    """The proof of the password that a plugin expects. Raises AuthError for an unknown plugin."""
    secret = password.encode()
    if plugin == NATIVE:
        return _native(secret, nonce[:20]) if secret else b""
    if plugin == SHA2:
        return _sha2(secret, nonce[:20]) if secret else b""
    if plugin == ED25519:
        return _ed25519(secret, nonce)
    if plugin == CLEAR:
        if not tls:
            raise AuthError("the server asks for the password as plain text: connect with TLS (?tls=verify)")
        return secret + b"\0"
    raise AuthError(
        f"the server asks for {plugin}, which is not supported: configure the user to authenticate with one of "
        f"{NATIVE}, {SHA2}, {ED25519}"
    )


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _native(secret: bytes, nonce: bytes) -> bytes:
    once = hashlib.sha1(secret).digest()
    return _xor(once, hashlib.sha1(nonce + hashlib.sha1(once).digest()).digest())


def _sha2(secret: bytes, nonce: bytes) -> bytes:
    once = hashlib.sha256(secret).digest()
    return _xor(once, hashlib.sha256(hashlib.sha256(once).digest() + nonce).digest())


def _ed25519(secret: bytes, nonce: bytes) -> bytes:
    """Sign the nonce with the key derived from the password: Ed25519 with a seed of any length."""
    try:
        from nacl import bindings
    except ImportError:
        raise AuthError(
            "the server asks for client_ed25519, which needs the package PyNaCl: pip install 'barnabas[binlog]'"
        ) from None
    order = (1 << 252) + 27742317777372353535851937790883648493
    digest = hashlib.sha512(secret).digest()
    clamped = bytes([digest[0] & 248]) + digest[1:31] + bytes([digest[31] & 63 | 64])
    public = bindings.crypto_scalarmult_ed25519_base_noclamp(clamped)
    r = int.from_bytes(hashlib.sha512(digest[32:] + nonce).digest(), "little") % order
    point = bindings.crypto_scalarmult_ed25519_base_noclamp(r.to_bytes(32, "little"))
    k = int.from_bytes(hashlib.sha512(point + public + nonce).digest(), "little") % order
    s = (k * int.from_bytes(clamped, "little") + r) % order
    return bytes(point + s.to_bytes(32, "little"))
