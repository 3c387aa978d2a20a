"""SCRAM's messages and proofs, compared with the example of RFC 7677, and with what hostile clients send."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire import scram
from barnabas.wire.scram import ScramError

MECHANISM = "SCRAM-SHA-256"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def test_the_example_of_the_rfc() -> None:
    first = scram.parse_client_first(FIRST)
    assert (first.name, first.nonce, first.gs2) == ("user", "rOprNGfwEbeRWgbNEkqO", "n,,")
    answer = scram.server_first(NONCE, SALT, 4096)
    assert answer == f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    told = scram.parse_server_first(answer.encode())
    salted = scram.salted_password(MECHANISM, "pencil", told.salt, told.iterations)
    bare = scram.client_final_bare(first.gs2, told.nonce)
    signed = scram.auth_message(first.bare, told.text, bare)
    final = scram.client_final(bare, scram.proof(MECHANISM, salted, signed))
    assert final == f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    known = scram.credential(MECHANISM, salted, SALT, 4096)
    got = scram.parse_client_final(final.encode())
    assert (got.gs2, got.nonce, got.bare) == ("n,,", NONCE, bare)
    assert scram.is_proved(MECHANISM, known, signed, got.proof)
    last = scram.server_final(scram.server_signature(MECHANISM, known.server_key, signed))
    assert last == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert scram.parse_server_final(last.encode()) == scram.server_signature(MECHANISM, known.server_key, signed)


@pytest.mark.parametrize("mechanism", scram.CODES)
@given(st.text(max_size=20), st.text(max_size=20), st.binary(min_size=1, max_size=20))
def test_only_the_password_proves_itself(mechanism: str, password: str, other: str, salt: bytes) -> None:
    known = scram.credential(mechanism, scram.salted_password(mechanism, password, salt, 1), salt, 1)
    given_proof = scram.proof(mechanism, scram.salted_password(mechanism, other, salt, 1), b"signed")
    assert scram.is_proved(mechanism, known, b"signed", given_proof) == (password == other)
    assert not scram.is_proved(mechanism, known, b"something else", given_proof)
    assert not scram.is_proved(mechanism, known, b"signed", given_proof[:-1])


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)


@given(NAMES)
def test_a_name_comes_out_again(name: str) -> None:
    first = scram.client_first(name, "nonce", {scram.TOKEN_AUTH: "true"})
    got = scram.parse_client_first((first.gs2 + first.bare).encode())
    assert (got.name, got.nonce, got.extensions) == (name, "nonce", {"tokenauth": "true"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,r=nonce,n=user",
        b"n,,n=user,r=",
        b"n,,n=user,r=no\x7fnce",
        b"n,,n=us=er,r=nonce",
        b"n,,n=us\0er,r=nonce",
        b"n,,n=\xff,r=nonce",
        b"n,user,n=user,r=nonce",
        b"p=tls-unique,,n=user,r=nonce",
        b"x,,n=user,r=nonce",
        b"n,,m=must,n=user,r=nonce",
        b"n,,n=user,r=nonce,m=must",
        b"n,,n=user,r=nonce,tokenauth",
        b"n,,n=user,r=nonce,a=1,a=2",
    ],
)
def test_a_malformed_first_message_is_refused(data: bytes) -> None:
    with pytest.raises(ScramError):
        scram.parse_client_first(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"c=biws,r=nonce",
        b"r=nonce,c=biws,p=AAAA",
        b"c=biws,r=nonce,p=A",
        b"c=!,r=nonce,p=AAAA",
        b"c=/w==,r=n,p=AA==",
    ],
)
def test_a_malformed_last_message_is_refused(data: bytes) -> None:
    with pytest.raises(ScramError):
        scram.parse_client_final(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    for parse in (scram.parse_client_first, scram.parse_client_final, scram.parse_server_first):
        try:
            parse(data)
        except ScramError:
            pass


@pytest.mark.parametrize(
    "data", [b"r=n,s=AAAA", b"r=n,s=AAAA,i=", b"r=n,s=AAAA,i=-1", b"r=n,s=AAAA,i=99999999999", b"e=x"]
)
def test_a_malformed_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ScramError):
        scram.parse_server_first(data)


def test_an_error_of_the_server_is_told() -> None:
    with pytest.raises(ScramError, match="invalid-proof"):
        scram.parse_server_final(b"e=invalid-proof")
