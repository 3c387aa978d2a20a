"""The client's side of TLS, configured by Kafka's keys `ssl.*`: the trusted authorities, and its own identity.

Without a trust store, it trusts the authorities that this machine trusts. PEM needs nothing besides Python; other
stores need the extra `security`.

Source: Kafka's documentation, "Encryption and Authentication using SSL"; KIP-651 (PEM).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from barnabas.client.errors import ClientError
from barnabas.client.keystores.stores import StoreError, load_identity, read_identities, read_trusted

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_STORES = {
    "ssl.keystore.type": "JKS",
    "ssl.keystore.location": None,
    "ssl.keystore.password": None,
    "ssl.keystore.key": None,
    "ssl.keystore.certificate.chain": None,
    "ssl.key.password": None,
    "ssl.truststore.type": "JKS",
    "ssl.truststore.location": None,
    "ssl.truststore.password": None,
    "ssl.truststore.certificates": None,
}


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context for connections. Raises ClientError, which shows no secret."""
    values: dict[str, Any] = {name: properties.get(name, default) for name, default in _STORES.items()}
    try:
        context = _trusting(values)
        if values["ssl.keystore.location"] or values["ssl.keystore.key"]:
            for identity in read_identities(values):
                load_identity(context, identity)
    except StoreError as error:
        raise ClientError(str(error)) from None
    context.check_hostname = bool(properties.get("ssl.endpoint.identification.algorithm", "https").strip())
    asked = [each.strip() for each in properties.get("ssl.enabled.protocols", "").split(",") if each.strip()]
    unknown = [each for each in asked if each not in _VERSIONS]
    if unknown:
        raise ClientError(f"ssl.enabled.protocols={unknown[0]}: expected {', '.join(_VERSIONS)}")
    versions = [_VERSIONS[each] for each in asked or _VERSIONS]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    return context


def _trusting(values: Mapping[str, Any]) -> ssl.SSLContext:
    """A context with the trusted certificates. Raises StoreError."""
    location, text = values["ssl.truststore.location"], values["ssl.truststore.certificates"]
    if not location and not text:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, each trusted certificate is trusted on its own
    if location and values["ssl.truststore.type"].upper() == "PEM":
        try:
            context.load_verify_locations(cafile=location)
        except OSError as error:
            reason = error.strerror or "it has no certificate"
            raise StoreError(f"ssl.truststore.location={location}: cannot read the file: {reason}") from None
        return context
    if text:
        try:
            context.load_verify_locations(cadata=text)
        except ssl.SSLError:
            raise StoreError("ssl.truststore.certificates: it has no certificate, or one that is damaged") from None
        return context
    trusted = read_trusted(values)
    context.load_verify_locations(cadata=b"".join(trusted or ()))
    return context
