"""The steps of an export, in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from barnabas.streams.captured_output import spark_output_captured
from barnabas.streams.export import spark
from barnabas.streams.export.partition import REMEDY, ExportPlan, Outcome, Work
from barnabas.streams.export.progress import Progress
from barnabas.streams.export.target import claim, exported_topic_id, partition_folder, position
from barnabas.streams.progress import shown
from barnabas.streams.schema import infer_json, parse_ddl
from barnabas.streams.schema.ddl import ddl_text
from barnabas.streams.wal import LogDir, WalError
from barnabas.wire.patterns import PatternError, pattern

FORMATS = ("raw", "json")


class Request(msgspec.Struct, frozen=True):
    """The user's request. Without `since_ms` (ms since 1970), a partition begins with its oldest record."""

    topics: tuple[str, ...]
    data_dir: str
    to: str
    pattern: str = ""
    since_ms: int | None = None
    format: str = "raw"
    schema: str = ""
    master: str = "local[2]"
    rows_per_file: int = 1_000_000


class Totals(msgspec.Struct):
    """What an export wrote, how long it took, and one line for each partition that failed."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    warnings: list[str] = []
    errors: list[str] = []


def export(request: Request, out: TextIO = sys.stderr) -> Totals:
    """Write everything that is durable now and not yet exported. Progress is shown on `out`.

    Raises WalError before anything is written; later failures are in the totals.
    """
    began = time.monotonic()
    log_dir = LogDir(request.data_dir)
    topics = _topics(log_dir, request)
    to = Path(request.to).absolute()
    if to.is_relative_to(log_dir.path):
        raise WalError(f"{to} lies in the data directory: take a folder outside of it")
    plan = ExportPlan(
        log_dir.path,
        str(to),
        request.format,
        _schema(log_dir, topics, request),
        request.rows_per_file,
        request.since_ms,
    )
    plan.rows()
    spark.check()
    marks = {"cluster.id": log_dir.cluster_id, "format": plan.format, "schema": plan.schema}
    with claim(to, marks):
        ranges = log_dir.ranges([key for topic in topics for key in log_dir.partitions(topic)])
        works, outcomes = [], []
        for key, (earliest, end) in ranges.items():
            folder = partition_folder(to, key)
            work = Work(*key, earliest, end, log_dir.topic_id(key))
            try:
                exported = exported_topic_id(folder)
            except WalError as error:
                outcomes.append(Outcome(error=str(error)))
                continue
            if exported not in ("", work.topic_id):
                outcomes.append(Outcome(error=f"{work}: is of a new topic of the same name: {REMEDY}"))
            elif end != (earliest if (done := position(folder)) is None else done):
                works.append(work)
        if works:
            with spark_output_captured(out) as captured, shown(captured.terminal, Progress(to, works).told):
                outcomes += spark.run(request.master, plan, works, captured)
    return Totals(
        rows=sum(one.rows for one in outcomes),
        files=sum(one.files for one in outcomes),
        bytes=sum(one.bytes for one in outcomes),
        seconds=time.monotonic() - began,
        warnings=[one.warning for one in outcomes if one.warning],
        errors=[one.error for one in outcomes if one.error],
    )


def _topics(log_dir: LogDir, request: Request) -> list[str]:
    topics = dict.fromkeys(request.topics)
    if request.pattern:
        try:
            matching = [name for name in log_dir.topics() if pattern(request.pattern).matches(name)]
        except PatternError as error:
            raise WalError(str(error)) from None
        if not matching:
            raise WalError(f"no topic matches {request.pattern}: there are {', '.join(log_dir.topics()) or 'none'}")
        topics |= dict.fromkeys(matching)
    if not topics:
        raise WalError("no topic is named: name one, or give a --pattern")
    for name in topics:
        log_dir.partitions(name)
    return list(topics)


def _schema(log_dir: LogDir, topics: Sequence[str], request: Request) -> str:
    if request.format == "raw":
        if request.schema:
            raise WalError("--schema is for --format json: leave it out")
        return ""
    if not request.schema:
        raise WalError(
            f"--format json needs a schema; for a sample of {topics[0]} this fits: "
            f"--schema '{infer_json(log_dir, topics[0])}'"
        )
    return ddl_text(parse_ddl(request.schema))
