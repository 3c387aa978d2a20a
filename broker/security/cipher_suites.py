"""`ssl.cipher.suites`: Java's names of cipher suites (IANA's) as OpenSSL knows them.

The suites of TLS 1.3 have one name for both, but Python's `ssl` cannot choose among them: it is all three or none,
and none means that TLS 1.3 is not spoken, as with Java.

Source: RFC 8446 (TLS 1.3), RFC 5289 and RFC 7905 (ECDHE with AES and ChaCha20), IANA's registry of cipher suites.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from barnabas.broker.settings.keys import ConfigError

KEY = "ssl.cipher.suites"
TLS_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_KEY_EXCHANGES = {"ECDHE_RSA": "ECDHE-RSA-", "ECDHE_ECDSA": "ECDHE-ECDSA-", "RSA": ""}
_CIPHERS = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}


def openssl_name(name: str) -> str:
    """OpenSSL's name of a TLS 1.2 suite. Raises ConfigError for one that is not served."""
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if name in _openssl_names():
        return name
    if name.startswith("TLS_") and exchange in _KEY_EXCHANGES and cipher in _CIPHERS:
        found = _KEY_EXCHANGES[exchange] + _CIPHERS[cipher]
        if found in _openssl_names():
            return found
    why = "OpenSSL does not have it"
    if exchange in ("DHE_RSA", "DHE_DSS"):
        why = "finite-field Diffie-Hellman is not served, take ECDHE"
    raise ConfigError(f"Cipher suite {name} in {KEY} is not supported: {why}; remove it from the list")


def _openssl_names() -> frozenset[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL")
    return frozenset(each["name"] for each in context.get_ciphers()) - set(TLS_1_3)


def choose(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Serve only these suites; if there are none, all that OpenSSL considers secure. Raises ConfigError."""
    if not suites:
        return
    of_1_3 = [name for name in suites if name in TLS_1_3]
    older = [openssl_name(name) for name in suites if name not in TLS_1_3]
    if of_1_3 and len(set(of_1_3)) < len(TLS_1_3) and context.maximum_version != ssl.TLSVersion.TLSv1_2:
        raise ConfigError(
            f"{KEY} names some suites of TLS 1.3: Python serves all of them or none; name all of {', '.join(TLS_1_3)}, "
            "or leave TLSv1.3 out of ssl.enabled.protocols"
        )
    if not of_1_3:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context.minimum_version > context.maximum_version:
        raise ConfigError(f"{KEY} names no suite of the protocols in ssl.enabled.protocols")
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise ConfigError(f"Invalid value {','.join(suites)} for {KEY}: {error.reason}") from None
