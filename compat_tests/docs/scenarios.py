"""What the test of a page needs besides a broker, and which blocks are not run.

A page without an entry has a broker with default settings at `localhost:9092`, unless it starts one itself. An entry's
commands follow the same rules as the page's own ones: for example, the reader waits until a server is ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    """The rest of a program of which a page shows a part, the command that runs it, and its output."""

    file: str  # in programs/; BLOCK stands for the part
    command: str
    shows: str


@dataclass(frozen=True)
class Scenario:
    """How a page, or some of its sections (headings of the second level), is read; () means all other sections."""

    sections: tuple[str, ...] = ()
    long: bool = False  # runs in the CI lane
    broker: bool = True  # runs, unless the page starts one
    shares_streams: bool = False  # the broker and its Spark are shared with other pages, as for pages with streams
    servers: tuple[str, ...] = ()  # names in `servers.SERVERS`
    files: Mapping[str, str] = field(default_factory=dict)
    #: The commands to type before a place: "" is the beginning of the page, else a heading, or the beginning of a
    #: command or program. The word `stop` alone stops the servers, and a text that begins with `python:` is for the
    #: page's Python.
    before: Mapping[str, str] = field(default_factory=dict)
    #: The command that must succeed before a command without output may be interrupted.
    sees: Mapping[str, str] = field(default_factory=dict)
    #: The command of an output that a page shows between its sentences, by the output's beginning; the last such
    #: command.
    shows: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    programs: Mapping[str, Program] = field(default_factory=dict)


#: The blocks that are not run, by their beginning, with the reason. Their syntax is still checked.
NOT_RUN = {
    "make test ": "these run the tests, or take as long",
    '.venv/bin/pytest -m ""': "it runs the tests",
    ".venv/bin/python -m compat_tests.cpu_by_file": "it runs the tests",
    "for core in 0 1; do taskset": "it runs the tests, and takes half of each core",
    "make setup-test": "it sets up what runs this",
    ".venv/bin/pytest storage": "it runs the tests",
    "PATH=$PWD/.venv/bin": "it looks for the newest releases of all libraries",
    "pip install -q": "the tests' environment has these",
    "pipx install": "compat_tests/packaging installs a wheel",
    "apt install pypy3": "`make test-pypy` does it where there is PyPy",
    "pip install '/path/to/barnabas[spark]'": "compat_tests/packaging installs a wheel",
    "useradd --system": "it needs systemd; compat_tests/packaging checks the unit",
    "docker build": "it needs Docker's engine; compat_tests/packaging runs what the image would",
    "install -d -o barnabas": "it needs a user and a group of the system",
}

_LOCKED = """\
stop
echo admin-secret | barnabas users add admin --data-dir locked-data
cat > locked.properties <<'END'
listeners=SASL_SSL://127.0.0.1:9093
advertised.listeners=SASL_SSL://localhost:9093
sasl.enabled.mechanisms=SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location=broker.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
END
barnabas serve --config locked.properties --data-dir locked-data
cat > admin.properties <<'END'
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=ca.pem
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="admin-secret";
END
export BARNABAS_COMMAND_CONFIG=$PWD/admin.properties
"""  # noqa: E501
_RENEWED = """\
openssl pkcs12 -export -in broker.crt -inkey broker.key -passout pass:secret -out /etc/barnabas/new.p12
cat > tls.properties <<'END'
listeners=SSL://127.0.0.1:9093
advertised.listeners=SSL://localhost:9093
ssl.keystore.type=PEM
ssl.keystore.location=broker.pem
listener.name.ssl.ssl.keystore.type=PKCS12
listener.name.ssl.ssl.keystore.location=/etc/barnabas/new.p12
listener.name.ssl.ssl.keystore.password=secret
END
printf 'security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n' > client.properties
barnabas serve --config tls.properties --data-dir tls-data
"""
_LOG = "../started-*.err"
_CLEANED = f"""\
stop
barnabas serve --override log.cleaner.backoff.ms=100 --override log.cleaner.min.cleanable.ratio=0.01
barnabas topics create keyed --config cleanup.policy=compact --config segment.bytes=2000
seq 400 | sed 's/.*/k:&/' | split -l 40 --filter 'barnabas produce keyed --key-separator :'
until grep -h 'info log.cleaned topic=keyed' {_LOG}; do sleep 0.2; done | head -n 1
"""
_DENIED = f"""\
barnabas topics create orders
barnabas acls add --allow-principal User:alice --operation Describe --topic orders
sed 's/admin-secret/secret/; s/admin/alice/' admin.properties > alice.properties
! echo x | BARNABAS_COMMAND_CONFIG=$PWD/alice.properties barnabas produce orders
grep -ho 'info authorizer.denied .*WRITE.*' {_LOG}
"""
_OLD_GROUP = """\
barnabas topics create orders --partitions 3
for p in 0 1 2; do seq 300 | barnabas produce orders --partition $p; done
echo billing,orders,1,250 | barnabas offsets import --to kafka://localhost:9092 --format csv -
printf '/consumers/billing/offsets/orders/%s\n' 0:100 1:200 2:301 > positions
barnabas offsets import --to zookeeper://zk:2181/kafka --format zk-tool positions
"""
_COPIED = """\
barnabas offsets copy --from zookeeper://zk:2181/kafka --to kafka://localhost:9092 --group billing --dry-run || true
"""
_MIGRATED = """\
stop
barnabas serve --override zookeeper.connect=zk1:2181/kafka
barnabas offsets migrate --bootstrap localhost:9092 --zookeeper zk1:2181/kafka --any-range 2>&1
"""
_PRODUCES = """\
python -c "
import os, time
from confluent_kafka import Producer
producer = Producer({'bootstrap.servers': os.environ['BARNABAS_BOOTSTRAP_SERVERS']})
while True:
    producer.produce('orders', b'one')
    producer.flush()
    time.sleep(0.2)
