"""Key and trust stores as operators have them, and the errors for bad ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.settings.ssl_keys import SSL_KEYS
from barnabas.client.keystores import jks
from barnabas.client.keystores.stores import StoreError, read_identities, read_trusted
from compat_tests.security.certificates import Authority, Issued, has_keytool, keytool

ROOT = Authority("Root")
CA = Authority("Below", below=ROOT)
OWN = CA.issue()
needs_keytool = pytest.mark.skipif(not has_keytool(), reason="keytool is not installed")


def values(**given: str | None) -> dict[str, Any]:
    """The keys of a listener, with underscores for dots and without `ssl.`."""
    return {key.name: key.default for key in SSL_KEYS} | {
        f"ssl.{name.replace('_', '.')}": value for name, value in given.items()
    }


def keystore(location: str, kind: str, password: str | None = None, **more: str | None) -> dict[str, Any]:
    return values(keystore_location=location, keystore_type=kind, keystore_password=password, **more)


def test_a_pem_file(tmp_path: Path) -> None:
    (found,) = read_identities(keystore(OWN.pem(tmp_path / "x.pem"), "PEM"))
    assert found.pem.decode() == OWN.key_pem() + OWN.chain_pem()
    assert found.subject == "CN=broker"
    assert found.names == {"DNSName:localhost", "IPAddress:127.0.0.1", "IPAddress:::1"}


def test_a_pem_file_with_an_encrypted_key(tmp_path: Path) -> None:
    file = OWN.pem(tmp_path / "x.pem", "secret")
    (found,) = read_identities(keystore(file, "PEM", key_password="secret"))
    assert found.pem.decode() == OWN.key_pem() + OWN.chain_pem()


@pytest.mark.parametrize("join", ["\n", " "])
def test_pem_in_the_settings_may_be_one_line(join: str) -> None:
    texts = {"keystore_key": OWN.key_pem("x"), "keystore_certificate_chain": OWN.chain_pem()}
    one_line = {name: join.join(text.splitlines()) for name, text in texts.items()}
    (found,) = read_identities(values(keystore_type="PEM", key_password="x", **one_line))
    assert found.pem.decode() == OWN.key_pem() + OWN.chain_pem()
    trusted = values(truststore_type="PEM", truststore_certificates=join.join(CA.trust_text().splitlines()))
    assert read_trusted(trusted) == read_trusted(values(truststore_type="PEM", truststore_certificates=CA.trust_text()))


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_pkcs12_file_whatever_the_type_says(tmp_path: Path, kind: str) -> None:
    (found,) = read_identities(keystore(OWN.pkcs12(tmp_path / "x.p12", "secret"), kind, "secret"))
    assert found.pem.decode() == OWN.key_pem() + OWN.chain_pem()


@needs_keytool
@pytest.mark.parametrize("issued", [OWN, CA.issue(kind="rsa2048")], ids=["ec", "rsa"])
def test_a_jks_file(tmp_path: Path, issued: Issued) -> None:
    file = issued.jks(tmp_path / "x.jks", "sécret")
    (found,) = read_identities(keystore(file, "JKS", "sécret"))
    assert found.pem.decode() == issued.key_pem() + issued.chain_pem()
    with pytest.raises(StoreError, match=r"password is wrong.*ssl\.keystore\.password"):
        read_identities(keystore(file, "JKS", "wrong!"))
    keytool(
        "-keypasswd",
        "-keystore",
        file,
        "-alias",
        "own",
        "-storepass",
        "sécret",
        "-keypass",
        "sécret",
        "-new",
        "of the key",
    )
    (found,) = read_identities(keystore(file, "JKS", "sécret", key_password="of the key"))
    assert found.pem.decode() == issued.key_pem() + issued.chain_pem()
    with pytest.raises(StoreError, match="password of its key is wrong"):
        read_identities(keystore(file, "JKS", "sécret"))


@needs_keytool
@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_trust_store_of_keytool(tmp_path: Path, kind: str) -> None:
    file = ROOT.trust_store(tmp_path / "trust", "secret", kind)
    expected = read_trusted(values(truststore_type="PEM", truststore_certificates=ROOT.trust_text()))
    given = values(truststore_location=file, truststore_type=kind, truststore_password="secret")
    assert read_trusted(given) == expected
    without = {**given, "ssl.truststore.password": None}
    if kind == "JKS":
        assert read_trusted(without) == expected
    else:
        with pytest.raises(StoreError, match=r"set ssl\.truststore\.password"):
            read_trusted(without)


def test_there_may_be_no_trust_store() -> None:
    assert read_trusted(values()) is None


@pytest.mark.parametrize(
    ("content", "given", "why"),
    [
        (b"", {"keystore_type": "PEM"}, "no private key"),
        (OWN.key_pem().encode(), {"keystore_type": "PEM"}, "no certificate"),
        (OWN.key_pem().encode() * 2, {"keystore_type": "PEM"}, "2 private keys"),
        (OWN.chain_pem().encode(), {"keystore_type": "PEM"}, "no private key"),
        ((CA.issue().key_pem() + OWN.chain_pem()).encode(), {"keystore_type": "PEM"}, "not the one of its key"),
        (OWN.key_pem("x").encode(), {"keystore_type": "PEM"}, "set ssl.key.password"),
        (OWN.key_pem("x").encode(), {"keystore_type": "PEM", "key_password": "t0p"}, "the password is wrong"),
        (OWN.key_pem().encode(), {"keystore_type": "PEM", "keystore_password": "t0p"}, "ssl.key.password instead"),
        (OWN.key_pem()[:90].encode(), {"keystore_type": "PEM"}, "no private key"),
        (b"\xff\xfe", {"keystore_type": "PEM"}, "not a PEM file"),
        (OWN.key_pem().encode(), {"keystore_password": "t0p"}, "set its type to PEM"),
        (b"what is this", {"keystore_password": "t0p"}, "neither PKCS12 nor JKS"),
        (b"\x30\x03abc", {"keystore_password": "t0p"}, "password is wrong"),
        (b"\x30\x03abc", {}, "set ssl.keystore.password"),
        (b"\xce\xce\xce\xce", {"keystore_password": "t0p"}, "JCEKS"),
        (jks.MAGIC, {"keystore_password": "t0p"}, "cut short"),
        (jks.MAGIC + bytes(40), {"keystore_password": "t0p"}, "password is wrong"),
        (b"", {"keystore_type": "BKS"}, "ssl.keystore.type=BKS"),
        (b"", {"keystore_key": "x"}, "go together"),
        (b"", {"keystore_type": "PEM", "keystore_key": "x", "keystore_certificate_chain": "x"}, "remove one of them"),
    ],
    ids=lambda value: value if isinstance(value, str) else "x",
)
def test_a_bad_key_store_says_what_to_do(tmp_path: Path, content: bytes, given: dict[str, str], why: str) -> None:
    file = tmp_path / "store"
    file.write_bytes(content)
    with pytest.raises(StoreError, match=why) as failed:
        read_identities(values(keystore_location=str(file), **given))
    assert "\n" not in str(failed.value)
    assert "t0p" not in str(failed.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(StoreError, match=r"ssl\.keystore\.location=/no/such: cannot read the file: No such file"):
        read_identities(keystore("/no/such", "PEM"))
    with pytest.raises(StoreError, match=r"ssl\.keystore\.location is not set"):
        read_identities(values())


def test_without_the_library_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(StoreError, match=r"pip install 'PATH\[security\]'"):
        read_identities(keystore(OWN.pem(tmp_path / "x.pem"), "PEM"))


def test_a_key_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    long = CA.issue(kind="rsa4104")
    with pytest.raises(StoreError, match="4104 bits"):
        read_identities(keystore(long.pem(tmp_path / "x.pem"), "PEM"))


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_jks_store_or_none(data: bytes) -> None:
    try:
        jks.read(jks.MAGIC + b"\0\0\0\2" + data, None)
    except jks.JksError:
        pass
