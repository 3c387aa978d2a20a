"""The partitioner of the command line is that of Kafka's clients."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner import murmur2 as reference

from barnabas.scripts.produce import murmur2


@given(st.binary(max_size=40))
def test_murmur2_is_the_clients_hash(data: bytes):
    assert murmur2(data) == reference(data) & 0x7FFFFFFF
