"""`produce`: lines become records, and keys choose partitions as with Kafka's clients."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner import murmur2 as reference

from barnabas.client.errors import ClientError
from barnabas.client.partitioner import murmur2
from barnabas.scripts.produce import BadLineError, Lines
from barnabas.wire.batch import Record


@given(st.binary(max_size=40))
def test_murmur2_is_the_clients_hash(data: bytes) -> None:
    assert murmur2(data) == reference(data) & 0x7FFFFFFF


def read(*lines: bytes, **options: object) -> list[Record]:
    asked = {"strip_cr": False, "null_value": None, "key_separator": None, "header": [], **options}
    return [record for _, record in Lines(argparse.Namespace(**asked)).records(lines)]


def test_a_line_is_a_value_without_its_end() -> None:
    assert [record.value for record in read(b"a\n", b"\n", b"b\r\n", b"last")] == [b"a", b"", b"b\r", b"last"]
    assert [record.value for record in read(b"b\r\n", strip_cr=True)] == [b"b"]


def test_a_line_may_have_a_key_and_stand_for_null() -> None:
    (first, second) = read(b"k\tv\tw\n", b"k\t-\n", key_separator="\\t", null_value="-")
    assert (first.key, first.value) == (b"k", b"v\tw")
    assert (second.key, second.value) == (b"k", None)


def test_headers_go_with_every_record() -> None:
    assert [record.headers for record in read(b"a\n", b"b\n", header=["h=1", "i="])] == [(("h", b"1"), ("i", b""))] * 2
    with pytest.raises(ClientError, match="--header h: expected NAME=VALUE"):
        read(header=["h"])


def test_a_line_without_its_key_is_named() -> None:
    with pytest.raises(BadLineError, match=r"Line 2 has no key separator: b\\x1b"):
        read(b"k:v\n", b"b\x1b\n", key_separator=":")
