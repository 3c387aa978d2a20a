"""A partition's folder from an Apache Kafka data directory is served as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.fetch import Reader
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.compression import CompressionType
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Barnabas
from compat_tests.tools import missing


def produce(cluster: Cluster, leader: int, values: list[bytes], codec: CompressionType) -> None:
    batch = build_batch(
        [Record(b"k", value, 1_700_000_000_000 + i) for i, value in enumerate(values)], compression=codec
    )
    topic = TopicProduceData("moved", partition_data=[PartitionProduceData(0, batch)])
    request = ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])
    answer = cluster.broker(leader).ask(request, ProduceResponse, version=9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def values_of(cluster: Cluster) -> list[bytes | None]:
    reader = Reader(cluster, "moved")
    reader.positions = {0: 0}
    found: list[bytes | None] = []
    while not found or not reader.at_end():
        found += [record.value for _, record in reader.poll()]
    return found


@pytest.mark.long
def test_a_folder_copied_from_apache_kafka_is_served_and_written_on(tmp_path: Path) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    written: list[bytes] = []
    kafka = ApacheKafka(tmp_path / "kafka", {"log.segment.bytes": "1048576", "num.partitions": "1"})
    kafka.start()
    try:
        with Cluster(kafka.address) as cluster:
            assert cluster.leaders("moved", create=True) == {0: 1}
            for number, codec in enumerate(CompressionType):
                values = [b"%d-%d-" % (number, i) + bytes(1000) for i in range(500)]
                produce(cluster, 1, values, codec)
                written += values
    finally:
        kafka.stop()

    ours = Barnabas(tmp_path / "ours")
    shutil.copytree(kafka.data_dir / "moved-0", ours.data_dir / "moved-0")
    ours.start()
    try:
        with Cluster(ours.address) as cluster:
            leaders = cluster.leaders("moved")
            assert list_offsets(cluster, [("moved", 0)], LATEST) == {("moved", 0): len(written)}
            assert values_of(cluster) == written
            produce(cluster, leaders[0], [b"ours"], CompressionType.NONE)
            assert values_of(cluster) == [*written, b"ours"]
    finally:
        assert ours.stop() == 0
    assert ours.errors() == []
