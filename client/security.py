"""How connections are secured: TLS and login, configured by a `client.properties` of Kafka.

A process acts as one client. So there is one file for it (`client.command_config`), which the processes that it starts,
such as Spark's workers, also use.

Source: Kafka's documentation, "Security" and "Consumer Configs"; KIP-651 (PEM).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from barnabas.client import sasl
from barnabas.client.command_config import VARIABLE
from barnabas.client.errors import ClientError, LostError
from barnabas.client.tls import client_context
from barnabas.wire import driver_login
from barnabas.wire.jaas import MECHANISMS, JaasEntry, JaasError, parse_jaas
from barnabas.wire.properties import parse_properties

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Security(NamedTuple):
    """What a connection does before its first request."""

    context: ssl.SSLContext | None = None
    mechanism: str = ""
    begin: sasl.Begin | None = None


PLAINTEXT = Security()


def of_process() -> Security:
    """The settings in the file that the environment names. Raises ClientError for a file that cannot be used."""
    path = os.environ.get(VARIABLE)
    return of_file(path) if path else PLAINTEXT


def of_file(path: str) -> Security:
    """The settings in a `client.properties`, as it is now. Raises ClientError for a file that cannot be used."""
    try:
        changed = os.stat(path).st_mtime_ns
    except OSError as error:
        raise ClientError(f"Cannot read {path}: {error.strerror}") from None
    return _of_file(path, changed)


@cache
def _of_file(path: str, changed_ns: int) -> Security:
    try:
        properties = parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ClientError(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ClientError(f"Cannot read {path}: it is not UTF-8 text") from None
    try:
        return of_properties(properties, os.path.dirname(path))
    except ClientError as error:
        raise ClientError(f"{path}: {error}") from None


def of_properties(properties: Mapping[str, str], folder: str = "") -> Security:
    """The settings from Kafka's keys; `folder` is that of their file. Raises ClientError, which shows no secret."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ClientError(f"security.protocol={protocol}: expected one of {', '.join(PROTOCOLS)}")
    context = client_context(properties) if protocol in ("SSL", "SASL_SSL") else None
    mechanism = properties.get("sasl.mechanism", "").strip()
    if protocol in ("PLAINTEXT", "SSL") and mechanism != driver_login.MECHANISM:
        return Security(context)
    return Security(context, mechanism, _login(mechanism, properties, folder))


def _login(mechanism: str, properties: Mapping[str, str], folder: str) -> sasl.Begin:
    """The function that begins a login. Raises ClientError."""
    if mechanism == driver_login.MECHANISM:
        return partial(_as_driver, Path(folder, properties.get(driver_login.SECRET_FILE, "")))
    if mechanism not in MECHANISMS:
        named = f"sasl.mechanism={mechanism}" if mechanism else "sasl.mechanism is missing"
        raise ClientError(f"{named}: expected one of {', '.join(MECHANISMS)}")
    entry = _jaas(properties)
    if entry is not None and mechanism not in entry.mechanisms:
        raise ClientError(f"sasl.jaas.config is for {', '.join(entry.mechanisms)}, and sasl.mechanism is {mechanism}")
    if mechanism == "OAUTHBEARER":
        return partial(_with_token, properties, entry.options if entry is not None else {})
    if entry is None:
        raise ClientError(f"sasl.mechanism={mechanism} needs sasl.jaas.config with username and password")
    name, password = entry.options.get("username"), entry.options.get("password")
    if name is None or password is None:
        raise ClientError("sasl.jaas.config has no username, or no password")
    if mechanism == "PLAIN":
        return partial(sasl.plain, name, password)
    by_token = entry.options.get("tokenauth", "").lower() == "true"
    return partial(sasl.scram_login, mechanism, name, password, by_token=by_token)


def _as_driver(file: Path) -> sasl.Tokens:
    """Log in with the secret that the broker wrote at its last start."""
    try:
        secret = file.read_text()
    except OSError as error:
        raise LostError(f"Cannot read the driver's secret {file}: {error.strerror}") from None
    yield from sasl.driver(secret)


def _jaas(properties: Mapping[str, str]) -> JaasEntry | None:
    text = properties.get("sasl.jaas.config")
    if not text:
        return None
    try:
        return parse_jaas(text)
    except JaasError as error:
        raise ClientError(f"Invalid sasl.jaas.config: {error}") from None


def _with_token(properties: Mapping[str, str], options: Mapping[str, str]) -> sasl.Tokens:
    from barnabas.client.tokens import token  # few need it, and it imports what HTTP needs

    yield from sasl.oauthbearer(token(properties, options))
