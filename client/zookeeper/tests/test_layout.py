"""Paths and numbers of offsets in ZooKeeper: the names that clients choose, and the content of znodes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.zookeeper.layout import (
    MAX_OFFSET,
    misfit,
    parse_connect,
    parse_offset,
    parse_partition,
    position_path,
)


@given(st.text())
def test_no_name_leads_out_of_consumers(group: str) -> None:
    if misfit(group) is None:
        parts = position_path("/root", group, ("topic", 3)).split("/")
        assert parts == ["", "root", "consumers", group, "offsets", "topic", "3"]
        assert not {"", ".", ".."} & set(parts[1:])


@pytest.mark.parametrize(
    "group", ["", ".", "..", "a/b", "/", "a\0", "\x1f", "\x7f", "\x9f", "\ue000", "\ufff0", "🐘", "barnabas.streams"]
)
def test_names_without_a_znode(group: str) -> None:
    assert misfit(group)


@pytest.mark.parametrize("group", ["g", "a:b", " ", "ä", "...", "zookeeper", "\uf900", "n" * 10_000])
def test_names_with_a_znode(group: str) -> None:
    assert misfit(group) is None


@pytest.mark.parametrize("value", [b"", b"-1", b"+1", b" 1", b"1\n", b"1_0", b"\xff", "٣".encode(), b"1" * 40])
def test_what_is_no_offset(value: bytes) -> None:
    with pytest.raises(ValueError):
        parse_offset(value)


def test_numbers() -> None:
    assert parse_offset(b"%d" % MAX_OFFSET) == MAX_OFFSET
    assert parse_partition("7") == 7
    with pytest.raises(ValueError, match="BROKER-PARTITION"):
        parse_partition("1-0")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("zk:2181", ("zk:2181", "")),
        ("zk", ("zk", "")),
        ("a:1, b:2/kafka/prod/", ("a:1,b:2", "/kafka/prod")),
        ("[::1]:2181/k", ("[::1]:2181", "/k")),
    ],
)
def test_an_address_with_a_chroot(text: str, found: tuple[str, str]) -> None:
    assert parse_connect(text) == found


@pytest.mark.parametrize(
    "text", ["", "/k", "a:x", "a:0", "a:70000", "a b:1", "user:pw@a:1", "a:1/../b", "zookeeper://a:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=re.compile("expected HOST|no chroot")):
        parse_connect(text)
