"""The `barnabas` command. Each sub-command imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

from barnabas.scripts.command_line import (
    SHELLS,
    Parser,
    asked,
    completions,
    default_server,
    secure,
    shown,
)


def _lazy(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """A sub-command whose module is imported only when it runs."""

    def run(args: argparse.Namespace) -> int:
        status: int = getattr(importlib.import_module(module), function)(args)
        return status

    return run


def _serve(args: argparse.Namespace) -> int:
    import contextlib

    from barnabas.broker.main import serve

    listen = args.listen + ([] if args.port is None else [f"127.0.0.1:{args.port}"])
    with contextlib.ExitStack() as stack:
        data_dir = args.data_dir
        if args.ephemeral:
            from barnabas.client.temporary import TemporaryFolder

            data_dir = str(stack.enter_context(TemporaryFolder("barnabas-ephemeral-")).path / "data")
        return serve(
            *(args.config, data_dir, listen, args.override),
            http=args.http,
            log_level=args.log_level,
            log_format=args.log_format,
            ready_file=args.ready_file,
            processes=args.processes,
        )


def _processes(text: str) -> int:
    """A number of processes. Raises argparse.ArgumentTypeError."""
    if not text.isdigit() or int(text) > 1000:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of processes, or 0 for one for each core")
    return int(text)


class _Version(argparse.Action):
    """`--version`: the version is looked up only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        _version()
        parser.exit()


def _version(args: argparse.Namespace | None = None) -> int:
    from importlib.metadata import version

    from barnabas.wire import KAFKA_VERSION

    print(f"barnabas {version('barnabas')} (Kafka protocol {KAFKA_VERSION})")
    return 0


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    server = asked()
    top = Parser(
        prog="barnabas",
        parents=[asked()],  # its own: only here the option has a default
        description="A Kafka-protocol-compatible broker: existing Kafka clients use it unchanged.",
        epilog="Start a broker with 'barnabas serve'; it listens on 127.0.0.1:9092 and keeps its data in ./data.",
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_serve(commands)
    _add_topics(commands, server)
    _add_produce(commands, server)
    _add_load(commands, server)
    _add_consume(commands, server)
    _add_groups(commands, server)
    _add_acls(commands, server)
    _add_sql(commands, server)
    _add_streams(commands, server)
    _add_users(commands, server)
    _add_log(commands)
    _add_import(commands)
    _add_export(commands)
    _add_offsets(commands, server)
    _add_connect(commands, server)
    _add_trace(commands)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    completion = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a script that completes commands, options, topics and groups in a shell.",
        epilog="Example, in ~/.bashrc: source <(barnabas completion bash)",
    )
    completion.add_argument("shell", choices=sorted(SHELLS))
    completion.set_defaults(run=_completion)
    top.set_defaults(server=default_server())
    return top


def _completion(args: argparse.Namespace) -> int:
    print(SHELLS[args.shell], end="")
    return 0


#: Seconds between two runs of a command with --watch.
AGAIN_SECONDS = 2.0
Commands = argparse._SubParsersAction  # argparse gives this type no public name


def _add_trace(commands: Commands[Parser]) -> None:
    trace = commands.add_parser(
        "trace",
        help="show the requests that a broker serves, live",
        description="Print each request and its answer until interrupted: when, API, client, address, user, topics, "
        "time, bytes, errors. The broker needs its HTTP listener (barnabas serve --http). The user must be allowed to "
        "describe the cluster; the password is typed, or read from BARNABAS_PASSWORD.",
        epilog="Example: barnabas trace --topic orders --api Produce",
    )
    trace.add_argument(
        "--url",
        action="append",
        help="URL of the HTTP listener; repeat it for each further node (default: http://127.0.0.1:9644)",
    )
    trace.add_argument("--user", metavar="NAME", help="the user to log in as, if clients must log in")
    trace.add_argument("--ca", metavar="FILE", help="certificates to trust, in PEM (default: the system's)")
    for option, what in (
        ("--topic", "requests about this topic"),
        ("--client", "requests of this client id"),
        ("--principal", "requests of this user, such as User:alice"),
        ("--api", "this API, such as Produce"),
    ):
        trace.add_argument(option, default="", help=f"only {what}")
    trace.add_argument("-n", "--max-messages", type=int, metavar="N", help="stop after N requests")
    trace.add_argument("--json", action="store_true", help="a JSON object on each line, for programs")
    trace.set_defaults(run=_lazy("barnabas.scripts.trace", "run"))


