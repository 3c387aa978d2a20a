"""The tasks of a stream for people to read, from its source to its topic, as text or as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.wire.streams.clauses import AT_ONCE, Clauses
from barnabas.wire.streams.durations import written
from barnabas.wire.streams.joins import Join
from barnabas.wire.streams.tokens import joined
from barnabas.wire.streams.windows import CountWindow, EventWindow, Interval, Least, StateWindow
from barnabas.wire.text import visible

SOURCE, AGGREGATE, SINK = "source", "aggregate", "sink"
_LABEL = 11
_WIDEST = 76


class Line(NamedTuple):
    """A part of what a task does."""

    task: str
    label: str
    text: str


def plan_lines(clauses: Clauses, into: str) -> list[Line]:
    """What a stream's tasks do, in order."""
    found = [Line(SOURCE, "source", f"topic {clauses.source}, event time {clauses.time}")]
    if clauses.join is not None:
        found.append(Line(SOURCE, "join", _join_text(clauses.join)))
    conditions = [joined(each) for each in (clauses.pre_filter, clauses.where) if each]
    found += [Line(SOURCE, "filter", condition) for condition in conditions]
    late = written(clauses.watermark_ms) if clauses.watermark_ms else "0s"
    found.append(Line(SOURCE, "watermark", f"{late} behind the latest event time"))
    found.append(Line(AGGREGATE, "window", _window_text(clauses)))
    if clauses.expired_ms:
        again = f"windows that closed at most {written(clauses.expired_ms)} ago, for late records"
        found.append(Line(AGGREGATE, "again", again))
    keys = ", ".join(item.name for item in clauses.partition)
    tasks = f", in {clauses.parallelism} tasks" if clauses.parallelism > 1 else ""
    found.append(Line(AGGREGATE, "aggregate", f"by window{f' and {keys}' if keys else ''}{tasks}"))
    if clauses.fill is not None:
        values = ", ".join(joined(value) for value in clauses.fill.values)
        found.append(Line(AGGREGATE, "fill", f"windows without records: {clauses.fill.kind} {values}".rstrip()))
    if clauses.having:
        found.append(Line(AGGREGATE, "having", joined(clauses.having)))
    when = "at once, whenever it changes" if clauses.trigger == AT_ONCE else "when its window closes"
    quiet = f", or when nothing has come for {written(clauses.max_delay_ms)}" if clauses.max_delay_ms else ""
    found.append(Line(SINK, "sink", f"topic {into}, a result {when}{quiet}; each batch is one transaction"))
    return found


def plan_text(lines: Sequence[Line]) -> str:
    """A line for each part of a task."""
    return "\n".join(f"{line.label:<{_LABEL}}{visible(line.text)}" for line in lines)


def picture(lines: Sequence[Line]) -> str:
    """A box for each task, one below the other, with an arrow between them."""
    boxes = []
    for task in (SOURCE, AGGREGATE, SINK):
        rows = []
        for line in lines:
            if line.task == task:
                name = "" if line.label == task else f"{line.label}: "
                rows += textwrap.wrap(f"{name}{visible(line.text)}", _WIDEST, subsequent_indent="  ")
        boxes.append((task, rows))
    width = max(len(row) for _, rows in boxes for row in rows)
    middle = width // 2 + 1
    drawn = []
    for number, (task, rows) in enumerate(boxes):
        if number:
            drawn.append(f"{' ' * (middle + 1)}▼")
        drawn.append(f"┌─ {task} {'─' * (width - len(task) - 1)}┐")
        drawn += [f"│ {row:<{width}} │" for row in rows]
        below = f"{'─' * middle}┬{'─' * (width + 1 - middle)}" if number < len(boxes) - 1 else "─" * (width + 2)
        drawn.append(f"└{below}┘")
    return "\n".join(drawn)


def _window_text(clauses: Clauses) -> str:
    window = clauses.window
    if isinstance(window, Interval) and clauses.by_clock:
        told = f"periods of {written(window.length_ms)} by the clock"
        told += f", from {written(window.offset_ms)} on" if window.offset_ms else ""
    elif isinstance(window, Interval):
        told = f"windows of {written(window.length_ms)}, one each {written(window.sliding_ms)}"
        told += f", from {written(window.offset_ms)} on" if window.offset_ms else ""
    elif isinstance(window, CountWindow):
        told = f"windows of {window.count} records, one each {window.sliding}, in the order of event time"
    elif isinstance(window, StateWindow):
        told = f"records of the same {joined(clauses.marks[0])}, in the order of event time"
    elif isinstance(window, EventWindow):
        starts, ends = map(joined, clauses.marks)
        told = f"from a record with {starts} to one with {ends}, in the order of event time"
    else:
        told = f"sessions that end after {written(window.gap_ms)} without a record"
    if isinstance(window, StateWindow | EventWindow) and window.least != Least():
        told += f", of at least {_least_text(window.least)}"
    return told


def _join_text(join: Join) -> str:
    """What a stream's records are joined with."""
    keys = " and ".join(f"{one} = {join.name}.{other}" for one, other in join.keys)
    without = ", or with nothing" if join.is_left else ""
    if join.is_table:
        return f"the row of table {join.source} with {keys}{without}"
    return f"records of topic {join.source} with {keys} within {written(join.within_ms)}{without}"


def _least_text(least: Least) -> str:
    """How long a window must be to count."""
    parts = [written(least.duration_ms)] if least.duration_ms else []
    parts += [f"{least.count} records"] if least.count else []
    return (" and " if least.both else " or ").join(parts)
