"""`barnabas connect influx`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from functools import partial

import trio

from barnabas.client.errors import ClientError
from barnabas.connect.influx.lines import BadPointError
from barnabas.connect.influx.points import Naming
from barnabas.connect.influx.sink import Sink, Written

TOKEN = "BARNABAS_INFLUX_TOKEN"
_PIECE = 4 << 20


def influx(args: argparse.Namespace) -> int:
    """Serve HTTP until SIGINT or SIGTERM, or write the lines from standard input. Raises ClientError."""
    if args.max_topics < 1:
        raise ClientError("--max-topics is at least 1")
    sink = Sink(args.server, Naming(prefix=args.prefix, topic=args.topic, most=args.max_topics))
    try:
        return _from_stdin(sink, args.precision) if args.stdin else _over_http(sink, args.listen)
    finally:
        sink.close()


def _from_stdin(sink: Sink, precision: str) -> int:
    """Write the lines from standard input. Returns 1 if a line was left out."""
    points, left_out, line, rest = 0, 0, 0, b""
    while True:
        data = os.read(sys.stdin.fileno(), _PIECE)
        rest += data
        end = rest.rfind(b"\n") + 1 if data else len(rest)
        if data and _quotes(rest[:end]) % 2 and len(rest) < _PIECE:
            continue  # a text that contains line breaks
        if end:
            try:
                written = sink.write(rest[:end], precision=precision)
            except BadPointError as error:
                raise ClientError(str(error)) from None
            for number, why in written.bad:
                print(f"barnabas: line {line + number} left out: {why}", file=sys.stderr)
            points, left_out = points + written.points, left_out + len(written.bad)
            line += rest.count(b"\n", 0, end)
            rest = rest[end:]
        if not data:
            break
    print(f"{points} point(s) written" + (f"; {left_out} line(s) left out." if left_out else "."), file=sys.stderr)
    return int(bool(left_out))


def _quotes(data: bytes) -> int:
    return data.count(b'"') - data.count(b'\\"')


def _over_http(sink: Sink, listen: str) -> int:
    host, _, port = listen.rpartition(":")
    if not port.isdecimal():
        raise ClientError(f"--listen {listen}: expected HOST:PORT")
    try:
        trio.run(_serve, sink, host.strip("[]"), int(port))
    except OSError as error:
        raise ClientError(f"--listen {listen}: {error.strerror or error}") from None
    return 0


async def _serve(sink: Sink, host: str, port: int) -> None:
    try:
        from barnabas.connect.influx.http import Gateway
    except ImportError as error:
        raise ClientError(f"this needs the extra influx ({error.name}): pip install 'barnabas[influx]'") from None
    one_at_a_time = trio.Lock()

    async def write(data: bytes, database: str, precision: str) -> Written:
        async with one_at_a_time:
            return await trio.to_thread.run_sync(partial(sink.write, data, database=database, precision=precision))

    gateway = Gateway(write, os.environ.get(TOKEN, ""))
    listeners = await trio.open_tcp_listeners(port, host=host)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end_at_signals, nursery.cancel_scope)
        bound = listeners[0].socket.getsockname()
        print(f"barnabas takes line protocol at http://{bound[0]}:{bound[1]}/write", flush=True)
        await trio.serve_listeners(gateway.serve, listeners)


async def _end_at_signals(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return