def _add_serve(commands: Commands[Parser]) -> None:
    serve = commands.add_parser(
        "serve",
        help="run a broker",
        description="Run a broker until SIGTERM, SIGINT or SIGHUP.",
        epilog="Example: barnabas serve --listen 127.0.0.1:9093 --data-dir /var/lib/barnabas "
        "--override num.partitions=4",
    )
    serve.add_argument("--config", metavar="FILE", help="a server.properties file, with Kafka's keys")
    where = serve.add_mutually_exclusive_group()
    where.add_argument("--data-dir", metavar="DIR", help="where the logs are kept (default: log.dir, else ./data)")
    where.add_argument(
        "--ephemeral",
        action="store_true",
        help="for tests: keep the logs in a temporary folder, which is removed when the broker stops",
    )
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        action="append",
        default=[],
        help="address to listen on, port 0 for any free one; may be repeated",
    )
    serve.add_argument("--port", type=int, metavar="N", help="the same as --listen 127.0.0.1:N")
    serve.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="address of an HTTP listener for health, metrics and the console, such as 127.0.0.1:9644",
    )
    serve.add_argument(
        "--ready-file",
        metavar="FILE",
        help="write HOST:PORT of the first listener to this file once clients can connect; removed at the end",
    )
    serve.add_argument(
        "--processes",
        type=_processes,
        default=1,
        metavar="N",
        help="run N nodes, each a process with the next port, and a process that restarts them; 0: one node for each "
        "core",
    )
    serve.add_argument(
        "--override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a configuration key, over the file; may be repeated",
    )
    serve.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="lowest level of log lines on standard error (default: info)",
    )
    serve.add_argument(
        "--log-format",
        choices=("logfmt", "json"),
        default="logfmt",
        help="format of log lines: logfmt (default), or a JSON object on each line",
    )
    serve.set_defaults(run=_serve)


def _add_connect(commands: Commands[Parser], server: Parser) -> None:
    connect = commands.add_parser(
        "connect", parents=[server], help="fill topics from a MariaDB or MySQL server, or with line protocol"
    )
    verbs = connect.add_subparsers(dest="verb", metavar="VERB", required=True)
    binlog = verbs.add_parser(
        "binlog",
        parents=[server],
        help="each change of a row becomes a record",
        description="Follow a server's binary log until SIGINT or SIGTERM. The password is that of MYSQL_PWD.",
        epilog="Example: barnabas connect binlog --source mysql://repl@127.0.0.1:3306 --tables 'shop.*'",
    )
    binlog.add_argument("--source", required=True, metavar="URL", help="mysql://USER@HOST:PORT[?tls=verify&ca=FILE]")
    binlog.add_argument(
        "--name", help="name of the subscription; run again, it continues where it stopped (default: HOST-PORT)"
    )
    binlog.add_argument(
        "--topic-per",
        choices=("table", "database", "server"),
        default="table",
        help="one topic for each table (default), for each database, or for the server, with the bounds of "
        "transactions",
    )
    binlog.add_argument("--prefix", default="", help="prefix of topics; with --topic-per server the name of the topic")
    binlog.add_argument(
        "--format", choices=("tdsql", "debezium", "maxwell"), default="tdsql", help="format of the values"
    )
    binlog.add_argument(
        "--tables",
        metavar="DB.TABLE",
        action="append",
        default=[],
        help="only these tables, with * and ?; may be repeated",
    )
    binlog.add_argument(
        "--start",
        default="now",
        metavar="WHERE",
        help="start of a new subscription: now (default), oldest, a GTID position of MariaDB or a GTID set of MySQL",
    )
    binlog.add_argument(
        "--snapshot",
        choices=("never", "initial"),
        default="never",
        help="initial: a new subscription first copies the existing rows (default: never)",
    )
    binlog.add_argument(
        "--mask",
        metavar="DB.TABLE.COLUMN=WAY",
        action="append",
        default=[],
        help="hide a column (names with * and ?): drop leaves it out, null makes it null, hash replaces its values by "
        "hashes with the key in the environment variable BARNABAS_MASK_KEY; may be repeated",
    )
    binlog.add_argument(
        "--partitions", type=int, default=1, help="partitions of the topics that it creates (default: 1)"
    )
    binlog.add_argument(
        "--order",
        choices=("key", "transaction"),
        default="key",
        help="key (default): a row's changes are in the partition of its key, in their order; transaction: all changes "
        "of a topic are in its first partition, in the order of the server's transactions",
    )
    binlog.add_argument(
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="configuration of the topics that it creates; may be repeated",
    )
    binlog.add_argument(
        "--oversize",
        choices=("stop", "split", "truncate"),
        default="stop",
        help="for a message larger than its topic allows (max.message.bytes): stop (default) ends the subscription, "
        "split writes it in marked parts, truncate cuts its longest texts and marks it",
    )
    binlog.add_argument(
        "--row-metadata",
        choices=("full", "any"),
        default="full",
        help="full (default): rows whose columns the binary log does not describe end the subscription; any: the "
        "table's current columns are used, which may be wrong after an ALTER TABLE",
    )
    binlog.add_argument(
        "--silence",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="longest silence of the server before a new connection (default: 15)",
    )
    binlog.add_argument("--server-id", type=int, help="server id of this replica (default: made from the name)")
    binlog.set_defaults(run=_lazy("barnabas.connect.binlog.command", "binlog"))
    status = verbs.add_parser("status", parents=[server], help="show the progress of the subscriptions")
    status.set_defaults(run=_lazy("barnabas.connect.binlog.command", "status"))
    _add_apply(verbs, server)
    _add_influx(verbs, server)


