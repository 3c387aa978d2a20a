"""`barnabas trace`: show the requests that a broker serves as they come, from its HTTP listener, or from those of its
nodes."""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import queue
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from barnabas.client.errors import ClientError
from barnabas.client.passwords import read_password
from barnabas.wire.text import visible

PATH = "/api/trace"
DEFAULT = "http://127.0.0.1:9644"


def run(args: argparse.Namespace) -> int:
    """Print requests until interrupted or the broker ends."""
    wanted = {name: getattr(args, name) for name in ("topic", "client", "principal", "api") if getattr(args, name)}
    left = args.max_messages
    urls = list(dict.fromkeys(args.url or [DEFAULT]))
    for line in _lines_of_all([partial(_lines, url, wanted, args.user, args.ca) for url in urls]):
        told = json.loads(line)
        print(line if args.json else shown(told), flush=True)
        if left is not None:
            left -= 1
            if left <= 0:
                return 0
    raise ClientError(f"{', '.join(urls)} has ended the trace: is the broker still there?")


def shown(line: dict[str, Any]) -> str:
    """A request on one line."""
    at = datetime.fromtimestamp(line["at"] / 1000).strftime("%H:%M:%S.%f")[:-3]
    who = line["client"] or "-"
    parts = [at, f"{line['api']} v{line['version']}", who, line["address"], line["principal"]]
    parts += [",".join(line.get("topics", []))] if line.get("topics") else []
    parts += [f"{name}={line[name]}" for name in ("group", "transaction") if line.get(name)]
    parts.append(f"{line['ms']:.1f} ms {line['bytes']} B" if line.get("ms") is not None else "no answer")
    parts += line.get("errors", [])
    parts += [f"({line['lost']} before it are left out)"] if line.get("lost") else []
    return visible("  ".join(parts))


def _lines_of_all(sources: list[Callable[[], Iterator[str]]]) -> Iterator[str]:
    """The lines of all, as they come, until one of them ends. Raises ClientError."""
    if len(sources) == 1:
        yield from sources[0]()
        return
    found: queue.SimpleQueue[str | ClientError | None] = queue.SimpleQueue()

    def read(source: Callable[[], Iterator[str]]) -> None:
        try:
            for line in source():
                found.put(line)
            found.put(None)
        except ClientError as error:
            found.put(error)

    for source in sources:
        threading.Thread(target=read, args=[source], daemon=True).start()
    while (line := found.get()) is not None:
        if isinstance(line, ClientError):
            raise line
        yield line


def _lines(url: str, wanted: dict[str, str], user: str | None, ca: str | None) -> Iterator[str]:
    """The JSON lines that the broker sends. Raises ClientError."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClientError(f"--url {url}: expected http://HOST:PORT or https://HOST:PORT")
    headers = {}
    if user:
        password = os.environ.get("BARNABAS_PASSWORD") or read_password(user)
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    if parts.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise ClientError(f"--ca {ca}: {error.strerror or error}") from None
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.hostname, parts.port or 9644, context=context, timeout=30
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port or 9644, timeout=30)
    try:
        connection.request("GET", f"{PATH}?{urlencode(wanted)}", headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ClientError(f"{url}: {_reason(answer)}")
        for line in answer:
            if line.strip():
                yield line.decode().rstrip("\n")
    except (OSError, http.client.HTTPException) as error:
        remedy = "is a broker with an HTTP listener there? (barnabas serve --http 127.0.0.1:9644)"
        raise ClientError(f"{url}: {getattr(error, 'strerror', None) or error}; {remedy}") from None
    finally:
        connection.close()


def _reason(answer: http.client.HTTPResponse) -> str:
    try:
        told = json.loads(answer.read(65536)).get("error", "")
    except ValueError:
        told = ""
    remedy = " (--user NAME)" if answer.status == 401 else ""
    return f"status {answer.status}, {told or answer.reason}{remedy}"
