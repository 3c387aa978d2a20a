"""The broker is killed after each step of a transaction: acknowledged steps hold, and the producer goes on."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from compat_tests.broker_process import Barnabas
from compat_tests.tools import missing
from compat_tests.transactions.processes import READERS, Producer

STEPS = ("init", "begin", "send", "offset", "commit")
#: kafka-python speaks version 1 of transactions, the Java client version 2. librdkafka 2.16 waits forever in
#: send_offsets_to_transaction after a broker has restarted, also with Apache Kafka.
CLIENTS = ("kafka-python", "java")
#: The steps of the quick lane, for each client.
QUICK = (("send", "commit"), ("commit", "abort"))
#: The lanes of the other steps. Each step starts a process, and one with a JVM is slow.
OTHERS = {"kafka-python": pytest.mark.long, "java": pytest.mark.slow}
CASES = [
    pytest.param(*case, marks=[] if case[1:] in QUICK else [OTHERS[case[0]]])
    for case in product(CLIENTS, STEPS, ("commit", "abort"))
]


@pytest.mark.parametrize(("client", "step", "outcome"), CASES)
def test_a_transaction_goes_on_where_the_broker_was_killed(
    client: str, step: str, outcome: str, tmp_path: Path
) -> None:
    if reason := missing(client):
        pytest.skip(reason)
    broker = Barnabas(tmp_path, {})
    with broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.address)
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.close()
        with Producer(client, broker.address, "killed") as producer:
            for number, how in enumerate(("commit", outcome, "commit")):
                words = {
                    "init": ("init",),
                    "begin": ("begin",),
                    "send": ("send", "t", 0, f"{number}"),
                    "offset": ("offset", "t", 0, number + 1, "g"),
                    "commit": (how,),
                }
                for each, command in words.items():
                    if each == "init" and number:
                        continue
                    producer.do(*command)
                    if each == step and number == (0 if step == "init" else 1):
                        broker.kill()
                        broker.start()
            expected = ["0", "1", "2"] if outcome == "commit" else ["0", "2"]
            assert READERS["confluent-kafka"](broker.address, "t", len(expected)) == expected
            consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id="g", isolation_level="read_committed")
            assert consumer.committed(TopicPartition("t", 0)) == 3
            consumer.close()