def _add_apply(verbs: Commands[Parser], server: Parser) -> None:
    apply = verbs.add_parser(
        "apply",
        parents=[server],
        help="apply a subscription's topics to another server",
        description="Apply the changes in topics of `connect binlog` to another server, each once, until SIGINT or "
        "SIGTERM. The password is that of MYSQL_PWD.",
        epilog="Example: barnabas connect apply --topic shop --target mysql://root@127.0.0.1:3307 --ddl",
    )
    apply.add_argument("--topic", required=True, action="append", help="may be repeated")
    apply.add_argument("--target", required=True, metavar="URL", help="mysql://USER@HOST:PORT[?tls=verify&ca=FILE]")
    apply.add_argument(
        "--name",
        default="default",
        help="name under which the target stores the position; run again, it continues there (default: default)",
    )
    apply.add_argument(
        "--tables",
        metavar="DB.TABLE",
        action="append",
        default=[],
        help="only these tables, with * and ?; may be repeated",
    )
    apply.add_argument(
        "--ddl",
        action="store_true",
        help="also run the topics' statements that create, alter and drop tables; anyone who can write to the topics "
        "can then run such statements (default: stop at the first one)",
    )
    apply.add_argument(
        "--wait",
        type=int,
        default=20,
        metavar="SECONDS",
        help="longest wait for another process of the same name to end, such as a killed one (default: 20)",
    )
    apply.add_argument("--until-end", action="store_true", help="stop at the current end of the topics")
    apply.set_defaults(run=_lazy("barnabas.connect.apply.command", "apply"))


def _add_influx(verbs: Commands[Parser], server: Parser) -> None:
    influx = verbs.add_parser(
        "influx",
        parents=[server],
        help="each point in InfluxDB's line protocol becomes a record",
        description="Serve InfluxDB's /write over HTTP until SIGINT or SIGTERM, for Telegraf and InfluxDB's clients. "
        "If BARNABAS_INFLUX_TOKEN is set, they must show it.",
        epilog="Example: barnabas connect influx --listen 127.0.0.1:8086",
    )
    influx.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:8086", help="default: 127.0.0.1:8086")
    influx.add_argument("--stdin", action="store_true", help="read lines from standard input instead of HTTP")
    influx.add_argument(
        "--precision", default="", help="with --stdin: the unit of times, ns (default), us, ms, s, m or h"
    )
    influx.add_argument(
        "--prefix", default="", help="prefix of topics, which are PREFIX.MEASUREMENT (default: the database)"
    )
    influx.add_argument("--topic", default="", help="one topic for all points")
    influx.add_argument(
        "--max-topics",
        type=int,
        default=1000,
        metavar="N",
        help="most topics; points of further measurements are refused (default: 1000)",
    )
    influx.set_defaults(run=_lazy("barnabas.connect.influx.command", "influx"))


def _add_topics(commands: Commands[Parser], server: Parser) -> None:
    topics = commands.add_parser("topics", parents=[server], help="create, list, describe, delete and alter topics")
    verbs = topics.add_subparsers(dest="verb", metavar="VERB", required=True)

    create = verbs.add_parser("create", parents=[server], help="create a topic")
    create.add_argument("topic")
    create.add_argument("--partitions", type=int, default=-1, help="partitions (default: the broker's num.partitions)")
    create.add_argument("--replication-factor", type=int, default=-1, help="replicas (default: the broker's)")
    create.add_argument(
        "--config", metavar="KEY=VALUE", action="append", default=[], help="a topic configuration key; may be repeated"
    )
    create.set_defaults(run=_lazy("barnabas.scripts.topics", "create"))

    listing = verbs.add_parser(
        "list",
        aliases=["ls"],
        parents=[server, shown()],
        help="print the topics",
        description="Print the topics: on a terminal with partitions, records, bytes and retention, else their names.",
    )
    listing.add_argument("--internal", action="store_true", help="also the broker's own topics")
    how = listing.add_mutually_exclusive_group()
    how.add_argument("-l", "--long", action="store_true", help="with partitions, records, bytes and retention")
    how.add_argument("--names", action="store_true", help="only the names, one a line")
    listing.set_defaults(run=_lazy("barnabas.scripts.topics", "list_topics"))

    describe = verbs.add_parser(
        "describe", parents=[server, shown()], help="print partitions, offsets and configuration"
    )
    describe.add_argument("topic", nargs="?", help="one topic (default: all)")
    describe.add_argument("--internal", action="store_true", help="also the broker's own topics")
    describe.set_defaults(run=_lazy("barnabas.scripts.topics", "describe"))

    delete = verbs.add_parser("delete", aliases=["rm"], parents=[server], help="delete topics with all their records")
    delete.add_argument("topic", nargs="+")
    delete.set_defaults(run=_lazy("barnabas.scripts.topics", "delete"))

    alter = verbs.add_parser("alter", parents=[server], help="add partitions, change configuration")
    alter.add_argument("topic")
    alter.add_argument("--partitions", type=int, help="the new, larger number of partitions")
    alter.add_argument("--config", metavar="KEY=VALUE", action="append", default=[], help="set a key; may be repeated")
    alter.add_argument(
        "--delete-config",
        metavar="KEY",
        action="append",
        default=[],
        help="let a key fall back to its default; may be repeated",
    )
    alter.set_defaults(run=_lazy("barnabas.scripts.topics", "alter"))


def _add_produce(commands: Commands[Parser], server: Parser) -> None:
    produce = commands.add_parser(
        "produce",
        parents=[server],
        help="send lines of standard input",
        description="Send each line of standard input as a record; every batch is answered with acks=all. It stops at "
        "the first line that is not a record, after sending all lines before it, and prints the line's number.",
        epilog="Example: printf 'k1:v1\\n' | barnabas produce orders --key-separator :",
    )
    produce.add_argument("topic")
    produce.add_argument("--partition", type=int, help="send all records to this partition")
    produce.add_argument("--key-separator", metavar="TEXT", help="the text between key and value of a line")
    produce.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], help="a header for every record; may be repeated"
    )
    produce.add_argument("--null-value", metavar="TEXT", help="the value that stands for null (a delete marker)")
    produce.add_argument(
        "--json",
        action="store_true",
        help="each line is a JSON object with value and optional key, headers, partition and timestamp, as 'consume "
        "--json' prints them",
    )
    produce.add_argument("--strip-cr", action="store_true", help="drop carriage returns at the ends of lines")
    produce.add_argument("--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none")
    produce.set_defaults(run=_lazy("barnabas.scripts.produce", "run"))


