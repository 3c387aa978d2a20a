"""The proof of a password, checked as the server does; and the addresses of servers."""

from __future__ import annotations

import hashlib

import pytest

from barnabas.connect.mysql import handshake
from barnabas.connect.mysql.packets import ProtocolError
from barnabas.connect.mysql.source import SourceError, source_of

NONCE = bytes(range(1, 21))


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def test_the_native_proof_gives_the_stored_hash_back() -> None:
    """The server has only SHA1(SHA1(password))."""
    stored = hashlib.sha1(hashlib.sha1(b"secret").digest()).digest()
    proof = handshake.proof_of(handshake.NATIVE, "secret", NONCE, tls=False)
    once = xor(proof, hashlib.sha1(NONCE + stored).digest())
    assert hashlib.sha1(once).digest() == stored


def test_the_sha2_proof_gives_the_stored_hash_back() -> None:
    stored = hashlib.sha256(hashlib.sha256(b"secret").digest()).digest()
    proof = handshake.proof_of(handshake.SHA2, "secret", NONCE, tls=False)
    once = xor(proof, hashlib.sha256(stored + NONCE).digest())
    assert hashlib.sha256(once).digest() == stored


def test_no_password_proves_nothing() -> None:
    assert handshake.proof_of(handshake.NATIVE, "", NONCE, tls=False) == b""


def test_the_password_itself_goes_over_tls_only() -> None:
    with pytest.raises(handshake.AuthError, match="connect with TLS"):
        handshake.proof_of(handshake.CLEAR, "secret", NONCE, tls=False)
    assert handshake.proof_of(handshake.CLEAR, "secret", NONCE, tls=True) == b"secret\0"


def test_an_unknown_plugin_is_named() -> None:
    with pytest.raises(handshake.AuthError, match="auth_gssapi_client, which is not supported"):
        handshake.proof_of("auth_gssapi_client", "secret", NONCE, tls=True)


def test_the_ed25519_proof_is_a_signature_of_the_nonce() -> None:
    bindings = pytest.importorskip("nacl.bindings", reason="PyNaCl is not installed: make setup-all")
    signature = handshake.proof_of(handshake.ED25519, "secret", NONCE + bytes(12), tls=False)
    digest = hashlib.sha512(b"secret").digest()
    clamped = bytes([digest[0] & 248]) + digest[1:31] + bytes([digest[31] & 63 | 64])
    public = bindings.crypto_scalarmult_ed25519_base_noclamp(clamped)
    assert bindings.crypto_sign_open(signature + NONCE + bytes(12), public) == NONCE + bytes(12)


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PWD", "from outside")
    source = source_of("mysql://me@db.example:3307?tls=verify&ca=/etc/ca.pem")
    assert (source.host, source.port, source.user, source.password) == ("db.example", 3307, "me", "from outside")
    assert (source.tls, source.ca) == ("verify", "/etc/ca.pem")
    given = source_of("mariadb://a%40b:p%3Aw@127.0.0.1")
    assert (given.user, given.password, given.port) == ("a@b", "p:w", 3306)
    assert "p:w" not in f"{given} {given!r}"


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:3306", "http://u@h", "mysql://h", "mysql://u@h:x", "mysql://u@h/db", "mysql://u@h?tls=maybe"]
)
def test_what_is_no_address_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(SourceError, match=r"write mysql://USER@HOST|is none of off, require, verify"):
        source_of(url)


@pytest.mark.parametrize("data", [b"", b"\x09old\0", b"\x0a5.7\0abc"])
def test_what_greets_in_no_way_we_know_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        handshake.greeting_of(data)
