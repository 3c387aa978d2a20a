"""Kafka's keys of SASL listeners and delegation tokens, and what a value must be to be served.

Source: Kafka's documentation, "Broker Configs"; KIP-768 and KIP-1139 (OAUTHBEARER), KIP-48 (tokens), KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from barnabas.broker.settings.keys import ConfigError, ConfigKey
from barnabas.client.urls import SCHEMES
from barnabas.wire.jaas import MECHANISMS, JaasEntry, JaasError, parse_jaas

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
VALIDATOR_HANDLERS = (
    f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
)
JWT_VALIDATORS = (f"{_OAUTH}.DefaultJwtValidator", f"{_OAUTH}.BrokerJwtValidator")
_NO_CLASSES = "Another class cannot be loaded here."


def jaas(key: str, text: str) -> JaasEntry:
    """A listener's JAAS text. Raises ConfigError, which shows no secret."""
    try:
        return parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"Invalid value for {key}: {error}") from None


def _one_of(name: str, known: tuple[str, ...], remedy: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value and value not in known:
            raise ConfigError(f"{name}={value} is not supported: {remedy}")

    return check


def check_mechanisms(value: tuple[str, ...]) -> None:
    """Raises ConfigError for one that is not served."""
    for each in value:
        if each == "GSSAPI":
            raise ConfigError(
                "sasl.enabled.mechanisms: GSSAPI (Kerberos) is not supported; use one of " + ", ".join(MECHANISMS)
            )
        if each not in MECHANISMS:
            raise ConfigError(f"sasl.enabled.mechanisms: {each} is not supported; use one of {', '.join(MECHANISMS)}")


def _mechanisms(value: tuple[str, ...]) -> None:
    if value != ("GSSAPI",):  # the default, which no listener can be served with, and any without SASL
        check_mechanisms(value)


def _jwks_url(value: str) -> None:
    if value and urlsplit(value).scheme not in SCHEMES:
        raise ConfigError(
            f"Invalid value {value!r} for sasl.oauthbearer.jwks.endpoint.url: expected https:, http: or file:"
        )


SASL_KEYS = [
    ConfigKey("sasl.enabled.mechanisms", "list", ("GSSAPI",), "SASL mechanisms of a listener: PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512, OAUTHBEARER. A listener with SASL needs a value, as Kafka's default is not served.",
        check=_mechanisms, dynamic=True, of_listener=True),
    ConfigKey("sasl.jaas.config", "password", None, "The JAAS text of one mechanism, as "
        "listener.name.NAME.MECHANISM.sasl.jaas.config. For PLAIN it has the users: user_NAME=\"PASSWORD\".",
        check=lambda value: jaas("sasl.jaas.config", value) and None, dynamic=True, of_listener=True),
    ConfigKey("sasl.server.callback.handler.class", "class", None, "For OAUTHBEARER: Kafka's validator of tokens. "
        + _NO_CLASSES, of_listener=True, check=_one_of("sasl.server.callback.handler.class", VALIDATOR_HANDLERS,
        f"the only one is {VALIDATOR_HANDLERS[0]}, for OAUTHBEARER")),
    ConfigKey("sasl.server.max.receive.size", "int", 524288, "Largest request of a client that has not logged in.",
        minimum=0),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.url", "string", None, "The https:, http: or file: URL of the JWK set "
        "with the keys that sign tokens.", of_listener=True, check=_jwks_url),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.refresh.ms", "long", 3600000, "How often the keys are read again.",
        minimum=1, of_listener=True),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "long", 100, "Pause after the first failure to read "
        "the keys; it doubles with each further failure.", minimum=1, of_listener=True),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "long", 10000, "Longest such pause.", minimum=1,
        of_listener=True),
    ConfigKey("sasl.oauthbearer.expected.audience", "list", None, "A token must have one of these audiences; any "
        "audience if not set.",
        of_listener=True),
    ConfigKey("sasl.oauthbearer.expected.issuer", "string", None, "A token must have this issuer; any issuer if not "
        "set.",
        of_listener=True),
    ConfigKey("sasl.oauthbearer.clock.skew.seconds", "int", 30, "How far the clocks of issuer and broker may differ.",
        minimum=0, of_listener=True),
    ConfigKey("sasl.oauthbearer.scope.claim.name", "string", "scope", "The claim that has a token's scope.",
        of_listener=True),
    ConfigKey("sasl.oauthbearer.sub.claim.name", "string", "sub", "The claim that has the principal's name.",
        of_listener=True),
    ConfigKey("sasl.oauthbearer.jwt.validator.class", "class", JWT_VALIDATORS[0], "Kafka's validator of tokens. "
        + _NO_CLASSES, of_listener=True, check=_one_of("sasl.oauthbearer.jwt.validator.class", JWT_VALIDATORS,
        f"the only ones are {', '.join(JWT_VALIDATORS)}")),
    ConfigKey("connections.max.reauth.ms", "long", 0, "How long a login lasts; then the client must log in again, or "
        "its connection is closed at its next request. 0: as long as the connection.", minimum=0, of_listener=True),
    ConfigKey("connection.failed.authentication.delay.ms", "int", 100, "Delay of the answer to a failed login; the "
        "connection is closed after it.", minimum=0),
    ConfigKey("barnabas.login.timeout.ms", "int", 30000, "A connection whose client has not logged in by then is "
        "closed.", minimum=100),
    ConfigKey("delegation.token.secret.key", "password", None, "The secret for making delegation tokens; without it "
        "there are none."),
    ConfigKey("delegation.token.max.lifetime.ms", "long", 604800000, "How long a delegation token can be renewed.",
        minimum=1),
    ConfigKey("delegation.token.expiry.time.ms", "long", 86400000, "How long a delegation token is valid until it is "
        "renewed.", minimum=1),
    ConfigKey("delegation.token.expiry.check.interval.ms", "long", 3600000, "How often expired delegation tokens are "
        "removed.", minimum=1),
]  # fmt: skip