def _add_load(commands: Commands[Parser], server: Parser) -> None:
    load = commands.add_parser(
        "load",
        parents=[server],
        help="load a CSV file, or JSON lines",
        description="Write each row as a record, with the columns of the topic's schema. A missing topic is created; "
        "the first rows of a CSV file decide its columns' types. It stops at the first line that is not a row, after "
        "writing all rows before it.",
        epilog="Example: barnabas load sensors sensors.csv --key device --time at",
    )
    load.add_argument("topic")
    load.add_argument("file", nargs="?", default="-", help="default: standard input")
    load.add_argument("--format", choices=("csv", "json"), help="json: an object a line (default: by the file's name)")
    load.add_argument("--key", metavar="COLUMN", help="column with the record's key")
    load.add_argument("--time", metavar="COLUMN", help="column with the record's timestamp (default: now)")
    load.add_argument(
        "--schema", metavar="DDL", help="columns for a topic without a schema, such as 'device STRING, temp DOUBLE'"
    )
    load.add_argument(
        "--partitions", type=int, default=-1, help="partitions of a topic that it creates (default: the broker's)"
    )
    load.add_argument("--columns", metavar="A,B,...", help="columns of a CSV file without a header; - leaves one out")
    load.add_argument(
        "--separator", metavar="CHAR", help="separator of CSV fields (default: comma, or a tab for .tsv files)"
    )
    load.add_argument("--null", metavar="TEXT", default="", help="the CSV field that is null (default: an empty one)")
    load.add_argument("--skip-bad", action="store_true", help="skip lines that are not rows, and print the first 10")
    load.add_argument(
        "--resume",
        metavar="NAME",
        help="store the position under this name, in one transaction with the rows; run again, it continues there",
    )
    load.add_argument("--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none")
    load.set_defaults(run=_lazy("barnabas.scripts.load", "run"))


def _add_consume(commands: Commands[Parser], server: Parser) -> None:
    consume = commands.add_parser(
        "consume",
        parents=[server],
        help="print a topic's records",
        description="Print the records of a topic, new ones as they come, until interrupted. On a terminal, control "
        "characters in keys, values and headers, which begin escape sequences, are shown as \\x1b and so on, except "
        "newlines and tabs. A pipe or a file gets records unchanged.",
        epilog="Example: barnabas consume orders --from-beginning --exit --format '%p %o %k=%s\\n'",
    )
    consume.add_argument("topic")
    start = consume.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start with the oldest record (default: new ones)")
    start.add_argument(
        "--offset",
        metavar="WHERE",
        help="start at: beginning, end, an offset (which must be within each partition that is read), -N for the last "
        "N records of each partition, @TIME for the first record from then on (@2026-01-31T12:00, @-2h, @MILLISECONDS)",
    )
    consume.add_argument("--partition", type=int, help="only this partition")
    consume.add_argument("--group", metavar="ID", help="read as a member of this group, and commit")
    consume.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: no records of transactions that are open or aborted (default: all)",
    )
    consume.add_argument("-n", "--max-messages", type=int, metavar="N", help="stop after N records")
    consume.add_argument("-e", "--exit", action="store_true", help="stop at the end of the topic")
    consume.add_argument(
        "--json",
        action="store_true",
        help="each record as a line of JSON: topic, partition, offset, timestamp, key, value, headers; bytes that are "
        "not text in base64. 'produce --json' takes such lines",
    )
    consume.add_argument("--raw", action="store_true", help="print records unchanged, also on a terminal")
    consume.add_argument(
        "--format",
        default="%s\\n",
        help="format of a record: %%t topic, %%p partition, %%o offset, %%T timestamp, %%k key, "
        "%%s value, %%h headers, %%%% a percent sign; with \\n, \\t, \\xNN and the like "
        "(default: %%s\\n)",
    )
    consume.set_defaults(run=_lazy("barnabas.scripts.consume", "run"))


