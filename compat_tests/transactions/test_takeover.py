"""Consume, transform, produce: a producer is killed in a transaction, and another one with the same id takes over."""

from __future__ import annotations

from compat_tests.broker_process import Server
from compat_tests.transactions.processes import READERS, Producer, committed

#: The step during which the first producer is killed, the second one, and so on.
KILLED_AT = ("send", "offset", "commit")


def test_each_source_record_counts_once(client: str, server: Server, topic: str) -> None:
    """The producers share only the offset of the next source record, which is committed together with the result."""
    group, last = f"group.{topic}", len(KILLED_AT) * 2
    for killed_at in (*KILLED_AT, None):
        with Producer(client, server.address, topic, 60_000) as producer:
            producer.do("init")
            steps = 0
            while True:
                producer.do("begin")  # kafkajs asks for its producer id here, which aborts what is open
                offset = committed(server.address, group, topic) or 0
                if offset == last:
                    break
                steps += 1
                words = {
                    "send": ("send", topic, 0, f"of-{offset}"),
                    "offset": ("offset", topic, 0, offset + 1, group),
                    "commit": ("commit",),
                }
                for name, command in words.items():
                    if steps == 2 and name == killed_at:
                        producer.die_at(*command)
                        break
                    producer.do(*command)
                else:
                    continue
                break
    assert committed(server.address, group, topic) == last
    expected = [f"of-{offset}" for offset in range(last)]
    with Producer("confluent-kafka", server.address, f"{topic}.end") as producer:
        for command in (("init",), ("begin",), ("send", topic, 0, "end"), ("commit",)):
            producer.do(*command)
    assert READERS["confluent-kafka"](server.address, topic, last + 1) == [*expected, "end"]
