"""`produce`: lines become records, and keys choose partitions as with Kafka's clients."""

from __future__ import annotations

import argparse
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner import murmur2 as reference

from barnabas.client.errors import ClientError
from barnabas.client.partitioner import murmur2
from barnabas.scripts import produce
from barnabas.scripts.produce import BadLineError, Lines, lines_of
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


class Gathering:
    """The part of a sender that `lines_of` uses; `sent` are the batches."""

    def __init__(self) -> None:
        self.gathered: list[bytes] = []
        self.sent: list[list[bytes]] = []

    @property
    def has_records(self) -> bool:
        return bool(self.gathered)

    def send(self) -> None:
        self.sent.append(self.gathered)
        self.gathered = []


@given(st.lists(st.binary(max_size=8), max_size=20), st.binary(max_size=3))
def test_lines_are_those_of_the_file_however_they_come(pieces: list[bytes], end: bytes) -> None:
    reading, writing = os.pipe()
    for piece in (*pieces, end):
        os.write(writing, piece)
    os.close(writing)
    try:
        whole = b"".join((*pieces, end))
        wanted = whole.split(b"\n")
        assert list(lines_of(reading, Gathering())) == (wanted if wanted[-1] else wanted[:-1])
    finally:
        os.close(reading)


def test_what_is_there_is_sent_while_the_pipe_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Available lines are sent together, and the reader then waits for more: no empty sends."""
    monkeypatch.setattr(produce, "LINGER_SECONDS", 0.01)
    reading, writing = os.pipe()
    sender = Gathering()
    lines = lines_of(reading, sender)
    os.write(writing, b"a\nb\nha")
    sender.gathered += [next(lines), next(lines)]

    def send() -> None:
        Gathering.send(sender)
        os.write(writing, b"lf\n")

    monkeypatch.setattr(sender, "send", send)
    assert next(lines) == b"half"
    assert sender.sent == [[b"a", b"b"]]
    os.close(writing)
    assert list(lines) == []
    os.close(reading)