def _add_groups(commands: Commands[Parser], server: Parser) -> None:
    groups = commands.add_parser("groups", parents=[server], help="list, describe, reset and delete consumer groups")
    verbs = groups.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser(
        "list", aliases=["ls"], parents=[server, shown()], help="print all groups with their state"
    )
    listing.set_defaults(run=_lazy("barnabas.scripts.groups", "list_groups"))
    describe = verbs.add_parser(
        "describe", parents=[server, shown()], help="print a group's positions, lag and members"
    )
    describe.add_argument("group")
    describe.set_defaults(run=_lazy("barnabas.scripts.groups", "describe"))
    dry = Parser(add_help=False)
    dry.add_argument("--dry-run", action="store_true", help="only print what would be done")
    delete = verbs.add_parser(
        "delete", aliases=["rm"], parents=[server, dry], help="delete groups without members, with their positions"
    )
    delete.add_argument("group", nargs="+")
    delete.set_defaults(run=_lazy("barnabas.scripts.groups", "delete"))
    reset = verbs.add_parser(
        "reset",
        parents=[server, dry],
        help="move the positions of a group without members",
        epilog="Example: barnabas groups reset billing --topic orders --to @-2h --dry-run",
    )
    reset.add_argument("group")
    reset.add_argument(
        "--topic",
        action="append",
        default=[],
        help="only this topic (default: all that the group has read); may be repeated",
    )
    reset.add_argument(
        "--partition", type=int, action="append", default=[], help="only this partition; may be repeated"
    )
    reset.add_argument(
        "--to",
        required=True,
        metavar="WHERE",
        help="beginning, end, an offset, -N for N records before the end, @TIME (@2026-01-31T12:00, @-2h)",
    )
    reset.set_defaults(run=_lazy("barnabas.scripts.groups", "reset"))


def _add_acls(commands: Commands[Parser], server: Parser) -> None:
    acls = commands.add_parser("acls", parents=[server], help="list, add and remove ACLs")
    verbs = acls.add_subparsers(dest="verb", metavar="VERB", required=True)
    resources = Parser(add_help=False)
    for option, what in (
        ("--topic", "a topic"),
        ("--group", "a consumer group"),
        ("--transactional-id", "a transactional id"),
        ("--delegation-token", "a delegation token"),
        ("--user-principal", "a user, for rights to the user's delegation tokens"),
    ):
        resources.add_argument(
            option, metavar="NAME", action="append", default=[], help=f"{what}, * for all; may be repeated"
        )
    resources.add_argument("--cluster", action="store_true", help="the cluster")
    resources.add_argument(
        "--resource-pattern-type",
        type=str.lower,
        choices=("literal", "prefixed", "any", "match"),
        default="literal",
        help="literal (default): exactly this name; prefixed: all names that begin with it. Only for list and remove: "
        "any: ACLs of both types with this name; match: all ACLs that apply to a resource of this name",
    )
    who = Parser(add_help=False)
    for verb in ("allow", "deny"):
        who.add_argument(
            f"--{verb}-principal",
            metavar="TYPE:NAME",
            action="append",
            default=[],
            help=f"principal to {verb}, such as User:alice; may be repeated",
        )
        who.add_argument(
            f"--{verb}-host",
            metavar="ADDRESS",
            action="append",
            default=[],
            help=f"only from this host, for --{verb}-principal (default: *); may be repeated",
        )
    who.add_argument(
        "--operation",
        action="append",
        default=[],
        help="operation, such as Read or DescribeConfigs (default: All); may be repeated",
    )
    who.add_argument(
        "--producer", action="store_true", help="the rights of a producer, to --topic and --transactional-id"
    )
    who.add_argument("--consumer", action="store_true", help="the rights of a consumer, to --topic and --group")
    who.add_argument("--idempotent", action="store_true", help="with --producer: also IdempotentWrite to the cluster")
    who.add_argument("--force", action="store_true", help="do not ask before ACLs are removed")

    listing = verbs.add_parser("list", aliases=["ls"], parents=[server, resources, shown()], help="print ACLs")
    listing.add_argument(
        "--principal",
        metavar="TYPE:NAME",
        action="append",
        default=[],
        help="only ACLs of this principal; may be repeated",
    )
    listing.set_defaults(run=_lazy("barnabas.scripts.acls", "list_acls"))
    add = verbs.add_parser(
        "add",
        parents=[server, resources, who],
        help="add ACLs",
        epilog="Example: barnabas acls add --allow-principal User:alice --consumer --topic orders --group g",
    )
    add.set_defaults(run=_lazy("barnabas.scripts.acls", "add"))
    remove = verbs.add_parser(
        "remove",
        aliases=["rm"],
        parents=[server, resources, who],
        help="remove ACLs",
        description="Remove the ACLs that the options describe; without a principal, all ACLs of the resources.",
    )
    remove.set_defaults(run=_lazy("barnabas.scripts.acls", "remove"))


