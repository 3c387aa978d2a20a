"""JAAS texts: those of Kafka's clients and brokers are read, and no other text can name a class."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.jaas import JaasEntry, JaasError, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="secret";', {"username": "alice", "password": "secret"}),
        (
            f'{PLAIN}\n  required\n  user_admin=\'p w\'\n  user_bob="b;=\\"c\\\\" ;\n',
            {"user_admin": "p w", "user_bob": 'b;="c\\'},
        ),
        (f"{PLAIN} REQUIRED;", {}),
        (f"{PLAIN} required debug=true;", {"debug": "true"}),
        (f'// users\n{PLAIN} /* all */ required # here\n username="a//b";', {"username": "a//b"}),
    ],
)
def test_what_kafka_reads(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == JaasEntry(PLAIN, options)


def test_a_module_says_its_mechanisms() -> None:
    assert parse_jaas(f"{SCRAM} required;").mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ('com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://h/o";', "is not known"),
        (f"{PLAIN};", "must follow"),
        (f"{PLAIN} username=a;", "must follow"),
        (f'{PLAIN} required username="a"', "the ; at its end is missing"),
        (f'{PLAIN} required username="a;', "a quote is not closed"),
        (f"{PLAIN} required username;", "not of the form"),
        (f"{PLAIN} required username=;", "has no value"),
        (f'{PLAIN} required "username"="a";', "not of the form"),
        (f"{PLAIN} required a=1 a=2;", "stands twice"),
        (f"{PLAIN} required; {SCRAM} required;", "more than one"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason):
        parse_jaas(text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=30))
def test_a_quoted_value_comes_out_again(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'{PLAIN} required password="{quoted}";').options == {"password": value}


def test_a_refusal_shows_no_secret() -> None:
    with pytest.raises(JaasError) as refused:
        parse_jaas(f'{PLAIN} required password="hunter2" password="hunter3";')
    assert "hunter" not in str(refused.value)
