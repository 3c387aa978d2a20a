"""Query topics with a real broker, a real Spark driver and common clients."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from barnabas.client.admin import topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from compat_tests.aiokafka.driver import AiokafkaDriver
from compat_tests.broker_process import Barnabas
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.driver import At, Driver, Record, Refused
from compat_tests.java import tools
from compat_tests.java.driver import JavaDriver
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.kafkajs.driver import KafkajsDriver
from compat_tests.kcat.driver import KcatDriver
from compat_tests.query_topics.conftest import SETTINGS
from compat_tests.query_topics.processes import kill, processes
from compat_tests.tools import ROOT, missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
from barnabas.scripts import cli
from barnabas.streams.query.__main__ import TAKEN_OVER

if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

COLUMNS = "device STRING, temp DOUBLE"
SENSORS = {"barnabas.value.format": "json", "barnabas.value.schema": COLUMNS}
PARTITIONS = 2
CLIENTS: list[type[Driver]] = [
    KafkaPythonDriver,
    AiokafkaDriver,
    ConfluentDriver,
    KcatDriver,
    KafkajsDriver,
    JavaDriver,
]


def reading(number: int) -> dict[str, Any]:
    return {"device": f"d{number % 3}", "temp": number + 0.5}


def fill(admin: Driver, topic: str, first: int, count: int) -> None:
    """Write readings, each to the partition of its number."""
    for partition in range(PARTITIONS):
        mine = range(first + (partition - first) % PARTITIONS, first + count, PARTITIONS)
        admin.produce(
            topic,
            [
                Record(json.dumps(reading(n)).encode(), b"k%d" % n, (("n", b"%d" % n),), partition=partition)
                for n in mine
            ],
        )


def ends(broker: Barnabas, topic: str, special: int = LATEST) -> dict[int, int]:
    with Cluster(broker.address) as cluster:
        keys = [(topic, partition) for partition in cluster.leaders(topic)]
        return {partition: offset for (_, partition), offset in list_offsets(cluster, keys, special).items()}


def wait_for(broker: Barnabas, topic: str, source: str, deadline: float = 90) -> None:
    """Return when a query has processed its source to the end."""

    def is_there() -> bool:
        try:
            return ends(broker, topic) == ends(broker, source)
        except ClientError:
            return False

    until(is_there, f"{topic} comes to the end of {source}", deadline)


def records(broker: Barnabas, topic: str) -> list[tuple[int, int | None, bytes | None]]:
    """Partition, offset and value of all records, partition by partition."""
    client = ConfluentDriver(broker.address)
    found = []
    for partition, end in ends(broker, topic).items():
        start = ends(broker, topic, EARLIEST)[partition]
        while start < end:  # the number of records is unknown, as offsets have gaps
            more = read_until_end(client, topic, partition, start)
            if not more:
                break
            found += [(partition, r.offset, r.value) for r in more]
            start = (more[-1].offset or 0) + 1
    client.close()
    return found


def read_until_end(client: Driver, topic: str, partition: int, start: int) -> list[Record]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": client.address,
            "group.id": "none",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "enable.auto.commit": False,
        }
    )
    found: list[Record] = []
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            message = consumer.poll(30)
            assert message is not None, f"nothing more of {topic}-{partition}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(
                Record(
                    message.value(), message.key(), tuple(message.headers() or ()), partition, offset=message.offset()
                )
            )
    finally:
        consumer.close()


def status_of(broker: Barnabas, topic: str) -> dict[str, Any]:
    from barnabas.scripts.status import last_status

    with Cluster(broker.address) as cluster:
        status = last_status(cluster)
    found = [query for query in (status.queries if status else ()) if query.topic == topic]
    return msgspec.structs.asdict(found[0]) if found else {}


def test_the_results_have_the_offsets_keys_and_times_of_their_source(broker: Barnabas, admin: Driver) -> None:
    admin.create_topic("sensors", PARTITIONS, SENSORS)
    fill(admin, "sensors", 0, 40)
    admin.create_topic("hot", -1, {"barnabas.query": "SELECT device, temp FROM sensors WHERE temp > 20"})
    assert admin.topics()["hot"] == PARTITIONS
    wait_for(broker, "hot", "sensors")
    expected = [(n % 2, n // 2, reading(n)) for p in range(PARTITIONS) for n in range(p, 40, 2) if n + 0.5 > 20]
    assert [(p, o, json.loads(v or b"")) for p, o, v in records(broker, "hot")] == expected
    (first,) = admin.consume("hot", 1, At("offset", 10), partition=0)
    (source,) = admin.consume("sensors", 1, At("offset", 10), partition=0)
    assert (first.offset, first.key, first.headers) == (source.offset, source.key, source.headers)
    assert first.timestamp == source.timestamp
    found = admin.topic_config("hot")
    assert found["barnabas.value.schema"] == "device string, temp double"
    with pytest.raises(Refused, match="INVALID_TOPIC"):
        admin.produce("hot", [Record(b"x")])


@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.name)
def test_every_client_reads_a_query_topic_in_a_group_and_resumes(
    broker: Barnabas, admin: Driver, kind: type[Driver]
) -> None:
    if kind.tool and (reason := missing(kind.tool)):
        pytest.skip(reason)
    if "clients" not in admin.topics():
        admin.create_topic("clients", 1, SENSORS)
        admin.create_topic("some", -1, {"barnabas.query": "SELECT temp FROM clients WHERE temp % 7 < 1"})
        for _ in range(3):  # several ticks: gaps inside, after and between batches
            values = [json.dumps({"device": "d", "temp": n}).encode() for n in range(100)]
            admin.produce("clients", [Record(value) for value in values])
            wait_for(broker, "some", "clients")
        admin.produce("clients", [Record(b'{"temp": 1}')] * 10)  # a tick without results: an empty batch
        wait_for(broker, "some", "clients")
        admin.produce("clients", [Record(b'{"temp": 7}')])
        wait_for(broker, "some", "clients")
    expected = [start + n for start in (0, 100, 200) for n in range(0, 100, 7)] + [310]
    client = kind(broker.address)
    try:
        group = f"g-{kind.name}".replace(" ", "-")
        first = client.consume_in_group(group, "some", 20)
        rest = client.consume_in_group(group, "some", len(expected) - 20)
    finally:
        client.close()
    assert [r.offset for r in [*first, *rest]] == expected
    assert {json.loads(r.value or b"")["temp"] % 7 for r in [*first, *rest]} == {0}


def test_what_does_not_fit_goes_to_the_dead_letters_and_stops_nothing(broker: Barnabas, admin: Driver) -> None:
    admin.create_topic("mixed", 1, SENSORS)
    admin.produce("mixed", [Record(b'{"temp": 1}'), Record(b"nothing", b"key"), Record(b'{"temp": 2}')])
    admin.create_topic("parsed", -1, {"barnabas.query": "SELECT temp FROM mixed"})
    admin.create_topic("strict", -1, {"barnabas.query": "SELECT temp FROM mixed", "barnabas.query.on.error": "fail"})
    admin.create_topic("lenient", -1, {"barnabas.query": "SELECT temp FROM mixed", "barnabas.query.on.error": "skip"})
    wait_for(broker, "parsed", "mixed")
    wait_for(broker, "lenient", "mixed")
    assert [o for _, o, _ in records(broker, "parsed")] == [o for _, o, _ in records(broker, "lenient")] == [0, 2]
    (letter,) = admin.consume("parsed.dead-letter", 1)
    assert (letter.offset, letter.key, letter.value) == (1, b"key", b"nothing")
    assert dict(letter.headers)["barnabas.error"] == b"the value is not one JSON object"
    until(lambda: status_of(broker, "strict").get("state") == "FAILED", "the strict query stops")
    assert "offset 1" in status_of(broker, "strict")["last_error"]
    until(lambda: status_of(broker, "parsed").get("dead_letters") == 1, "the dead letter is counted")
    assert "lenient.dead-letter" not in admin.topics()
    broker.expected_errors.append("topic=strict")


def test_a_failing_query_leaves_those_beside_it_alone(broker: Barnabas, admin: Driver) -> None:
    admin.create_topic("failing", 1, SENSORS)
    admin.create_topic("well", -1, {"barnabas.query": "SELECT temp FROM failing"})
    admin.create_topic("bad", -1, {"barnabas.query": "SELECT fails(temp) x FROM failing"})
    admin.produce("failing", [Record(b'{"temp": %d}' % n) for n in range(6)])
    wait_for(broker, "well", "failing")
    until(lambda: status_of(broker, "bad").get("state") == "RETRYING", "the failing query is tried again")
    assert "no more" in status_of(broker, "bad")["last_error"]
    admin.produce("failing", [Record(b'{"temp": 9}')])
    wait_for(broker, "well", "failing")
    admin.set_topic_config("bad", "barnabas.query", "SELECT temp AS x FROM failing WHERE temp >= 3")
    wait_for(broker, "bad", "failing")
    assert [o for _, o, _ in records(broker, "bad")][-4:] == [3, 4, 5, 6]


def test_values_in_avro(broker: Barnabas, admin: Driver) -> None:
    written = {"type": "record", "name": "R", "fields": [{"name": "device", "type": "string"}]}
    settings = {
        "barnabas.value.format": "avro",
        "barnabas.value.schema": "device STRING",
        "barnabas.value.avro.schema": json.dumps(written),
    }
    admin.create_topic("packed", 1, settings)
    admin.produce("packed", [Record(b"\2a"), Record(b"\4bb")])
    admin.create_topic("unpacked", -1, {"barnabas.query": "SELECT upper(device) d FROM packed WHERE device > 'a'"})
    wait_for(broker, "unpacked", "packed")
    assert records(broker, "unpacked") == [(0, 1, b'{"d":"BB"}')]
    admin.create_topic("misread", 1, {**settings, "barnabas.value.schema": "colour STRING"})
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        admin.create_topic("refused", -1, {"barnabas.query": "SELECT colour FROM misread"})


def test_values_in_csv(broker: Barnabas, admin: Driver) -> None:
    settings = {
        "barnabas.value.format": "csv",
        "barnabas.value.schema": "device STRING, temp DOUBLE, room STRING",
        "barnabas.value.csv.separator": "\\t",
        "barnabas.value.csv.null": "NA",
    }
    admin.create_topic("tabs", 1, settings)
    admin.produce("tabs", [Record(b"a,b\t1.5\tNA"), Record(b"c\t2\t\n"), Record(b"d;3;x")])
    for name, query in [("simple", "SELECT * FROM tabs"), ("computed", "SELECT upper(device) d, room FROM tabs")]:
        admin.create_topic(f"tabs-{name}", -1, {"barnabas.query": query})
        wait_for(broker, f"tabs-{name}", "tabs")
    assert records(broker, "tabs-simple") == [
        (0, 0, b'{"device":"a,b","temp":1.5,"room":null}'),
        (0, 1, b'{"device":"c","temp":2.0,"room":""}'),
    ]
    assert records(broker, "tabs-computed") == [(0, 0, b'{"d":"A,B","room":null}'), (0, 1, b'{"d":"C","room":""}')]
    assert [o for _, o, _ in records(broker, "tabs-simple.dead-letter")] == [2]
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        admin.create_topic("quoted", 1, {**settings, "barnabas.value.csv.separator": '"'})


def origins(broker: Barnabas, topic: str) -> list[tuple[str, int, int]]:
    """The sources of the results of a query over a pattern, by their headers, without events."""
    client = ConfluentDriver(broker.address)
    found = []
    for partition, start in ends(broker, topic, EARLIEST).items():
        for record in read_until_end(client, topic, partition, start):
            told = dict(record.headers)
            if "barnabas.event" in told:
                continue
            place = (told[f"barnabas.source.{part}"] or b"" for part in ("topic", "partition", "offset"))
            name, source_partition, offset = (text.decode() for text in place)
            assert int(source_partition) % len(ends(broker, topic)) == partition
            found.append((name, int(source_partition), int(offset)))
    client.close()
    return sorted(found)


def events(broker: Barnabas, topic: str) -> list[tuple[str, str, int]]:
    """The events about sources among the results of a query over a pattern, in order: event, topic, partitions."""
    client = ConfluentDriver(broker.address)
    found = []
    for record in read_until_end(client, topic, 0, ends(broker, topic, EARLIEST)[0]):
        event = dict(record.headers).get("barnabas.event")
        if event is not None:
            told = json.loads(record.value or b"")
            assert (told["event"], told["topic"]) == (event.decode(), (record.key or b"").decode())
            found.append((told["event"], told["topic"], told["partitions"]))
    client.close()
    return found


@pytest.mark.long
def test_a_query_over_a_pattern_merges_what_matches_now_and_later(broker: Barnabas, admin: Driver) -> None:
    for name, partitions in (("plant-a", 1), ("plant-b", 2)):
        admin.create_topic(name, partitions, SENSORS)
    admin.create_topic("garden", 1)
    query = "SELECT device, _topic t FROM topics('plant-.*') WHERE temp >= 5"
    admin.produce("plant-a", [Record(b'{"temp": %d}' % n) for n in range(10)])
    admin.create_topic("plants", -1, {"barnabas.query": query, "barnabas.query.events": "true"})
    assert admin.topics()["plants"] == 2
    fill(admin, "plant-b", 0, 20)
    admin.create_topic("plant-c", 3, SENSORS)
    admin.produce("plant-c", [Record(b"nothing", partition=2), Record(b'{"temp": 5}', partition=2)])
    expected = [
        *(("plant-a", 0, n) for n in range(5, 10)),
        *(("plant-b", n % 2, n // 2) for p in range(2) for n in range(p, 20, 2) if n + 0.5 >= 5),
        ("plant-c", 2, 1),
    ]
    told = [("created", "plant-a", 1), ("created", "plant-b", 2), ("created", "plant-c", 3)]
    until(lambda: sum(ends(broker, "plants").values()) >= len(expected) + 3, "all results are there")
    assert origins(broker, "plants") == expected
    assert events(broker, "plants") == told
    assert kill(broker, "driver")
    admin.produce("plant-a", [Record(b'{"temp": %d}' % n) for n in range(10)])
    grow(broker, "plant-a", 2)
    admin.produce("plant-a", [Record(b'{"temp": 7}', partition=1)])
    expected[5:5] = [*(("plant-a", 0, n) for n in range(15, 20)), ("plant-a", 1, 0)]
    until(lambda: sum(ends(broker, "plants").values()) >= len(expected) + 4, "the results go on")
    assert origins(broker, "plants") == expected
    assert events(broker, "plants") == [*told, ("altered", "plant-a", 2)]
    grow(broker, "plant-b", 3)
    admin.produce("plant-b", [Record(b'{"temp": 8}', partition=2)])
    until(lambda: ("plant-b", 2, 0) in origins(broker, "plants"), "a partition that is added is read")
    assert events(broker, "plants")[-1] == ("altered", "plant-b", 3)
    assert admin.committed("barnabas.query.plants", "plant-a")
    (letter,) = admin.consume("plants.dead-letter", 1, partition=None)
    assert letter.value == b"nothing"
    broker.expected_errors += ["streams.driver.ended", "streams.fatal"]


def grow(broker: Barnabas, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    rdkafka = AdminClient({"bootstrap.servers": broker.address})
    rdkafka.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def test_a_query_can_be_changed_its_source_can_grow_and_both_can_go(broker: Barnabas, admin: Driver) -> None:
    admin.create_topic("first", 1, SENSORS)
    admin.produce("first", [Record(b'{"temp": 1}')])
    admin.create_topic("second", -1, {"barnabas.query": "SELECT temp FROM first"})
    admin.create_topic("third", -1, {"barnabas.query": "SELECT temp * 10 AS temp FROM second"})
    wait_for(broker, "third", "first")
    admin.set_topic_config("second", "barnabas.query", "SELECT temp + 1 AS temp FROM first")
    admin.produce("first", [Record(b'{"temp": 1}')])
    wait_for(broker, "third", "first")
    assert [json.loads(v or b"")["temp"] for _, _, v in records(broker, "third")] == [10, 20]
    grow(broker, "first", 2)
    until(lambda: admin.topics()["third"] == 2, "the query over the query grows too")
    admin.produce("first", [Record(b'{"temp": 4}', partition=1)])
    wait_for(broker, "third", "first")
    assert records(broker, "third")[-1][:2] == (1, 0)
    admin.delete_topic("first")
    until(lambda: status_of(broker, "second").get("state") == "FAILED", "the query sees that its source is gone")
    assert "first was deleted" in status_of(broker, "second")["last_error"]
    admin.delete_topic("second")
    admin.delete_topic("third")
    broker.expected_errors += ["topic=second", "topic=third"]


def test_retention_of_the_source_leaves_a_gap_and_loses_nothing_else(broker: Barnabas, admin: Driver) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin.create_topic("short", 1, SENSORS)
    admin.produce("short", [Record(b'{"temp": %d}' % n) for n in range(10)])
    rdkafka = AdminClient({"bootstrap.servers": broker.address})
    for done in rdkafka.delete_records([TopicPartition("short", 0, 4)]).values():
        done.result(30)
    admin.create_topic("kept", -1, {"barnabas.query": "SELECT temp FROM short"})
    wait_for(broker, "kept", "short")
    assert [o for _, o, _ in records(broker, "kept")] == list(range(4, 10))
    assert ends(broker, "kept", EARLIEST) == {0: 4}


def kafka(broker: Barnabas, tool: str, *arguments: str) -> str:
    """The output of one of Kafka's own tools, which must succeed."""
    done = tools.run(tool, "--bootstrap-server", broker.address, *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.long
def test_kafkas_own_tools_make_query_topics(broker: Barnabas, admin: Driver, tmp_path: Path) -> None:
    query = "SELECT device, temp FROM meters WHERE temp > 20"
    kafka(broker, tools.TOPICS, "--create", "--topic", "meters", "--partitions", str(PARTITIONS))
    at = ("--bootstrap-server", broker.address)
    refused = tools.run(tools.TOPICS, *at, "--create", "--topic", "warm", "--config", f"barnabas.query={query}")
    assert "Unknown topic config name: barnabas.query" in refused.stderr + refused.stdout  # from the tool

    def alter(topic: str, *settings: str) -> subprocess.CompletedProcess[str]:
        return tools.run(tools.CONFIGS, *at, "--entity-type", "topics", "--entity-name", topic, "--alter", *settings)

    assert alter("meters", "--add-config", f"barnabas.value.schema=[{COLUMNS}]").returncode == 0
    fill(admin, "meters", 0, 40)
    admin.create_topic("early", -1, {"barnabas.query": "SELECT temp FROM meters"})  # before the tools
    places = [{"topic": "meters", "partition": 0, "offset": 15}]
    shortened = tmp_path / "shortened.json"
    shortened.write_text(json.dumps({"version": 1, "partitions": places}))
    kafka(broker, tools.DELETE_RECORDS, "--offset-json-file", str(shortened))

    for topic in ("warm", "cold"):
        kafka(broker, tools.TOPICS, "--create", "--topic", topic)
    done = alter("warm", "--add-config", f"barnabas.query=[{query}],barnabas.query.on.error=skip")
    assert "Completed updating config for topic warm." in done.stdout, done.stderr + done.stdout
    settings = tmp_path / "query.properties"
    settings.write_text(
        "barnabas.query=SELECT CAST(temp AS STRING) _value FROM meters WHERE device IN ('d0', 'd1')\n"
        "barnabas.query.start=latest\n"
    )
    done = alter("cold", "--add-config-file", str(settings))
    assert "Completed updating config for topic cold." in done.stdout, done.stderr + done.stdout
    refused = alter("meters", "--add-config", "barnabas.query=[SELECT device FROM warm]")
    assert "meters is read by the query topic early" in refused.stderr + refused.stdout

    fill(admin, "meters", 40, 20)
    for topic in ("warm", "cold"):
        wait_for(broker, topic, "meters")
    assert ends(broker, "warm", EARLIEST) == ends(broker, "meters", EARLIEST) == {0: 15, 1: 0}
    assert ends(broker, "cold", EARLIEST) == {0: 20, 1: 20}
    client = JavaDriver(broker.address)
    for partition, first in enumerate((15, 0)):
        numbers = [(n // 2, n) for n in range(partition, 60, 2) if n // 2 >= first]
        expected = [(offset, b"k%d" % n, reading(n)) for offset, n in numbers if n + 0.5 > 20]
        found = client.consume("warm", len(expected), partition=partition)
        assert [(r.offset, r.key, json.loads(r.value or b"")) for r in found] == expected
        cold = [(offset, b"%.1f" % (n + 0.5)) for offset, n in numbers if n >= 40 and n % 3 < 2]
        found = client.consume("cold", len(cold), partition=partition)
        assert [(r.offset, r.value) for r in found] == cold
    client.close()


def test_an_empty_topic_becomes_a_query_topic_in_sql_too(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.create_topic("boilers", PARTITIONS, SENSORS)
    fill(admin, "boilers", 0, 10)
    for name in ("boilers-hot", "boilers-all"):  # ordinary topics; the pattern matches both
        admin.create_topic(name, 1)

    def sql(statement: str) -> tuple[int, str]:
        status = cli.main(["sql", "--server", broker.address, statement])
        told = capsys.readouterr()
        return status, told.out + told.err

    status, told = sql("ALTER TOPIC `boilers-hot` SET ('barnabas.query' = 'SELECT temp FROM boilers WHERE temp > 5')")
    assert (status, told) == (0, "Altered topic boilers-hot.\nIts values: json temp double.\n")
    status, told = sql("ALTER TOPIC `boilers-all` AS SELECT device FROM topics('boilers.*')")
    assert (status, told) == (0, "Altered topic boilers-all.\nIts values: json device string.\n")
    status, told = sql("ALTER TOPIC boilers AS SELECT device FROM `boilers-hot`")
    assert status == 1
    assert "boilers is read by the query topic boilers-hot" in told
    wait_for(broker, "boilers-hot", "boilers")
    found = [(p, o, json.loads(v or b"")) for p, o, v in records(broker, "boilers-hot")]
    assert found == [(n % 2, n // 2, {"temp": n + 0.5}) for p in range(PARTITIONS) for n in range(p, 10, 2) if n >= 5]
    until(lambda: sum(ends(broker, "boilers-all").values()) >= 10, "all results are there")
    assert origins(broker, "boilers-all") == [("boilers", p, o) for p in range(PARTITIONS) for o in range(5)]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["driver", "jvm", "worker"])
def test_the_driver_comes_back_and_goes_on_where_it_was(broker: Barnabas, admin: Driver, victim: str) -> None:
    source, results = f"life-{victim}", f"after-{victim}"
    admin.create_topic(source, PARTITIONS, SENSORS)
    admin.create_topic(
        results,
        -1,
        {"barnabas.query": f"SELECT device FROM `{source}` WHERE works(_offset + 0.5D) >= 0 AND device = 'd1'"},
    )
    fill(admin, source, 0, 30)
    wait_for(broker, results, source)
    assert kill(broker, victim)
    fill(admin, source, 30, 30)
    wait_for(broker, results, source)
    expected = [(p, n // 2) for p in range(PARTITIONS) for n in range(p, 60, 2) if n % 3 == 1]
    assert [(p, o) for p, o, _ in records(broker, results)] == expected
    broker.expected_errors += ["streams.driver.ended", "streams.fatal"]


@pytest.mark.slow
def test_the_definitions_survive_and_a_broker_without_queries_has_no_jvm(tmp_path: Path) -> None:
    broker = Barnabas(tmp_path, SETTINGS)
    broker.start()
    admin = KafkaPythonDriver(broker.address)
    try:
        admin.create_topic("source", 1, SENSORS)
        admin.produce("source", [Record(b'{"temp": 1}')])
        assert not processes(broker, "all")
        admin.create_topic("nothing", 1, SENSORS)
        admin.create_topic("waiting", -1, {"barnabas.query": "SELECT temp FROM nothing"})
        until(lambda: processes(broker, "driver"), "the driver is there before the first record")
        admin.create_topic("results", -1, {"barnabas.query": "SELECT temp FROM source"})
        wait_for(broker, "results", "source")
        assert not processes(broker, "jvm")  # no query uses it
        left = processes(broker, "all")
        assert broker.stop() == 0
        assert not psutil.wait_procs(left, timeout=120)[1]
        broker.start()
        admin = KafkaPythonDriver(broker.address)
        admin.produce("source", [Record(b'{"temp": 2}')])
        wait_for(broker, "results", "source")
        left = processes(broker, "all")
        broker.kill()
        assert not psutil.wait_procs(left, timeout=120)[1]
        broker.start()
        admin = KafkaPythonDriver(broker.address)
        admin.produce("source", [Record(b'{"temp": 3}')])
        wait_for(broker, "results", "source")
        assert [json.loads(v or b"")["temp"] for _, _, v in records(broker, "results")] == [1, 2, 3]
        with Cluster(broker.address) as cluster:
            plan = topic_configs(cluster, ["results"])["results"]["barnabas.query.plan"]
        assert msgspec.json.decode(plan)["source"] == "source"
    finally:
        broker.stop()


def test_without_java_simple_queries_run_and_the_others_say_what_is_missing(tmp_path: Path) -> None:
    class WithoutJava(Barnabas):
        def environment(self) -> dict[str, str]:
            kept = {key: value for key, value in super().environment().items() if key != "JAVA_HOME"}
            return {**kept, "PATH": str(tmp_path)}

    broker = WithoutJava(tmp_path, SETTINGS)
    broker.start()
    admin = ConfluentDriver(broker.address)
    try:
        admin.create_topic("source", 1, SENSORS)
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        rdkafka = AdminClient({"bootstrap.servers": broker.address})
        asked = rdkafka.create_topics(
            [
                NewTopic("doubled", 1, 1, config={"barnabas.query": "SELECT temp * 2 AS temp FROM source"}),
                NewTopic("warm", 1, 1, config={"barnabas.query": "SELECT temp FROM source WHERE temp > 1"}),
            ],
            request_timeout=60,
        )
        with pytest.raises(KafkaException, match=r"INVALID_REQUEST.*Java 17"):
            asked["doubled"].result(60)
        asked["warm"].result(60)
        admin.produce("source", [Record(b'{"temp": 1}'), Record(b'{"temp": 2}')])
        assert [r.value for r in admin.consume("warm", 1)] == [b'{"temp":2.0}']
        # A backlog is processed, too, and the broker goes on.
        admin.produce("source", [Record(b'{"temp": 3, "x": "%d"}' % number) for number in range(20_000)])
        assert len(admin.consume("warm", 20_001)) == 20_001
        assert "streams.driver.ended" not in broker.log_file.read_text()
    finally:
        assert broker.stop() == 0


@pytest.mark.slow
def test_a_driver_run_by_hand_waits_for_its_broker_and_gives_way_to_a_new_one(tmp_path: Path) -> None:
    broker = Barnabas(tmp_path / "broker", {"barnabas.streams.driver": "none"})
    broker.start()
    small = ["--master", "local[2]", "--driver-memory", "512m"]
    command = [sys.executable, "-m", "barnabas", "streams", "--server", broker.address, *small, "--data-dir"]
    other = Barnabas(tmp_path / "other")
    other.start()
    assert other.stop() == 0
    wrong = subprocess.run([*command, str(other.data_dir)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert wrong.returncode == 1
    assert "set --data-dir to the broker's log.dir" in wrong.stderr
    drivers = [subprocess.Popen([*command, str(broker.data_dir)], cwd=ROOT, stderr=subprocess.DEVNULL)]
    try:
        admin = KafkaPythonDriver(broker.address)
        admin.create_topic("source", 1, SENSORS)
        admin.create_topic("results", -1, {"barnabas.query": "SELECT temp FROM source"})
        broker.kill()
        broker.start()
        admin = KafkaPythonDriver(broker.address)
        admin.produce("source", [Record(b'{"temp": 1}')])
        wait_for(broker, "results", "source")
        drivers.append(subprocess.Popen([*command, str(broker.data_dir)], cwd=ROOT, stderr=subprocess.DEVNULL))
        assert drivers[0].wait(120) == TAKEN_OVER
        admin.produce("source", [Record(b'{"temp": 2}')])
        wait_for(broker, "results", "source")
        assert [json.loads(v or b"")["temp"] for _, _, v in records(broker, "results")] == [1, 2]
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()
        assert broker.stop() == 0