def _add_sql(commands: Commands[Parser], server: Parser) -> None:
    sql = commands.add_parser(
        "sql",
        parents=[server],
        help="make and show query topics and streams; SELECT from topics",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run SQL statements, of the command line or of standard input (with ; between them):\n\n"
        "  CREATE TOPIC [IF NOT EXISTS] name [(column TYPE, ...)] [PARTITIONS n] [WITH ('key' = 'value', ...)]\n"
        "               [AS SELECT ... FROM topic [WHERE ...]]\n"
        "  ALTER TOPIC name AS SELECT ... | SET ('key' = 'value', ...) | INFER SCHEMA\n"
        "  DROP TOPIC [IF EXISTS] name [CASCADE]\n"
        "  INSERT INTO topic [(column, ...)] VALUES (...), ...\n"
        "  SHOW TOPICS | QUERIES | STREAMS | CONSUMERS | SUBSCRIPTIONS\n"
        "  DESCRIBE TOPIC name\n"
        "  SHOW CREATE TOPIC name\n"
        "  SELECT ...                 any query of Spark SQL over topics, run here and printed\n"
        "  EXPLAIN SELECT ...         whether it needs Spark, and why\n"
        "  CREATE STREAM [IF NOT EXISTS] name [option ...] [INTO topic] [PARTITIONS n] AS SELECT ... FROM topic ...\n"
        "               INTERVAL(...) [SLIDING(...)] | SESSION(...) | STATE_WINDOW(...) | ...\n"
        "  PAUSE | RESUME | STOP | START | RECALCULATE STREAM name\n"
        "  DROP STREAM [IF EXISTS] name\n"
        "  DESCRIBE STREAM name\n"
        "  EXPLAIN STREAM name | EXPLAIN CREATE STREAM ...\n",
        epilog='Example: barnabas sql "CREATE TOPIC hot AS SELECT device, temp FROM sensors WHERE temp > 80"',
    )
    sql.add_argument(
        "statement", nargs="*", help="the statements (default: standard input; on a terminal, a shell begins)"
    )
    sql.add_argument(
        "--watch", action="store_true", help="with SHOW (except TOPICS): repeat every second, until interrupted"
    )
    sql.add_argument(
        "--data-dir",
        metavar="DIR",
        help="with SELECT and INFER SCHEMA: the broker's data directory (default: the broker says where)",
    )
    sql.add_argument(
        "--limit", type=int, default=1000, help="with SELECT: most rows to print, 0 for all (default: 1000)"
    )
    sql.add_argument(
        "--format", choices=("table", "csv", "json", "parquet"), default="table", help="format of rows (default: table)"
    )
    sql.add_argument("--output", metavar="FILE", help="write rows to this file (default: standard output)")
    sql.add_argument("--upright", action="store_true", help="with --format table: a line for each column of each row")
    sql.add_argument(
        "--engine",
        choices=("auto", "plain", "spark"),
        default="auto",
        help="engine for SELECTs: auto uses Spark if the answer could differ without it (default: auto)",
    )
    sql.add_argument(
        "--on-error",
        choices=("stop", "continue"),
        default="stop",
        help="after a statement that failed (default: stop); the exit status is 1 in both cases",
    )
    sql.add_argument(
        "--plot",
        action="store_true",
        help="with SELECT: draw the numbers over the first column; with EXPLAIN: draw the plan",
    )
    sql.add_argument("--master", default="local[*]", help="with SELECT: the Spark master (default: local[*])")
    sql.set_defaults(run=_lazy("barnabas.scripts.sql", "run"))


def _add_streams(commands: Commands[Parser], server: Parser) -> None:
    streams = commands.add_parser(
        "streams",
        parents=[server],
        help="run the queries of query topics",
        description="Run the Spark driver of query topics. A broker starts its own with the first query, unless it has "
        "barnabas.streams.driver=none.",
        epilog="Example: barnabas streams --server localhost:9092 --master 'local[4]'",
    )
    streams.add_argument(
        "--data-dir", metavar="DIR", help="the broker's data directory (default: the broker says where)"
    )
    streams.add_argument("--master", help="the Spark master (default: local[*])")
    streams.add_argument("--driver-memory", default="1g", help="memory of the driver's JVM (default: 1g)")
    streams.add_argument(
        "--trigger-ms", type=int, default=250, help="shortest time between two checks of the sources (default: 250)"
    )
    streams.add_argument("--init", metavar="FILE", help="a Python file with init(spark), which may register functions")
    streams.set_defaults(run=_lazy("barnabas.streams.query.__main__", "run"), child=False)


def _add_users(commands: Commands[Parser], server: Parser) -> None:
    users = commands.add_parser(
        "users",
        parents=[server],
        help="manage users and their passwords for SCRAM",
        description="Manage users with passwords for SCRAM on a running broker, or, with --data-dir, of a stopped or "
        "new one. The password is typed, or read from the first line of standard input or from BARNABAS_PASSWORD.",
        epilog="Example: barnabas users add alice --data-dir /var/lib/barnabas",
    )
    verbs = users.add_subparsers(dest="verb", metavar="VERB", required=True)
    place = Parser(add_help=False)
    place.add_argument("--data-dir", metavar="DIR", help="the data directory of a stopped or new broker")
    mechanism = Parser(add_help=False)
    mechanism.add_argument("user")
    mechanism.add_argument(
        "--mechanism",
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512"),
        action="append",
        help="only this mechanism (default: both); may be repeated",
    )
    add = verbs.add_parser("add", parents=[server, place, mechanism], help="add a user, or change a password")
    add.add_argument(
        "--iterations",
        type=int,
        default=8192,
        metavar="N",
        help="iterations of the hash, from 4096 to 16384 (default: 8192)",
    )
    add.set_defaults(run=_users, does="add")
    remove = verbs.add_parser(
        "remove", aliases=["rm"], parents=[server, place, mechanism], help="remove a user's passwords"
    )
    remove.set_defaults(run=_users, does="remove")
    listing = verbs.add_parser(
        "list", aliases=["ls"], parents=[server, place, shown()], help="print users and mechanisms"
    )
    listing.set_defaults(run=_users, does="list")


def _users(args: argparse.Namespace) -> int:
    from barnabas.client.passwords import new_salt, read_password
    from barnabas.scripts import users

    if args.does == "add" and not 4096 <= args.iterations <= 16384:
        print(f"barnabas: --iterations {args.iterations}: expected a number from 4096 to 16384", file=sys.stderr)
        return 1
    if not args.data_dir:
        return {"add": users.add, "remove": users.remove, "list": users.list_users}[args.does](args)
    from barnabas.broker import stopped_users

    if args.does == "add":
        return stopped_users.add(args, read_password(args.user), new_salt)
    if args.does == "remove":
        return stopped_users.remove(args)
    return stopped_users.list_users(args, partial(users.show_users, as_json=args.json))


