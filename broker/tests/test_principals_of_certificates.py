"""From a client's certificate to the name of its principal: the subject as Java writes it, and the operator's rules."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.security.distinguished_names import rfc2253, subject_of
from barnabas.broker.security.principal_mapping import MAX_NAME, NoRuleFits, PrincipalMapping
from barnabas.broker.settings.keys import ConfigError
from barnabas.client.keystores.der import DerError
from compat_tests.security.certificates import Authority
from compat_tests.tools import missing

OTHER = x509.ObjectIdentifier("1.2.3.4.99999")
JAVA = """
import java.io.*; import java.security.cert.*;
public class Subjects {
    public static void main(String[] files) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String file : files) try (InputStream in = new FileInputStream(file)) {
            X509Certificate read = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(in);
            out.print(read.getSubjectX500Principal().getName() + "\\0\\0");
        }
    }
}
"""


def attribute(oid: x509.ObjectIdentifier, value: str, kind: str | None = None) -> x509.NameAttribute[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x509.NameAttribute(oid, value, _ASN1Type[kind] if kind else None)


def name(*parts: Any) -> x509.Name:
    return x509.Name([x509.RelativeDistinguishedName(p if isinstance(p, list) else [p]) for p in parts])


CN, OU, ORG = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.ORGANIZATION_NAME
NAMES = [
    (name(attribute(NameOID.COUNTRY_NAME, "DE"), attribute(ORG, "Ex, Inc."), attribute(CN, "a")),
        r"CN=a,O=Ex\, Inc.,C=DE"),
    (name(attribute(CN, 'a+b=c"d\\e<f>g;h#i/j')), r"CN=a\+b\=c\"d\\e\<f\>g\;h\#i/j"),
    (name(attribute(CN, "  two  spaces  in  ")), r"CN=\ \ two  spaces  in\ \ "),
    (name(attribute(CN, " ")), r"CN=\ "),
    (name(attribute(CN, "\rx\r ")), "CN=\\\rx\\\r\\ "),
    (name(attribute(CN, "\nx\t")), "CN=\nx\t"),
    (name(attribute(CN, "#x")), r"CN=\#x"),
    (name(attribute(CN, "Ünï ☃ 😀 名")), "CN=Ünï ☃ 😀 名"),
    (name([attribute(CN, "b"), attribute(OU, "a")], attribute(NameOID.EMAIL_ADDRESS, "x@y.z")),
        "1.2.840.113549.1.9.1=#16057840792e7a,CN=b+OU=a"),
    (name(attribute(NameOID.DOMAIN_COMPONENT, "org"), attribute(NameOID.USER_ID, "u"),
        attribute(NameOID.STREET_ADDRESS, "s"), attribute(NameOID.LOCALITY_NAME, "l"),
        attribute(NameOID.STATE_OR_PROVINCE_NAME, "st")),
        "ST=st,L=l,STREET=s,UID=u,DC=org"),
    (name(attribute(NameOID.SERIAL_NUMBER, "12"), attribute(OTHER, "w")), "1.2.3.4.99999=#0c0177,2.5.4.5=#13023132"),
    (name(attribute(CN, "nul\0x")), r"CN=nul\00x"),
    (name(attribute(CN, "p", "PrintableString"), attribute(CN, "ia5", "IA5String"), attribute(CN, "t61", "T61String")),
        "CN=t61,CN=ia5,CN=p"),
    (name(attribute(CN, "12", "NumericString"), attribute(CN, "v", "VisibleString"),
        attribute(CN, "u", "UniversalString")),
        "CN=#1c0400000075,CN=#1a0176,CN=#12023132"),
    (name(attribute(CN, "b☃", "BMPString")), "CN=\\00b&\x03"),
    (name(), ""),
]  # fmt: skip


@pytest.mark.parametrize(("subject", "expected"), NAMES)
def test_a_subject_as_text(subject: x509.Name, expected: str) -> None:
    assert rfc2253(subject.public_bytes()) == expected


def test_java_writes_the_same(tmp_path: Path) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    files, ours, ca = [], [], Authority()
    for i, (subject, _) in enumerate(each for each in NAMES if each[1]):  # Java rejects certificates without a name
        certificate = ca.issue(subject=subject).certificate.public_bytes(Encoding.DER)
        (tmp_path / f"{i}.der").write_bytes(certificate)
        files.append(str(tmp_path / f"{i}.der"))
        ours.append(subject_of(certificate))
    (tmp_path / "Subjects.java").write_text(JAVA)
    command = ["java", "-XX:TieredStopAtLevel=1", str(tmp_path / "Subjects.java"), *files]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.decode().split("\0\0")[:-1] == ours


@given(st.binary(max_size=100))
def test_what_is_no_certificate_is_an_error(data: bytes) -> None:
    with pytest.raises((DerError, ValueError)):
        subject_of(data)


SUBJECT = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "subject", "expected"),
    [
        ("DEFAULT", SUBJECT, SUBJECT),
        ("", SUBJECT, SUBJECT),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SUBJECT, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", SUBJECT, "duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=.*$/$1@$2/U,DEFAULT", SUBJECT, "DUKE@SERVICEUSERS"),
        ("RULE:^CN=x.*$/$1/L , DEFAULT", SUBJECT, SUBJECT),
        ("RULE:^cn=(.*?),ou=(.*?)$/$1/, RULE:^CN=([^,]*),.*$/u\\/$1\\$/", SUBJECT, "u/Duke$"),
        ("RULE:^CN=(.)(.*?),.*$/$12$3/", SUBJECT, "D2$3"),
        ("RULE:^.*$/const/", SUBJECT, "const"),
        ("RULE:^CN=(?!Root)(.*?),.*$/$1/", SUBJECT, "Duke"),
        ("RULE:^CN=a\\\\,b,.*$/comma/", "CN=a\\,b,O=x", "comma"),
    ],
)
def test_rules(rules: str, subject: str, expected: str) -> None:
    assert PrincipalMapping(rules).name_of(subject) == expected


@pytest.mark.parametrize("rules", ["RULE:^CN=x$/x/", "RULE:Duke/x/", "RULE:^CN=(?!Duke)(.*?),.*$/$1/"])
def test_no_rule_fits(rules: str) -> None:
    with pytest.raises(NoRuleFits, match="no rule of"):
        PrincipalMapping(rules).name_of(SUBJECT)
    with pytest.raises(NoRuleFits, match="more than"):
        PrincipalMapping("DEFAULT").name_of("x" * (MAX_NAME + 1))


@pytest.mark.parametrize(
    "rules", ["default", "RULE:", "RULE:x/y", "RULE:(/x/", "RULE:x/y/Q", "DEFAULT DEFAULT", "RULE:x/${a}/", "x,DEFAULT"]
)
def test_what_is_no_list_of_rules_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)
