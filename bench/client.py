"""Client processes, and the broker's CPU and memory while they measure.

A client prints `measuring` and `measured` at the start and the end of the measured time, and one line of JSON at its
end. The request rows share one client, bench/load.c; end-to-end rows use bench/end_to_end.c. If these are not compiled,
their equivalents in Python run.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from bench.servers import Clock, Meter
from bench.warm import MOST_SECONDS
from compat_tests.tools import ROOT

COMPILED = ROOT / "build" / "load"
COMPILED_END_TO_END = ROOT / "build" / "end_to_end"
COMPILED_RELAY = ROOT / "build" / "relay"
TIMEOUT_SECONDS = 600.0
Found = dict[str, Any]


class ClientFailed(Exception):
    """A client ended with an error; the message is its last line."""


def load_command() -> list[str]:
    """The command of the load client: the compiled one if it exists, else the one in Python."""
    return [str(COMPILED)] if COMPILED.exists() else [sys.executable, "-m", "bench.load"]


def librdkafka() -> Path | None:
    """The shared library that comes with confluent-kafka."""
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parents[1] / "confluent_kafka.libs"
    return next(iter(sorted(folder.glob("librdkafka-*.so*"))), None)


def end_to_end_command() -> list[str]:
    """The command of the end-to-end client: the compiled one if it exists, else the one in Python."""
    library = librdkafka()
    if COMPILED_END_TO_END.exists() and library is not None:
        return [str(COMPILED_END_TO_END), str(library)]
    return [sys.executable, "-m", "bench.end_to_end"]


def relay(seconds: float) -> Found | None:
    """The milliseconds of a message between two processes without a broker; None if the relay is not compiled.

    Raises ClientFailed.
    """
    if not COMPILED_RELAY.exists():
        return None
    done = subprocess.run([str(COMPILED_RELAY), str(seconds)], capture_output=True, text=True)
    if done.returncode:
        raise ClientFailed(f"relay: {done.stderr.strip()}")
    found: Found = json.loads(done.stdout)
    return found


def load(
    address: str,
    meter: Meter,
    prepared: list[bytes],
    errors_at: list[int],
    *,
    settle: float = MOST_SECONDS,
    **options: float,
) -> tuple[Found, Clock]:
    """Run the load client; the first of `prepared` opens a connection. Raises ClientFailed."""
    host, port = address.split(":")  # or several ports, HOST:PORT,PORT
    places = ",".join(map(str, errors_at))
    words = [f"{key.replace('_', '-')}={value}" for key, value in options.items()]
    return run([*load_command(), host, port, f"settle={settle}", f"errors-at={places}", *words], meter, prepared)


def run(command: list[str], meter: Meter, prepared: list[bytes] | None = None) -> tuple[Found, Clock]:
    """Run a client; returns its results, and the broker's clock over the measured time. Raises ClientFailed."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(b"".join(prepared or []))
        given.seek(0)
        with subprocess.Popen(
            command, cwd=ROOT, stdin=given, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as client:
            deadline = threading.Timer(TIMEOUT_SECONDS, client.kill)
            deadline.start()
            try:
                assert client.stdout is not None
                clock = Clock(meter)
                last = ""
                for line in client.stdout:
                    if line == "measuring\n":
                        clock.start()
                    elif line == "measured\n":
                        clock.stop()
                    last = line
                client.wait()
            finally:
                deadline.cancel()
                client.kill()
        if client.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            raise ClientFailed(f"{Path(command[0]).name}: {said[-1] if said else f'status {client.returncode}'}")
        found: Found = json.loads(last)
        return found, clock
