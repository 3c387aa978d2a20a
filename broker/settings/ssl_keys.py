"""Kafka's keys `ssl.*` of a listener. All of them may be set for one listener alone (`listener.name.NAME.ssl...`).

The stores can be changed while the broker runs, for a listener by its name (KIP-226). Names, types and defaults are
those that Apache Kafka 4.3.1 describes.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.settings.keys import ConfigError, ConfigKey

#: Of the broker, not of a listener.
KERNEL_TLS = "barnabas.ssl.kernel.tls.enable"
PROTOCOLS = ("TLSv1.2", "TLSv1.3")


def _key(name: str, kind: str, default: Any, doc: str, **more: Any) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, of_listener=True, **more)


def _store(name: str, kind: str, default: Any, doc: str) -> ConfigKey:
    return _key(name, kind, default, doc, dynamic=True)


def _unused(name: str, default: str | None, why: str) -> ConfigKey:
    return _key(name, "string", default, why, used=False)


def _no_class(name: str, kind: str, missing: str = "classes of Java cannot be run.") -> ConfigKey:
    def check(value: Any) -> None:
        if value:
            raise ConfigError(f"{name} is not supported: {missing}")

    return _key(name, kind, None, f"Only its default: {missing}", used=False, check=check)


_PROVIDER = "OpenSSL does this work."

SSL_KEYS = [
    _store("ssl.keystore.type", "string", "JKS", "Format of the key store: PEM, PKCS12 or JKS. A JKS store may be a "
        "PKCS12 file, and the other way round."),
    _store("ssl.keystore.location", "string", None, "File with the broker's private key and its certificates."),
    _store("ssl.keystore.password", "password", None, "Password of the key store; PEM has none."),
    _store("ssl.key.password", "password", None, "Password of the private key in the key store; default: the key "
        "store's password."),
    _store("ssl.keystore.key", "password", None, "The private key itself, in PEM, instead of a file."),
    _store("ssl.keystore.certificate.chain", "password", None, "The certificates themselves, in PEM, the key's own "
        "first."),
    _store("ssl.truststore.type", "string", "JKS", "Format of the trust store: PEM, PKCS12 or JKS."),
    _store("ssl.truststore.location", "string", None, "File with the certificates of the authorities that must have "
        "signed clients' certificates."),
    _store("ssl.truststore.password", "password", None, "Password of the trust store; PEM has none, and JKS is read "
        "without."),
    _store("ssl.truststore.certificates", "password", None, "The trusted certificates themselves, in PEM, instead of "
        "a file."),
    _key("ssl.client.auth", "string", "none", "Whether a client must show a certificate (required), may (requested), "
        "or is not asked (none). For a SASL_SSL listener, only listener.name.NAME.ssl.client.auth counts.",
        choices=("none", "requested", "required")),
    _key("ssl.principal.mapping.rules", "string", "DEFAULT", "How the subject of a client's certificate becomes the "
        "name of its principal: RULE:pattern/replacement/[LU], ..., DEFAULT."),
    _key("ssl.enabled.protocols", "list", PROTOCOLS, "The TLS versions that are accepted.", choices=PROTOCOLS),
    _key("ssl.protocol", "string", "TLSv1.3", "No effect beside ssl.enabled.protocols.", used=False,
        choices=("TLS", *PROTOCOLS)),
    _key("ssl.cipher.suites", "list", (), "Cipher suites by the names of Java; default: those that OpenSSL considers "
        "secure."),
    _key("ssl.allow.dn.changes", "boolean", False, "Whether a renewed certificate may have another subject."),
    _key("ssl.allow.san.changes", "boolean", False, "Whether a renewed certificate may lack alternative names of the "
        "old one."),
    _unused("ssl.endpoint.identification.algorithm", "https", "The broker makes no TLS connections of its own."),
    _unused("ssl.keymanager.algorithm", "SunX509", _PROVIDER),
    _unused("ssl.trustmanager.algorithm", "PKIX", _PROVIDER),
    _unused("ssl.secure.random.implementation", None, _PROVIDER),
    _no_class("ssl.provider", "string"),
    _no_class("ssl.engine.factory.class", "class"),
]  # fmt: skip

#: The keys that can be changed while the broker runs, of one listener by its name.
DYNAMIC = frozenset(key.name for key in SSL_KEYS if key.dynamic)
