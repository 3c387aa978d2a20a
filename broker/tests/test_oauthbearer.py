"""Tokens of OAUTHBEARER: which are accepted, with which keys, and attempts at forging them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
import trio
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from barnabas.broker.clock import Clock
from barnabas.broker.log import EventLog
from barnabas.broker.security.oauthbearer import (
    MAX_KEYS_BYTES,
    Checked,
    OAuthSettings,
    TokenChecker,
    TokenError,
    parse_first,
)
from barnabas.broker.security.principals import Principal
from barnabas.broker.security.sasl import AuthenticationFailed, NotYet
from barnabas.broker.tests.client import connect
from barnabas.broker.tests.conftest import Start
from barnabas.broker.tests.sasl_client import choose, token
from barnabas.client.urls import read_url
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.metadata import MetadataRequest


@cache
def named(name: str) -> Any:
    """The key for a name, made at its first use."""
    return ec.generate_private_key(ec.SECP256R1()) if name == "ec" else rsa.generate_private_key(65537, 2048)


def jwk(key: Any, kid: str | None, **more: str) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    found: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    found.update(more)
    if kid is not None:
        found["kid"] = kid
    return found


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    return {
        "sub": "alice",
        "iat": now,
        "exp": now + 60,
        "iss": "https://issuer",
        "aud": "broker",
        "scope": "a b",
    } | more


def signed(key: str = "rsa", algorithm: str = "RS256", kid: str | None = "r", **more: Any) -> str:
    payload = {name: value for name, value in claims(**more).items() if value is not None}
    return jwt.encode(payload, named(key), algorithm, headers={} if kid is None else {"kid": kid})


@pytest.fixture
async def checker() -> TokenChecker:
    settings = OAuthSettings("file:/none", 1000, 1, 1, ("broker", "other"), "https://issuer", 30, "scope", "sub")
    found = TokenChecker(settings, Clock(), EventLog())
    found.use(jwks(jwk(named("rsa"), "r"), jwk(named("ec"), "e"), jwk(named("other"), "enc", use="enc")))
    found._last, found._is_reading = trio.current_time(), False  # as after a read of the keys that has just finished
    return found


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"), [("rsa", "RS256", "r"), ("rsa", "PS512", "r"), ("ec", "ES256", "e")]
)
async def test_what_is_signed_is_taken(checker: TokenChecker, key: str, algorithm: str, kid: str) -> None:
    checked = checker.check(signed(key, algorithm, kid))
    assert checked == Checked("alice", checked.expires_ms, ("a", "b"))
    assert abs(checked.expires_ms - (time.time() + 60) * 1000) < 30_000


@pytest.mark.parametrize(
    "more",
    [
        {"iat": 20},
        {"exp": -20},
        {"aud": ["x", "other"]},
        {"scope": ["a"]},
        {"scope": None},
    ],
)
async def test_clocks_differ_and_claims_have_two_forms(checker: TokenChecker, more: dict[str, Any]) -> None:
    """A number means seconds from now."""
    now = int(time.time())
    more = {"iat": now - 60} | {name: now + value if isinstance(value, int) else value for name, value in more.items()}
    assert checker.check(signed(**more)).name == "alice"


def _public_pem() -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    found: bytes = named("rsa").public_key().public_bytes(serialization.Encoding.PEM, form)
    return found


def _by_hmac() -> str:
    """Signed with HMAC, with the public key as the shared secret."""
    import base64
    import hashlib
    import hmac

    def part(value: dict[str, Any]) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    text = part({"alg": "HS256", "typ": "JWT", "kid": "r"}) + b"." + part(claims())
    signature = hmac.digest(_public_pem(), text, hashlib.sha256)
    return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


@pytest.mark.parametrize(
    "forged",
    [
        lambda: jwt.encode(claims(), None, "none", headers={"kid": "r"}),  # type: ignore[arg-type]
        _by_hmac,
        lambda: signed("other"),
        lambda: signed("other", kid="enc"),
        lambda: signed(kid="e"),
        lambda: signed(kid=None),
        lambda: signed(exp=int(time.time()) - 60),
        lambda: signed(exp=None),
        lambda: signed(iat=None),
        lambda: signed(iat=int(time.time()) + 3600),
        lambda: signed(nbf=int(time.time()) + 3600),
        lambda: signed(aud="somebody"),
        lambda: signed(aud=None),
        lambda: signed(iss="https://issuer.evil"),
        lambda: signed(sub=None),
        lambda: signed(sub=" "),
        lambda: signed(scope=7),
        lambda: signed() + "A",
        lambda: signed()[:-8],
        lambda: "a.b.c",
        lambda: "",
        lambda: "a" * 100_000,
        lambda: jwt.encode(
            claims(), named("rsa"), "RS256", headers={"jku": "http://evil", "jwk": jwk(named("other"), "x"), "kid": "x"}
        ),
    ],
)
async def test_what_is_forged_is_refused(checker: TokenChecker, forged: Callable[[], str]) -> None:
    text = forged()
    with pytest.raises(TokenError) as refused:
        checker.check(text)
    assert not text or text not in str(refused.value)


async def test_a_key_is_for_its_algorithm(checker: TokenChecker) -> None:
    checker.use(jwks(jwk(named("rsa"), "r", alg="RS512")))
    assert checker.check(signed(algorithm="RS512")).name == "alice"
    with pytest.raises(TokenError):
        checker.check(signed(algorithm="RS256"))


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys": 7}', b'{"keys": [7]}', b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "AAAA"}]}'],
)
async def test_what_has_no_keys_leaves_those_of_before(checker: TokenChecker, data: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        checker.use(data)
    assert checker.check(signed()).name == "alice"


def test_what_a_client_sends() -> None:
    assert parse_first(b"n,,\x01auth=Bearer tok\x01\x01") == ("", "tok")
    assert parse_first(b"n,a=alice,\x01auth=bearer tok\x01host=h\x01\x01") == ("alice", "tok")
    for data in (
        *(b"", b"n,,", b"y,,\x01auth=Bearer t\x01\x01", b"n,,\x01auth=Basic t\x01\x01"),
        *(b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01"),
        *(b"n,,\x01host=h\x01\x01", b"n,,\x01auth=Bearer \xff\x01\x01"),
    ):
        with pytest.raises(AuthenticationFailed):
            parse_first(data)


def test_keys_come_from_where_the_operator_says(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(jwks(jwk(named("rsa"), "r")))
    assert read_url(file.as_uri(), MAX_KEYS_BYTES) == file.read_bytes()
    file.write_bytes(b" " * (MAX_KEYS_BYTES + 1))
    with pytest.raises(ValueError, match="more than"):
        read_url(file.as_uri(), MAX_KEYS_BYTES)
    with pytest.raises(OSError, match="none"):
        read_url((tmp_path / "none").as_uri(), MAX_KEYS_BYTES)


async def test_a_login_with_a_token(start: Start, tmp_path: Path) -> None:
    """For an unknown key, the keys are read again. A refused client gets the reason, and then its connection ends."""
    file = tmp_path / "keys"
    file.write_bytes(jwks(jwk(named("rsa"), "r")))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "connection.failed.authentication.delay.ms": "1",
    }
    async with start(more=settings) as broker:
        port = broker.port_of("SASL_PLAINTEXT")

        async def log_in(text: str, authzid: str = "") -> Any:
            async with await connect(port) as client:
                await choose(client, "OAUTHBEARER")
                who = f"a={authzid}" if authzid else ""
                answer = await token(client, f"n,{who},\x01auth=Bearer {text}\x01\x01".encode())
                assert answer.error_code == 0
                if answer.auth_bytes:
                    assert json.loads(answer.auth_bytes) == {"status": "invalid_token"}
                    answer = await token(client, b"\x01")
                    assert await client.is_closed()
                else:
                    assert 0 < answer.session_lifetime_ms <= 60_000
                    assert {each.principal for each in broker.node.connections} == {Principal("User", "alice")}
                    assert (await client.ask(MetadataRequest(topics=[]))).topics == []
                return answer.error_code

        assert await log_in(signed()) == 0
        assert await log_in(signed(), "alice") == 0
        assert await log_in(signed(), "bob") == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await log_in(signed("ec", "ES256", "new")) == ErrorCode.SASL_AUTHENTICATION_FAILED
        file.write_bytes(jwks(jwk(named("rsa"), "r"), jwk(named("ec"), "new")))
        for checker in broker.node.authentication.checkers():
            checker._last = float("-inf")  # as if the last read of the keys was long ago
        assert await log_in(signed("ec", "ES256", "new")) == 0
        assert signed("ec", "ES256", "new")[:30] not in broker.log


async def test_until_the_keys_are_read_a_login_waits(checker: TokenChecker) -> None:
    fresh = TokenChecker(checker.settings, Clock(), EventLog())
    with pytest.raises(NotYet):
        fresh.check(signed())
