"""Java's names of cipher suites."""

from __future__ import annotations

import ssl

import pytest

from barnabas.broker.security.cipher_suites import TLS_1_3, choose, openssl_name
from barnabas.broker.settings.keys import ConfigError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert openssl_name(name) == expected


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "take ECDHE"),
        ("TLS_ECDHE_RSA_WITH_RC4_128_SHA", "OpenSSL does not have it"),
        ("TLS_RSA_WITH_CHACHA20_POLY1305_SHA256", "OpenSSL does not have it"),
        ("nonsense:ALL", "OpenSSL does not have it"),
    ],
)
def test_what_is_not_served_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        openssl_name(name)


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version, made.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    return made


def test_suites_choose_the_versions() -> None:
    older = context()
    choose(older, ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])
    assert older.maximum_version == ssl.TLSVersion.TLSv1_2
    assert {each["name"] for each in older.get_ciphers()} - set(TLS_1_3) == {"ECDHE-RSA-AES128-GCM-SHA256"}
    newer = context()
    choose(newer, TLS_1_3)
    assert newer.minimum_version == ssl.TLSVersion.TLSv1_3
    with pytest.raises(ConfigError, match="some suites of TLS"):
        choose(context(), TLS_1_3[:1])
    both = context()
    both.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ConfigError, match="no suite of the protocols"):
        choose(both, TLS_1_3)