def _add_log(commands: Commands[Parser]) -> None:
    log = commands.add_parser("log", help="print and compact log files")
    verbs = log.add_subparsers(dest="verb", metavar="VERB", required=True)
    dump = verbs.add_parser(
        "dump",
        help="print batches and records of segments, checking CRC and offsets",
        description="Print the batches and records of segment files. The status is 1 if one is damaged. The broker "
        "may be running: then the last batch of an active segment may be reported as cut off.",
    )
    dump.add_argument("path", nargs="+", help="a segment (20 digits and .log), or a folder with segments")
    dump.add_argument("--batches-only", action="store_true", help="print batches without their records")
    dump.set_defaults(run=_lazy("barnabas.scripts.log_dump", "run"))
    clean = verbs.add_parser(
        "clean",
        help="compact logs of a stopped broker",
        description="Compact the logs of topics with cleanup.policy=compact now, whatever their dirty ratio, the "
        "active segments too. No broker may serve the directory. A running broker compacts by itself: "
        "log.cleaner.enable and min.cleanable.dirty.ratio say when.",
        epilog="Example: barnabas log clean /var/lib/barnabas orders",
    )
    clean.add_argument("dir", metavar="DIR", help="the data directory (log.dir)")
    clean.add_argument("topic", metavar="TOPIC[-PARTITION]", nargs="?", help="clean only these; default: all")
    clean.add_argument("--config", metavar="FILE", help="the broker's server.properties, for its log.cleaner settings")
    clean.add_argument(
        "--override", metavar="KEY=VALUE", action="append", default=[], help="one setting; may be repeated"
    )
    clean.set_defaults(run=_lazy("barnabas.broker.clean_logs", "run"))


def _add_import(commands: Commands[Parser]) -> None:
    imported = commands.add_parser(
        "import-kafka-logs",
        help="take over the data directory of a stopped Apache Kafka",
        description="Copy the topics of a stopped Apache Kafka 4.x node into a new data directory, with their ids, "
        "settings, offsets, producers and transactions, and the positions of groups. Kafka's directory is not changed. "
        "The node must be its cluster's only broker and controller.",
        epilog="Example: barnabas import-kafka-logs /var/lib/kafka --data-dir /var/lib/barnabas --dry-run",
    )
    imported.add_argument("dir", metavar="DIR", help="Kafka's data directory (log.dirs)")
    imported.add_argument("--data-dir", metavar="TARGET", help="the new directory (default: ./data)")
    imported.add_argument("--dry-run", action="store_true", help="show what would be taken over, and write nothing")
    imported.add_argument(
        "--link",
        action="store_true",
        help="share closed segments with Kafka's directory, by hard links on the same file system, instead of copying",
    )
    imported.set_defaults(run=_lazy("barnabas.broker.moving.import_kafka_logs", "run"))


def _add_export(commands: Commands[Parser]) -> None:
    export = commands.add_parser(
        "export",
        parents=[secure()],
        help="write topics to Parquet files, with Spark",
        description="Write the records of topics to Parquet files, with one Spark task for each partition. Run again, "
        "it continues where it stopped: after a kill, or to append new records. Needs Java 17 or newer.",
        epilog="Example: barnabas export orders --data-dir /var/lib/barnabas --to /data/orders",
    )
    export.add_argument("topic", nargs="*")
    export.add_argument("--data-dir", metavar="DIR", required=True, help="the broker's log.dir, on this machine")
    export.add_argument("--to", metavar="DIR", required=True, help="the folder to write to")
    export.add_argument("--pattern", metavar="REGEX", default="", help="also all topics whose whole name matches")
    export.add_argument(
        "--from",
        metavar="WHEN",
        dest="start",
        default="earliest",
        help="start of partitions that are not exported yet: earliest, a time such as 2024-05-01T12:00:00Z, or ms "
        "since 1970 (default: earliest)",
    )
    export.add_argument(
        "--format",
        choices=("raw", "json"),
        default="raw",
        help="raw: key, value and the other columns of a record; json: columns from the value",
    )
    export.add_argument(
        "--schema",
        metavar="DDL",
        default="",
        help="the columns of --format json, as 'device STRING, temp DOUBLE, _timestamp TIMESTAMP'",
    )
    export.add_argument("--master", metavar="URL", default="local[2]", help="Spark's master (default: local[2])")
    export.add_argument(
        "--rows-per-file",
        metavar="N",
        type=_positive,
        default=1_000_000,
        help="most rows of a file (default: 1000000)",
    )
    export.set_defaults(run=_lazy("barnabas.scripts.export", "run"))


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1 on")
    return int(text)


