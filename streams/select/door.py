"""One SELECT in its own process, for programs that must not block on it.

The request is a JSON object on standard input:

    {"server": "127.0.0.1:9092", "query": "SELECT ...", "limit": 100, "data_dir": null, "memory": null}

`memory` bounds the process in bytes (RLIMIT_AS). The answer is JSON on standard output, one object a line:
{"columns": [{"name": ..., "type": ...}]}, then {"rows": [[...], ...]} as they come, and one last line: {"done": true,
"rows": n, "read": records}, {"error": "..."}, or {"needs_spark": "why"}. Texts and bytes that are not UTF-8 have \\xNN;
times are ISO 8601 in UTC. The process ends when its reader closes the pipe.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping

import msgspec

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.streams.query.errors import QueryError
from barnabas.streams.schema.ddl import type_text
from barnabas.streams.select.answer import answer, prepare
from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.plain_values import plain_rows
from barnabas.streams.select.run import TooLateError
from barnabas.streams.wal import WalError

_MOST_ROWS = 100_000


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """A request from the client."""

    server: str
    query: str
    limit: int = 1000
    data_dir: str | None = None
    memory: int | None = None


def main() -> int:
    """Answer one request; the status is 1 if it is invalid."""
    try:
        request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    except msgspec.DecodeError as error:
        _say({"error": f"the request is not a JSON object as it should be: {error}"})
        return 1
    if request.memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (request.memory, request.memory))
    try:
        _answer(request)
    except NeedsSpark as error:
        _say({"needs_spark": str(error)})
    except (ClientError, QueryError, WalError, TooLateError) as error:
        _say({"error": str(error)})
    except MemoryError:
        _say({"error": "the query needs more memory than it may take"})
    return 0


def _answer(request: Request) -> None:
    with Cluster(request.server) as cluster:
        prepared = prepare(cluster, request.query)
        result = answer(cluster, request.server, request.data_dir, prepared, min(request.limit, _MOST_ROWS))
        head = {"columns": [{"name": each.name, "type": type_text(each.type).lower()} for each in result.schema]}
        count = 0
        for batch in result.batches:
            if not count:
                _say(head)
            count += batch.num_rows
            _say({"rows": plain_rows(batch)})
        if not count:
            _say(head)
        _say({"done": True, "rows": count, "read": result.read()})


def _say(what: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


def run() -> int:
    """`main`, for a reader that may close the pipe."""
    try:
        return main()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
