"""A node without a free descriptor: what it has open goes on, and the rest comes when there are descriptors again."""

from __future__ import annotations

import os
import re
import resource
import signal
from pathlib import Path

from confluent_kafka import Producer

from barnabas.client.cluster import Cluster
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.nodes.broker import Nodes
from compat_tests.waiting import until

NODE, PARTITIONS = 3, 6


def limit(pid: int, most: int) -> None:
    """Let a process have no descriptor with a number from `most` on."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))


def written(producer: Producer, topic: str) -> None:
    """One record in each partition."""
    for partition in range(PARTITIONS):
        producer.produce(topic, b"v", partition=partition)
    assert producer.flush(60) == 0


def test_a_node_without_descriptors_follows_and_serves_and_takes_up_what_it_missed(tmp_path: Path) -> None:
    with Nodes(tmp_path) as broker:
        broker.expected_errors += ["Too many open files", "node.ended"]
        client, producer = ConfluentDriver(broker.servers), Producer({"bootstrap.servers": broker.servers})
        client.create_topic("before", PARTITIONS)
        written(producer, "before")  # it has connections to all nodes now
        client.create_topic("ended", PARTITIONS)
        transactional = Producer({"bootstrap.servers": broker.servers, "transactional.id": "x"})
        transactional.init_transactions(60)
        transactional.begin_transaction()
        written(transactional, "ended")
        pid = broker.pids()[NODE]
        free, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        limit(pid, 3)  # what is open stays open
        client.create_topic("meanwhile", PARTITIONS)  # all nodes have applied it: the node follows
        written(producer, "before")
        transactional.commit_transaction(60)  # markers go to the node, or from it
        owner = broker.pids()[1]
        os.kill(owner, signal.SIGKILL)  # the node has to connect anew, and cannot
        until(lambda: broker.pids().get(1) not in (None, owner), "the owner is there again")
        away = re.compile("metadata.owner.away node=3 .*Too many open files")
        until(lambda: away.search(broker.log_file.read_text()) is not None, "the node says what is wrong")
        assert broker.pids()[NODE] == pid
        limit(pid, free)
        client.create_topic("after", PARTITIONS)
        for topic in ("meanwhile", "after"):
            written(producer, topic)
        for topic, count in {"before": 2, "ended": 1, "meanwhile": 1, "after": 1}.items():
            assert len(client.consume(topic, count * PARTITIONS, partition=None)) == count * PARTITIONS
            with Cluster(broker.servers) as cluster:
                assert NODE in cluster.leaders(topic).values()
        assert broker.pids()[NODE] == pid, "it has not ended"
        client.close()
        assert broker.stop() == 0
        assert broker.errors() == []