def _add_offsets(commands: Commands[Parser], server: Parser) -> None:
    offsets = commands.add_parser("offsets", help="move committed offsets between ZooKeeper, Kafka and barnabas")
    actions = offsets.add_subparsers(dest="action", metavar="ACTION", required=True)
    place = "zookeeper://[USER:PASSWORD@]HOST:PORT/CHROOT or kafka://HOST:PORT[?command-config=FILE]"
    source = Parser(add_help=False)
    source.add_argument("--from", dest="source", metavar="PLACE", required=True, help=place)
    target = Parser(add_help=False)
    target.add_argument("--to", dest="target", metavar="PLACE", required=True, help=place)
    groups = Parser(add_help=False)
    groups.add_argument("--group", action="append", default=[], metavar="G", help="only this group; may be repeated")
    reading = Parser(add_help=False)
    reading.add_argument(
        "--format", choices=("zk-tool", "csv", "json"), help="format of the file (default: found from its content)"
    )
    reading.add_argument("--compat", action="store_true", help="a blank line ends the file, as for ImportZkOffsets")
    secured = secure()
    safety = Parser(add_help=False)
    safety.add_argument("--exact", action="store_true", help="also move positions back (default: forward only)")
    safety.add_argument("--live", action="store_true", help="also write groups that have members")
    safety.add_argument(
        "--journal", metavar="FILE", help="file for the old offsets, which undo restores (default: a new file)"
    )
    writing = Parser(add_help=False)
    writing.add_argument("--dry-run", action="store_true", help="print the plan, and write nothing")
    writing.add_argument("--any-range", action="store_true", help="also write positions outside the target's log")

    command = "barnabas.scripts.offsets.command"
    export = actions.add_parser("export", parents=[source, groups, secured], help="write offsets to a file")
    export.add_argument("--format", choices=("zk-tool", "csv", "json"), default="json", help="default: json")
    export.add_argument("file", nargs="?", metavar="FILE", help="default: standard output")
    export.set_defaults(run=_lazy(command, "export"))
    imported = actions.add_parser(
        "import", parents=[target, groups, reading, safety, writing, secured], help="write a file's offsets to a place"
    )
    imported.add_argument("file", metavar="FILE", help="- for standard input")
    imported.set_defaults(run=_lazy(command, "import_"))
    copy = actions.add_parser(
        "copy",
        parents=[source, target, groups, safety, writing, secured],
        help="copy offsets from one place to another",
    )
    copy.add_argument(
        "--translate",
        choices=("time", "content"),
        default="",
        help="if the logs differ: find each group's next record in the target, by its time or by key, timestamp and "
        "CRC",
    )
    copy.set_defaults(run=_lazy(command, "copy_"))
    verify = actions.add_parser(
        "verify", parents=[target, groups, reading, secured], help="compare offsets; the status is 1 if they differ"
    )
    verify.add_argument("--from", dest="source", metavar="PLACE", help=place)
    verify.add_argument("file", nargs="?", metavar="FILE", help="a file in place of --from")
    verify.set_defaults(run=_lazy(command, "verify_"))
    undo = actions.add_parser("undo", parents=[safety, secured], help="restore the old offsets from a journal")
    undo.add_argument(
        "--to", dest="target", metavar="PLACE", help="the journal's place, if its address needs credentials"
    )
    undo.add_argument("file", metavar="JOURNAL")
    undo.set_defaults(run=_lazy(command, "undo_"))
    migration = "barnabas.scripts.offsets.migrate"
    status = actions.add_parser(
        "status", parents=[server], help="show commits that are not in ZooKeeper yet, under dual commit"
    )
    status.set_defaults(run=_lazy(migration, "status"))
    migrate = actions.add_parser(
        "migrate",
        parents=[server, groups],
        help="move running groups from ZooKeeper to the broker or back",
        description="Move groups between ZooKeeper and the broker while they run: check, dual commit on, verify, dual "
        "commit off. Run again, it continues where it stopped.",
        epilog="Example: barnabas offsets migrate --bootstrap-server localhost:9092 --zookeeper zk:2181/kafka "
        "--group billing",
    )
    migrate.add_argument("--zookeeper", metavar="HOST:PORT/CHROOT", required=True, help="or " + place.split(" or ")[0])
    migrate.add_argument("--to", choices=("kafka", "zookeeper"), default="kafka", help="default: kafka")
    migrate.add_argument("--dry-run", action="store_true", help="check only")
    migrate.add_argument("--any-range", action="store_true", help="also move positions outside the log")
    migrate.add_argument(
        "--leave-others", action="store_true", help="continue even if other groups have offsets in the source"
    )
    migrate.add_argument(
        "--journal", metavar="FILE", help="file for the old offsets, which undo restores (default: a new file)"
    )
    migrate.add_argument("--timeout", metavar="SECONDS", type=float, default=600, help="longest wait (default: 600)")
    migrate.set_defaults(run=_lazy(migration, "migrate"))


def _again(args: argparse.Namespace) -> int:
    """Repeat a command on a cleared terminal until interrupted."""
    import time

    while True:
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
        args.run(args)
        sys.stdout.flush()
        time.sleep(AGAIN_SECONDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command, and return the exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["__complete"]:
        print("\n".join(completions(parser(), words[1:])))
        return 0
    args = parser().parse_args(words)
    if args.command == "serve":
        return _serve(args)
    from barnabas.client import silence
    from barnabas.client.command_config import use
    from barnabas.client.errors import ClientError
    from barnabas.wire.text import visible

    silence.tell_with(lambda line: print(f"barnabas: {line}", file=sys.stderr, flush=True))
    if getattr(args, "command_config", None):
        use(args.command_config)
    try:
        status: int = _again(args) if getattr(args, "again", False) else args.run(args)
        sys.stdout.flush()
    except ClientError as error:
        print(f"barnabas: {visible(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


if __name__ == "__main__":
    sys.exit(main())
