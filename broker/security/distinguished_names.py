"""The subject of a certificate as text, in the form of Java's `X500Principal.getName()`: it is a client's principal.

The last name comes first; values of attributes that RFC 2253 does not name are in hexadecimal. The subject is read from
the certificate's own bytes, so that no library's idea of a valid name comes between.

Source: RFC 2253 (the form), RFC 5280 (the subject's place), the JDK (its escapes, and the text types it reads).
"""

from __future__ import annotations

from barnabas.client.keystores import der

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, TeletexString, IA5String, GeneralString, BMPString: the JDK reads all of them as UTF-8.
_TEXTS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_ESCAPED = frozenset(',=+<>#;"\\')
_EXPLICIT_VERSION = 0xA0


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises DerError."""
    to_be_signed = der.only(der.only(certificate, der.SEQUENCE).content, der.SEQUENCE).content
    fields = list(der.elements(to_be_signed))
    if fields and fields[0].tag == _EXPLICIT_VERSION:
        del fields[0]
    if len(fields) < 5:  # serial number, signature, issuer, validity, subject
        raise der.DerError("a certificate that is cut short")
    return rfc2253(fields[4].whole)


def rfc2253(name: bytes) -> str:
    """A Name in DER as text. Raises DerError."""
    relative = list(der.elements(der.only(name, der.SEQUENCE).content))
    return ",".join("+".join(map(_attribute, der.elements(each.content))) for each in reversed(relative))


def _attribute(element: der.Element) -> str:
    kind, value, *rest = der.elements(element.content)
    if kind.tag != der.OID or rest:
        raise der.DerError("an attribute that is none")
    number = der.oid(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    inside = range(len(text) - len(text.lstrip(" \r")), len(text.rstrip(" \r")))
    return "".join(_escaped_character(c, is_inside=i in inside) for i, c in enumerate(text))


def _escaped_character(c: str, *, is_inside: bool) -> str:
    if c == "\0":
        return "\\00"
    return "\\" + c if c in _ESCAPED or not is_inside else c
