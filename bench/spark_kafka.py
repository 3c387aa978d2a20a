"""The peer of the `wal` source: Spark's own Kafka connector, reading the same records from Apache Kafka."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from compat_tests.tools import ROOT

JARS = ROOT / ".tools" / "spark-kafka"
_CENTRAL = "https://repo1.maven.org/maven2"
# The newest version of each on Maven Central; only secured clusters use the token provider.
_FILES = (
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.0.0/spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar",
    "org/apache/commons/commons-pool2/2.13.1/commons-pool2-2.13.1.jar",
)
_BY_NAME = 12
_NOT_YET = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_TRIES, _BACKOFF_SECONDS = 50, 0.2


def connector() -> list[str]:
    """The paths of the connector's jars, downloaded if missing. Raises OSError if the download fails."""
    JARS.mkdir(parents=True, exist_ok=True)
    paths = []
    for file in _FILES:
        path = JARS / Path(file).name
        if not path.exists():
            fresh = path.with_suffix(".new")
            with urllib.request.urlopen(f"{_CENTRAL}/{file}", timeout=60) as answer:
                fresh.write_bytes(answer.read())
            fresh.rename(path)
        paths.append(str(path))
    return paths


def fill(server: str, topic: str, batches: list[bytes], count: int, partitions: int) -> None:
    """Write `count` batches to each partition, in turn and unchanged; any Kafka broker takes them."""
    with Cluster(server) as cluster:
        kept = {"retention.ms": "-1"}  # the records are older than the default retention
        made = create_topic(cluster, topic, kept, partitions=partitions, replication_factor=1)
        check(made.error_code, topic, made.error_message)
        leaders = cluster.leaders(topic, create=True)
        for partition in range(partitions):
            wire = cluster.broker(leaders[partition])
            for number in range(count):
                data = PartitionProduceData(partition, batches[number % len(batches)])
                request = ProduceRequest(
                    acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
                )
                for _ in range(_TRIES):
                    answer = wire.ask(request, ProduceResponse, version=_BY_NAME).responses[0].partition_responses[0]
                    if answer.error_code not in _NOT_YET:
                        break
                    time.sleep(_BACKOFF_SECONDS)  # Kafka elects leaders in the background
                check(answer.error_code, f"Produce to {topic}-{partition}", answer.error_message)
