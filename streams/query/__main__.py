"""The driver's process, `python -m barnabas.streams.query`.

`spark-submit` runs this file, `barnabas streams` the same code.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from barnabas.client.command_config import VARIABLE, use
from barnabas.streams.query.session import remove_temporary_files
from barnabas.streams.quick_arrow import import_arrow
from barnabas.wire.logfmt import event_of, level_of, message_of, told
from barnabas.wire.queries.writer import PROPERTIES_FILE
from barnabas.wire.text import SPARK_REMEDY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAKEN_OVER = 4
RETRY_SECONDS = 1.0


def parser() -> argparse.ArgumentParser:
    """The driver's command line."""
    top = argparse.ArgumentParser(prog="barnabas streams", description="Run the queries of query topics.")
    add_arguments(top)
    return top


def add_arguments(to: argparse.ArgumentParser) -> None:
    """Add the driver's options."""
    to.add_argument("--server", metavar="HOST:PORT", default="localhost:9092", help="the broker (default: %(default)s)")
    to.add_argument(
        "--data-dir",
        metavar="DIR",
        help="the broker's data directory, at the same path on every machine "
        "that runs tasks (default: the broker says where)",
    )
    to.add_argument("--master", help="Spark master (default: spark-submit's, else local[*])")
    to.add_argument("--driver-memory", default="1g", help="memory of the driver's JVM (default: %(default)s)")
    to.add_argument(
        "--trigger-ms",
        type=int,
        default=250,
        help="shortest time between two checks of the sources (default: %(default)s)",
    )
    to.add_argument(
        "--tick-timeout-ms",
        type=int,
        default=30_000,
        help="a query that takes longer for one batch of records is stopped (default: %(default)s)",
    )
    to.add_argument(
        "--max-streams",
        type=int,
        default=16,
        help="most queries of streams, each of which may have many streams (default: %(default)s)",
    )
    to.add_argument(
        "--copies",
        metavar="TARGET",
        default="",
        help="copy the checkpoints of streams to this folder, or to a URL such as s3://BUCKET/PREFIX",
    )
    to.add_argument(
        "--copy-interval-ms", type=int, default=180_000, help="time between two copies (default: %(default)s)"
    )
    for name, default, what in (
        ("--sink-writes", 50, "most requests in a second with which a query of streams writes"),
        ("--sink-bytes", 2 << 20, "most bytes in a second that it writes to a partition"),
        ("--source-bytes", 0, "most bytes of the log in a second that it reads"),
    ):
        to.add_argument(name, type=int, default=default, help=f"{what}; 0: no limit (default: %(default)s)")
    to.add_argument("--init", metavar="FILE", help="a Python file with init(spark), which may register functions")
    to.add_argument("--child", action="store_true", help=argparse.SUPPRESS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the driver until it is ended, and return the exit status."""
    return run(parser().parse_args(argv))


def run(args: argparse.Namespace) -> int:
    """Run the driver with parsed arguments. Options that the `barnabas` command lacks have their defaults."""
    args = parser().parse_args([], args)
    say = _say_in_json if args.child else _say_in_words
    if args.child:
        threading.Thread(target=_die_with_parent, daemon=True).start()
    signal.signal(signal.SIGTERM, _end)
    say_logging(say)
    try:
        if not args.init:  # its functions may use all of pandas
            import_arrow(numpy=True)
        from barnabas.streams.query.driver import Driver
        from barnabas.streams.query.errors import FatalError, TakenOverError
        from barnabas.streams.query.lazy_spark import LazySpark
        from barnabas.streams.query.session import is_submitted, local_threads, run_init
        from barnabas.streams.wal import WalError
        from barnabas.streams.windows.limits import Limits
    except ImportError as error:
        say("error", "streams.fatal", reason=f"Query topics need Spark ({error.name or error}): {SPARK_REMEDY}")
        return 1
    from barnabas.client.errors import ClientError
    from barnabas.client.sasl import LoginError

    is_by_data_dir = _be_the_driver(args.data_dir, args.child)
    try:
        spark = LazySpark(partial(_start, args, say))
        if is_submitted():  # a session exists, and its master may be anywhere
            spark.get()
        master = args.master or "local[*]"
        connected = False
        while True:
            try:
                driver = Driver(
                    spark,
                    args.server,
                    args.data_dir,
                    trigger_ms=args.trigger_ms,
                    timeout_ms=args.tick_timeout_ms,
                    most_streams=args.max_streams,
                    copies=args.copies,
                    copy_seconds=args.copy_interval_ms / 1000,
                    limits=Limits(args.sink_writes, args.sink_bytes, args.source_bytes),
                    say=say,
                    init=partial(run_init, path=args.init) if args.init else None,
                    processes=0 if is_submitted() else local_threads(master),
                )
                connected = True
                say("info", "streams.ready", server=args.server, master=master)
                driver.run()
            except ClientError as error:
                if isinstance(error, LoginError) and is_by_data_dir and not (args.child or connected):
                    other = f"{args.data_dir} is perhaps another broker's: set --data-dir to the broker's log.dir"
                    raise FatalError(f"{error}; {other}") from None
                if args.child or not connected:  # a broker restarts its own driver
                    raise FatalError(str(error)) from None
                say("warning", "broker.gone", error=str(error), retry_seconds=RETRY_SECONDS)
                time.sleep(RETRY_SECONDS)
    except (FatalError, WalError) as error:
        say("error", "streams.fatal", reason=str(error))
        return 1
    except TakenOverError:
        say("error", "streams.fatal", reason="another streams driver has taken over")
        return TAKEN_OVER
    except KeyboardInterrupt:
        return 0


def _start(args: argparse.Namespace, say: Callable[..., None]) -> SparkSession:
    """Spark's session, with the operator's functions. Raises FatalError."""
    from barnabas.streams.query.errors import FatalError
    from barnabas.streams.query.session import run_init, start_session

    say("info", "streams.spark.starting", message="starting Spark ...")
    try:
        given = {"driver_memory": args.driver_memory, "has_functions": bool(args.init)}
        spark = start_session("barnabas streams", args.master, **given)
        if args.init:
            run_init(spark, args.init)
    except FatalError as error:
        say("error", "streams.spark.failed", reason=str(error))
        raise
    say("info", "streams.spark.ready", master=spark.sparkContext.master)
    return spark


def _be_the_driver(data_dir: str | None, child: bool) -> bool:
    """Log in by the file in the broker's data directory, unless the operator gave one. Returns whether it did."""
    if data_dir is None or (VARIABLE in os.environ and not child):
        return False
    path = os.path.join(data_dir, PROPERTIES_FILE)
    if not os.path.exists(path):
        return False
    use(path)
    return True


def _say_in_json(level: str, event: str, **fields: Any) -> None:
    _write(sys.stdout, json.dumps({"level": level, "event": event, **fields}))


def _say_in_words(level: str, event: str, **fields: Any) -> None:
    _write(sys.stderr, f"{level} {told(event, fields)}")


def _write(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")  # in one call: any thread may print something
    stream.flush()


def say_logging(say: Callable[..., None]) -> None:
    """From now on, what the project's own code logs with Python's `logging` goes to `say`, and nowhere else."""
    own = logging.getLogger("barnabas")
    own.handlers, own.propagate = [SayLogging(say)], False


class SayLogging(logging.Handler):
    """Passes on what the project's own code logs; messages of libraries stay on standard error."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on a record."""
        self._say(level_of(record), event_of(record), message=message_of(record))


def _die_with_parent() -> None:
    """The broker holds the other end of standard input. When it is gone, this process and its JVM end."""
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def _end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    remove_temporary_files()
    os._exit(status)  # the JVM's threads must not keep an ended driver alive
