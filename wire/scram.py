"""SCRAM with SHA-256 and SHA-512: the messages of both sides, and the keys that they prove. No I/O, no randomness.

    client-first    gs2 header, name, nonce of the client
    server-first    both nonces, salt, iterations
    client-final    the gs2 header again, both nonces, the proof that the client knows the password
    server-final    a signature, the proof that the server knows the credential

Names and passwords are compared as UTF-8 bytes, as in Kafka: there is no SASLprep. Channel binding is not offered, so a
client that asks for it is refused.

Source: RFC 5802, RFC 7677; KIP-84 (mechanisms), KIP-48 (the extension `tokenauth`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import NamedTuple

#: The mechanisms with their codes in AlterUserScramCredentials (KIP-554).
CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
MECHANISMS = {code: name for name, code in CODES.items()}
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: The iteration counts that Kafka accepts.
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
#: A server that asks for more only wants to keep the client busy.
MAX_ASKED_ITERATIONS = 1_000_000
#: The extension of client-first that marks the name as a delegation token's.
TOKEN_AUTH = "tokenauth"
# Printable ASCII without the comma.
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_EXTENSION = re.compile(r"[A-Za-z]+")


class ScramError(ValueError):
    """An invalid message."""


class Credential(NamedTuple):
    """What a server stores instead of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(mechanism: str, password: str | bytes, salt: bytes, iterations: int) -> bytes:
    """The salted password. This takes some milliseconds."""
    secret = password.encode() if isinstance(password, str) else password
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], secret, salt, iterations)


def credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """What a server stores for a salted password."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return Credential(
        salt, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name), iterations
    )


def proof(mechanism: str, salted: bytes, auth_message: bytes) -> bytes:
    """The client's proof."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return _xor(client_key, hmac.digest(stored_key, auth_message, name))


def is_proved(mechanism: str, known: Credential, auth_message: bytes, given: bytes) -> bool:
    """Whether a proof comes from a client that knows the password, in constant time."""
    name = _HASHES[mechanism]
    signature = hmac.digest(known.stored_key, auth_message, name)
    if len(given) != len(signature):
        return False
    return hmac.compare_digest(hashlib.new(name, _xor(given, signature)).digest(), known.stored_key)


def server_signature(mechanism: str, server_key: bytes, auth_message: bytes) -> bytes:
    """The server's proof."""
    return hmac.digest(server_key, auth_message, _HASHES[mechanism])


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


# --- messages ---------------------------------------------------------------------------------------------------------


class ClientFirst(NamedTuple):
    """`gs2` is the header that client-final must repeat, `bare` what both sides sign."""

    gs2: str
    bare: str
    authzid: str
    name: str
    nonce: str
    extensions: dict[str, str]


class ServerFirst(NamedTuple):
    text: str
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """`bare` is everything before the proof."""

    bare: str
    gs2: str
    nonce: str
    proof: bytes


def client_first(name: str, nonce: str, extensions: dict[str, str] | None = None) -> ClientFirst:
    """The client's first message."""
    more = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
    return ClientFirst("n,,", f"n={_quoted(name)},r={nonce}{more}", "", name, nonce, extensions or {})


def parse_client_first(data: bytes) -> ClientFirst:
    """Parse the client's first message. Raises ScramError, also for channel binding and mandatory extensions."""
    text = _text(data)
    binding, comma, rest = text.partition(",")
    if binding not in ("n", "y"):
        raise ScramError("channel binding is not served")
    authzid, second, bare = rest.partition(",")
    if not comma or not second or (authzid and not authzid.startswith("a=")):
        raise ScramError("the gs2 header is malformed")
    name, nonce, *more = _attributes(bare, "n", "r")
    if not _NONCE.fullmatch(nonce):
        raise ScramError("the nonce is malformed")
    return ClientFirst(
        f"{binding},{authzid},", bare, _unquoted(authzid.removeprefix("a=")), _unquoted(name), nonce, _extensions(more)
    )


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    """The server's first message; `nonce` is the client's, followed by the server's."""
    return f"r={nonce},s={_b64(salt)},i={iterations}"


def parse_server_first(data: bytes) -> ServerFirst:
    """Parse the server's first message. Raises ScramError."""
    text = _text(data)
    nonce, salt, iterations, *_ = _attributes(text, "r", "s", "i")
    if not iterations.isascii() or not iterations.isdigit() or len(iterations) > 9:
        raise ScramError("the iterations are malformed")
    return ServerFirst(text, nonce, _unb64(salt), int(iterations))


def client_final_bare(gs2: str, nonce: str) -> str:
    """The client's last message, without its proof."""
    return f"c={_b64(gs2.encode())},r={nonce}"


def client_final(bare: str, given: bytes) -> str:
    """The client's last message."""
    return f"{bare},p={_b64(given)}"


def parse_client_final(data: bytes) -> ClientFinal:
    """Parse the client's last message. Raises ScramError."""
    text = _text(data)
    bare, comma, last = text.rpartition(",p=")
    if not comma:
        raise ScramError("there is no proof")
    gs2, nonce, *more = _attributes(bare, "c", "r")
    _extensions(more)
    try:
        return ClientFinal(bare, _unb64(gs2).decode(), nonce, _unb64(last))
    except UnicodeDecodeError:
        raise ScramError("the channel binding is malformed") from None


def server_final(signature: bytes) -> str:
    """The server's last message."""
    return f"v={_b64(signature)}"


def parse_server_final(data: bytes) -> bytes:
    """The server's signature. Raises ScramError with the server's error, if it sent one."""
    text = _text(data)
    if text.startswith("e="):
        raise ScramError(text[2:])
    (signature, *_) = _attributes(text, "v")
    return _unb64(signature)


def auth_message(first_bare: str, server_first_text: str, final_bare: str) -> bytes:
    """The message that both sides sign."""
    return f"{first_bare},{server_first_text},{final_bare}".encode()


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ScramError("the message is not UTF-8") from None
    if "\0" in text:
        raise ScramError("the message has a NUL")
    return text


def _attributes(text: str, *names: str) -> list[str]:
    """The values of the attributes that must come first, in this order, followed by the other attributes unchanged."""
    parts = text.split(",")
    if parts[0].startswith("m="):
        raise ScramError("an extension that must be understood is not known")
    values = []
    for name, part in zip(names, parts, strict=False):
        if not part.startswith(f"{name}="):
            raise ScramError(f"{name}= is missing")
        values.append(part[2:])
    if len(values) < len(names):
        raise ScramError(f"{names[len(values)]}= is missing")
    return [*values, *parts[len(names) :]]


def _extensions(parts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not value or not _EXTENSION.fullmatch(key) or key in found:
            raise ScramError("an extension is malformed")
        if key == "m":
            raise ScramError("an extension that must be understood is not known")
        found[key] = value
    return found


def _quoted(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unquoted(name: str) -> str:
    if re.search(r"=(?!2C|3D)", name):
        raise ScramError("the name is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("what should be base64 is not") from None
