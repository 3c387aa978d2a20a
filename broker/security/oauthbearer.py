"""OAUTHBEARER: a client shows a JSON Web Token, which one of the keys of a JWK set has signed.

Only signatures of key pairs count: a token without one, or with one that a public key could make (HMAC), is refused
whatever its header says. Keys are read only from the place in the operator's settings, never from one named by a token.

Source: RFC 7628 (the mechanism), RFC 7519 (tokens), RFC 7517 (keys), RFC 8725 (their pitfalls); KIP-768.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import trio

from barnabas.broker.clock import Clock
from barnabas.broker.log import EventLog
from barnabas.broker.security.principals import Principal
from barnabas.broker.security.sasl import AuthenticationFailed, Identified, NotYet, Step
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.client.urls import read_url, shown

#: The algorithms of each kind of key; for elliptic curves, by curve.
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
#: The largest JWK set.
MAX_KEYS_BYTES = 1 << 20
MAX_TOKEN_CHARS = 64 << 10
#: A token with an unknown key triggers another read of the keys, at most this often.
EXPEDITE_SECONDS = 10.0
_HEADER = re.compile(rb"n,(?:a=([^,\0\x01]+))?,\x01(.*)\x01", re.DOTALL)
_PAIR = re.compile(rb"([A-Za-z]+)=([\x21-\x7e \t\r\n]*)")
_INVALID = b'{"status":"invalid_token"}'


class OAuthSettings(NamedTuple):
    """The requirements of a token, and the place of the keys."""

    url: str
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int
    audience: tuple[str, ...] | None
    issuer: str | None
    skew_seconds: int
    scope_claim: str
    sub_claim: str


class TokenError(ValueError):
    """A token is refused. The text says why, and shows nothing of the token."""


class SigningKey(NamedTuple):
    """A public key, and the algorithms that it may be used with."""

    key: Any
    algorithms: tuple[str, ...]


def _algorithms(jwk: Mapping[str, Any]) -> tuple[str, ...]:
    """The algorithms of a key: none if the key is for another use or is a shared secret."""
    if jwk.get("use", "sig") != "sig":
        return ()
    kind = jwk.get("kty")
    able: tuple[str, ...] = ()
    if kind == "RSA":
        able = _RSA
    elif kind == "EC" and jwk.get("crv") in _CURVES:
        able = (_CURVES[jwk["crv"]],)
    elif kind == "OKP":
        able = ("EdDSA",)
    return tuple(each for each in able if jwk.get("alg", each) == each)


class Checked(NamedTuple):
    """What a token says."""

    name: str
    expires_ms: int
    scope: tuple[str, ...]


class TokenChecker:
    """Checks the tokens of a listener. `run` keeps the keys fresh."""

    def __init__(self, settings: OAuthSettings, clock: Clock, log: EventLog) -> None:
        self.settings = settings
        self._clock, self._log = clock, log
        self._keys: dict[str | None, SigningKey] = {}
        self._ask = trio.Event()
        self._answered = trio.Event()
        self._is_reading = True  # until the first read is over
        self._last = float("-inf")

    @classmethod
    def of(cls, config: BrokerConfig, listener: str, clock: Clock, log: EventLog) -> TokenChecker:
        """The checker for a listener's settings. Raises ConfigError if they are incomplete or a library is missing."""

        def value(name: str) -> Any:
            return config.of(listener, f"sasl.oauthbearer.{name}", "OAUTHBEARER")

        if not value("jwks.endpoint.url"):
            raise ConfigError(
                f"Listener {listener}: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url, the keys that sign "
                "tokens; unsigned tokens are not accepted"
            )
        try:
            import jwt  # noqa: F401
        except ImportError:
            raise ConfigError(
                f"Listener {listener}: OAUTHBEARER needs the extra security: pip install 'barnabas[security]'"
            ) from None
        return cls(
            OAuthSettings(
                value("jwks.endpoint.url"),
                value("jwks.endpoint.refresh.ms"),
                value("jwks.endpoint.retry.backoff.ms"),
                value("jwks.endpoint.retry.backoff.max.ms"),
                value("expected.audience"),
                value("expected.issuer"),
                value("clock.skew.seconds"),
                value("scope.claim.name"),
                value("sub.claim.name"),
            ),
            clock,
            log,
        )

    async def run(self, fetched: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read the keys; read them again regularly, and when a token names an unknown key. Until cancelled."""
        failures = 0
        while True:
            self._ask, answered = trio.Event(), self._answered
            self._last, self._is_reading = trio.current_time(), True
            try:
                self.use(
                    await trio.to_thread.run_sync(read_url, self.settings.url, MAX_KEYS_BYTES, abandon_on_cancel=True)
                )
                failures = 0
            except (OSError, ValueError) as error:
                failures += 1
                self._log.error("oauthbearer.keys.not_read", url=shown(self.settings.url), reason=error)
            self._answered, self._is_reading = trio.Event(), False
            answered.set()
            backoff = min(self.settings.backoff_ms * 2 ** min(failures - 1, 30), self.settings.backoff_max_ms)
            with trio.move_on_after((backoff if failures else self.settings.refresh_ms) / 1000):
                await self._ask.wait()

    def use(self, data: bytes) -> None:
        """Use a JWK set. Raises ValueError if it is invalid or has no usable key."""
        import jwt

        found: dict[str | None, SigningKey] = {}
        try:
            for each in msgspec.json.decode(data, type=dict[str, Any])["keys"]:
                algorithms = _algorithms(each)
                if algorithms:
                    try:
                        found[each.get("kid")] = SigningKey(jwt.PyJWK(each).key, algorithms)
                    except (jwt.PyJWTError, ValueError):
                        continue  # of an unknown kind
        except (msgspec.DecodeError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"it is not a JWK set ({type(error).__name__})") from None
        if not found:
            raise ValueError("it has no usable key for signatures")
        self._keys = found

    def check(self, token: str) -> Checked:
        """Check a token; gives its content. Raises TokenError; NotYet if the next read may bring its key."""
        import jwt

        if len(token) > MAX_TOKEN_CHARS:
            raise TokenError(f"it has more than {MAX_TOKEN_CHARS} characters")
        settings = self.settings
        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=list(settings.audience) if settings.audience else None,
                issuer=settings.issuer,
                leeway=settings.skew_seconds,
                options={"require": ["exp", "iat", settings.sub_claim], "verify_aud": bool(settings.audience)},
            )
        except jwt.PyJWTError as error:
            raise TokenError(f"{type(error).__name__.removesuffix('Error')}: {error}") from None
        return self._claims(claims)

    def _claims(self, claims: Mapping[str, Any]) -> Checked:
        name, scope, expires = (
            claims[self.settings.sub_claim],
            claims.get(self.settings.scope_claim, ()),
            claims["exp"],
        )
        if not isinstance(name, str) or not name.strip():
            raise TokenError(f"the claim {self.settings.sub_claim} is not a name")
        if isinstance(scope, str):
            scope = scope.split()
        if not isinstance(scope, Sequence) or not all(isinstance(each, str) for each in scope):
            raise TokenError(f"the claim {self.settings.scope_claim} is not a list of names")
        return Checked(name, int(expires * 1000), tuple(scope))

    def _key(self, kid: Any) -> SigningKey:
        if kid is not None and not isinstance(kid, str):
            raise TokenError("the id of its key is not text")
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if kid in self._keys:
            return self._keys[kid]
        if self._is_reading:
            raise NotYet(self._answered)
        if trio.current_time() - self._last >= EXPEDITE_SECONDS:
            self._ask.set()
            raise NotYet(self._answered)
        raise TokenError("its key is not known" if self._keys else "the keys could not be read yet")


class OAuthExchange:
    """One login: the token and, if it is refused, the client's acknowledgement."""

    def __init__(self, checker: TokenChecker) -> None:
        self._checker = checker
        self._refused: str | None = None

    def step(self, data: bytes) -> Step:
        if self._refused is not None:
            raise AuthenticationFailed(self._refused)
        authzid, token = parse_first(data)
        try:
            checked = self._checker.check(token)
            if authzid and authzid != checked.name:
                raise TokenError("the authorization id is not the token's name")
        except TokenError as error:
            self._refused = f"Authentication failed: the token is refused: {error}"
            return Step(_INVALID)
        return Step(b"", Identified(Principal("User", checked.name), checked.expires_ms))


def parse_first(data: bytes) -> tuple[str, str]:
    """Authorization id and token of a client's message. Raises AuthenticationFailed.

    Extensions (KIP-342) are read but not used, as in Kafka without a custom validator.
    """
    found = _HEADER.fullmatch(data)
    if found is None:
        raise AuthenticationFailed("Authentication failed: Invalid OAUTHBEARER client first message")
    pairs: dict[bytes, bytes] = {}
    for text in found[2].split(b"\x01"):
        if text:
            pair = _PAIR.fullmatch(text)
            if pair is None or pair[1] in pairs:
                raise AuthenticationFailed("Authentication failed: Invalid OAUTHBEARER client first message")
            pairs[pair[1]] = pair[2]
    scheme, _, token = pairs.get(b"auth", b"").decode().strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise AuthenticationFailed("Authentication failed: Invalid OAUTHBEARER client first message: no bearer token")
    try:
        return (found[1] or b"").decode(), token.strip()
    except UnicodeDecodeError:
        raise AuthenticationFailed("Authentication failed: Invalid OAUTHBEARER client first message") from None
