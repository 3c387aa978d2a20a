"""The `barnabas` command. Each sub-command imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

DEFAULT_SERVER = "localhost:9092"


def _serve(args: argparse.Namespace) -> int:
    from broker.main import serve

    return serve(args.config, args.data_dir, args.listen, args.override, log_level=args.log_level)


def _version(args: argparse.Namespace) -> int:
    from importlib.metadata import version

    print(f"barnabas {version('barnabas')} (Kafka protocol 4.2)")
    return 0


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="barnabas",
        description="A Kafka-protocol-compatible broker: existing Kafka clients use it unchanged.",
        epilog="Start a broker with 'barnabas serve'; it listens on 127.0.0.1:9092 and keeps its data in ./data.",
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    serve = commands.add_parser(
        "serve", help="run a broker", description="Run a broker until SIGTERM or SIGINT.",
        epilog="Example: barnabas serve --listen 127.0.0.1:9093 --data-dir /var/lib/barnabas "
        "--override num.partitions=4",
    )  # fmt: skip
    serve.add_argument("--config", metavar="FILE", help="a server.properties file, with Kafka's keys")
    serve.add_argument("--data-dir", metavar="DIR", help="where the logs are kept (default: log.dir, else ./data)")
    serve.add_argument("--listen", metavar="HOST:PORT", action="append", default=[],
                       help="address to listen on, port 0 for any free one; may be repeated")  # fmt: skip
    serve.add_argument("--override", metavar="KEY=VALUE", action="append", default=[],
                       help="set a configuration key, over the file; may be repeated")  # fmt: skip
    serve.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info",
                       help="lowest level of log lines on standard error (default: info)")  # fmt: skip
    serve.set_defaults(run=_serve)

    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command; gives the exit status."""
    args = parser().parse_args(argv)
    try:
        status: int = args.run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        return 141
    return status


if __name__ == "__main__":
    sys.exit(main())