" &
"""
_MARIADB = "mariadb -h 127.0.0.1 -P $PORT_3306 -u root"
_ADDRESS = r"(?m)^127\.0\.0\.1:\d+$"
_TOPICS_GONE = "stop\nbarnabas topics ls --names | xargs -r barnabas topics rm\n"

SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "docs/examples/edge/README.md": (Scenario(long=True),),
    "docs/binlog.md": (
        Scenario(
            long=True,
            shares_streams=True,
            servers=("mariadb", "second mariadb"),
            before={
                "kafka-console-consumer": f"{_MARIADB} -e \"INSERT INTO shop.orders VALUES (1, 'a', 12.50)\"",
                "A query over a table's topic": _TOPICS_GONE
                + f"{_MARIADB} -e \"INSERT INTO shop.orders VALUES (2, 'b', 2500.50)\"",
                "barnabas consume large": f"{_MARIADB} -e \"INSERT INTO shop.orders VALUES (3, 'c', 9999.99)\"",
                "Into another server": _TOPICS_GONE,
            },
            after="until mariadb -h 127.0.0.1 -P $PORT_3307 -u root -e 'SELECT sum(id) FROM shop.orders' | grep 6; "
            "do sleep 0.2; done",
        ),
    ),
    "docs/command-line.md": (
        Scenario(
            files={"lines.txt": "".join(f"line {number}\n" for number in range(30))},
            before={
                "": "barnabas topics create orders --partitions 2",
                "barnabas groups reset": "barnabas consume orders --group billing --from-beginning --exit",
            },
        ),
    ),
    "docs/compaction.md": (
        Scenario(
            shows={"2026-11-22T": _CLEANED},
            before={
                "By hand": "stop\nbarnabas serve --data-dir /var/lib/barnabas\n"
                "barnabas topics create prices --partitions 4 --config cleanup.policy=compact\n"
                "printf 'a:1\\nb:1\\nc:1\\na:2\\n' | barnabas produce prices --key-separator :\nstop"
            },
        ),
    ),
    "docs/export.md": (
        Scenario(
            broker=False,
            before={
                "": "barnabas serve --data-dir /var/lib/barnabas\nbarnabas topics create orders --partitions 2\n"
                "seq 1234567 | barnabas produce orders --partition 0\n"
                "seq 9 | barnabas produce orders --partition 1\nstop",
            },
        ),
    ),
    "docs/in-your-tests.md": (
        Scenario(sections=("pytest", "Without pytest"), broker=False),
        Scenario(
            long=True,
            broker=False,
            programs={
                "java": Program("Main.java", "mkdir -p build && java -XX:TieredStopAtLevel=1 Main.java", _ADDRESS),
                "go": Program("orders_test.go", "go mod init orders && go test -v .", _ADDRESS),
                "js": Program("program.js", "node program.js", _ADDRESS),
            },
        ),
    ),
    "docs/kafka-directory.md": (Scenario(long=True, servers=("kafka directory",)),),
    "docs/monitoring.md": (
        Scenario(
            long=True,
            before={
                "Who is let in": "cp docs/deploy/alerts.yml .",
                "barnabas trace": _PRODUCES,
            },
        ),
    ),
    "docs/nodes.md": (
        Scenario(
            long=True,
            before={"From one node to several": "stop"},
            after="barnabas consume orders --from-beginning --exit | wc -l | grep -x 600",
        ),
    ),
    "docs/offsets.md": (
        Scenario(
            long=True,
            servers=("zookeeper",),
            before={"": _OLD_GROUP},
            shows={"GROUP ": _COPIED, "step 1": _MIGRATED},
        ),
    ),
    "docs/query-topics.md": (Scenario(long=True),),
    "docs/rows-in.md": (
        Scenario(
            long=True,
            files={
                "sensors.csv": "device,temp,at\na,21.5,2024-05-01 12:00:00\nb,,2024-05-01 12:00:01\n",
                "app.log.json": '{"level":"info","message":"started"}\n',
                "points": "cpu,host=b use=0.25 1714564800000\n",
            },
            sees={"tail -f": "until barnabas consume events --from-beginning -n 1; do sleep 0.2; done"},
        ),
    ),
    "docs/security.md": (
        Scenario(sections=("From open to locked",)),
        Scenario(
            long=True,
            broker=False,
            shows={"info authorizer.denied": _DENIED},
            before={
                "The broker's settings": "cp broker.pem /etc/barnabas/broker.pem",
                "New certificates without a restart": _RENEWED,
                "SCRAM": _LOCKED,
                "barnabas acls add": "export BARNABAS_BOOTSTRAP_SERVERS=localhost:9093",
                "Quotas": "stop\nunset BARNABAS_COMMAND_CONFIG\nbarnabas serve --data-dir open-data",
            },
        ),
    ),
    "docs/spark.md": (
        Scenario(
            broker=False,
            files={
                "order.avsc": '{"type": "record", "name": "Order", "fields": '
                '[{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}]}'
            },
            before={
                "": "barnabas serve --data-dir /var/lib/barnabas\nseq 1100 | barnabas produce orders\n"
                'echo \'{"device":"a","temp":20.5,"tags":["x"]}\' | barnabas produce readings',
                "from barnabas.streams.wal import LogDir, plan, read": "python:query.processAllAvailable()\n"
                "query.stop()\nassert readings.count() == 1\nspark.stop()\n",
            },
        ),
    ),
    "docs/sql-shell.md": (
        Scenario(
            long=True,
            files={"statements.sql": "SHOW TOPICS;\nSELECT temp FROM sensors WHERE device = 'a';\n"},
            before={
                "": 'barnabas sql "CREATE TOPIC sensors (device STRING, temp DOUBLE)"\n'
                "barnabas sql \"INSERT INTO sensors VALUES ('a', 95.5), ('b', 20)\""
            },
        ),
    ),
    "docs/streams.md": (
        Scenario(
            files={"readings.json": '{"device":"a","temp":20}\n{"device":"a","temp":21}\n'},
            before={
                "kafka-console-consumer": 'echo "{\\"value\\": {\\"device\\": \\"b\\"}, '
                '\\"timestamp\\": $(($(date +%s) + 60))000}" | barnabas produce sensors --json',
                "Joins": 'barnabas sql "CREATE TOPIC devices (site STRING)"\n'
                "barnabas topics alter devices --config cleanup.policy=compact\n"
                'barnabas sql "CREATE TOPIC orders (id BIGINT)"\n'
                'barnabas sql "CREATE TOPIC payments (order_id BIGINT, amount DOUBLE)"',
            },
        ),
    ),
    "docs/transactions.md": (
        Scenario(
            long=True,
            before={
                "": "barnabas topics create payments",
                "A transaction that hangs": "python:import os\nfrom confluent_kafka import Producer\n"
                "producer = Producer({'bootstrap.servers': os.environ['BARNABAS_BOOTSTRAP_SERVERS'],\n"
                "                     'transactional.id': 'payments-1'})\n"
                "producer.init_transactions()\nproducer.begin_transaction()\nproducer.produce('payments', b'one')\n"
                "assert producer.flush(60) == 0\n",
            },
        ),
    ),
    "docs/windows/interval.md": (
        Scenario(
            before={"": 'barnabas sql "CREATE TOPIC readings (at TIMESTAMP, device STRING, bit BIGINT)"'},
        ),
    ),
}
