"""Draw which records fall into which window, from streams that run: `python docs/windows/draw.py [NAME ...]`.

For each picture a broker is started, the records are produced in their order, and the results are read back. A record
has a bit of its own, and a result the bits of its records (`bit_or`): so a picture shows what the stream did, not what
it should have done. Needs the spark extra and Java 17.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
COMMAND = [sys.executable, "-m", "barnabas"]
EPOCH = 1_704_067_200  # the pictures begin on 2024-01-01
PATIENCE_SECONDS = 90
COLOURS = {"a": "#0b6e99", "b": "#c1571a"}
WIDTH, LEFT, LANE, BAR = 860, 70, 30, 22


class Row(NamedTuple):
    """A record: its event time in seconds, its device, and a value that some windows look at."""

    at: float
    device: str = "a"
    value: str = ""


class Picture(NamedTuple):
    """Records in batches; each next one is produced when the stream has given so many results."""

    title: str
    stream: str  # what follows SELECT ... FROM readings
    options: str
    batches: list[tuple[int, list[Row]]]
    results: int  # in the end


def _valued(text: str) -> list[Row]:
    """Records as `time value, ...`."""
    return [Row(float(at), value=value) for at, value in (each.split() for each in text.split(", "))]


PICTURES = {
    "interval": Picture(
        "PARTITION BY device INTERVAL(10s), WATERMARK 5s",
        "PARTITION BY device INTERVAL(10s)",
        "WATERMARK 5s MAX_DELAY 3s",
        [
            (0, [Row(1), Row(4, "b"), Row(8), Row(12), Row(9, "b"), Row(16)]),
            (2, [Row(6), Row(13, "b"), Row(21), Row(18), Row(27, "b")]),
        ],
        6,
    ),
    "sliding": Picture(
        "INTERVAL(10s) SLIDING(5s)",
        "INTERVAL(10s) SLIDING(5s)",
        "MAX_DELAY 3s",
        [(0, [Row(1), Row(4), Row(8), Row(12), Row(16), Row(21)])],
        6,
    ),
    "session": Picture(
        "PARTITION BY device SESSION(5s)",
        "PARTITION BY device SESSION(5s)",
        "MAX_DELAY 3s",
        [(0, [Row(1), Row(2, "b"), Row(4), Row(8), Row(11, "b"), Row(15), Row(18), Row(14, "b"), Row(28)])],
        5,
    ),
    "state": Picture(
        "STATE_WINDOW(value), WATERMARK 3s",
        "STATE_WINDOW(value)",
        "WATERMARK 3s",
        [(0, [*_valued("1 on, 4 on, 7 off, 6 on, 10 off, 13 off, 15 on, 18 on, 16 off, 22 off, 26 on"), Row(31)])],
        4,
    ),
    "event": Picture(
        "EVENT_WINDOW(START WITH value = 'open' END WITH value = 'shut')",
        "EVENT_WINDOW(START WITH value = 'open' END WITH value = 'shut')",
        "WATERMARK 3s",
        [(0, [*_valued("1 -, 4 open, 7 -, 10 shut, 12 -, 15 open, 17 open, 20 shut, 23 -, 26 open"), Row(31)])],
        2,
    ),
    "count": Picture(
        "COUNT_WINDOW(4, 2)",
        "COUNT_WINDOW(4, 2)",
        "WATERMARK 3s",
        [(0, [Row(1), Row(3), Row(5), Row(4), Row(10), Row(12), Row(16), Row(18), Row(23), Row(31)])],
        3,
    ),
}


class Result(NamedTuple):
    """A window as the stream gave it."""

    device: str
    start: float
    end: float
    rows: list[int]


# -- the run ---------------------------------------------------------------------------------------------------------


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A broker; gives its address."""
    words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(folder),
        "--override",
        "barnabas.streams.driver.memory=512m",
    ]
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield line.split(" on ")[1].split(",")[0].split()[0]
    finally:
        process.terminate()
        process.wait()


def run(address: str, *words: str, stdin: str = "") -> str:
    """A sub-command of `barnabas`."""
    at = [words[0], "-b", address, *words[1:]]
    return subprocess.run([*COMMAND, *at], input=stdin, capture_output=True, text=True, check=True).stdout


def results_of(address: str) -> list[Result]:
    """What the stream has given so far."""
    found = []
    for line in run(address, "consume", "windows", "--from-beginning", "--exit").splitlines():
        value = json.loads(line)
        start, end = (datetime.fromisoformat(value[name]).timestamp() - EPOCH for name in ("_wstart", "_wend"))
        rows = [number for number in range(60) if value["bits"] >> number & 1]
        found.append(Result(value.get("device", ""), start, end, rows))
    return sorted(found, key=lambda result: (result.start, result.device))


def wait(address: str, count: int) -> list[Result]:
    """Until there are so many results."""
    until = time.monotonic() + PATIENCE_SECONDS
    while len(found := results_of(address)) < count:
        if time.monotonic() > until:
            raise SystemExit(
                f"there are {len(found)} results, not {count}: {found}\n{run(address, 'sql', 'SHOW STREAMS')}"
            )
        time.sleep(0.5)  # brokers tell nobody
    return found


def played(picture: Picture) -> list[Result]:
    """Run the stream over the records."""
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as address:
        run(address, "sql", "CREATE TOPIC readings (at TIMESTAMP, device STRING, value STRING, bit BIGINT)")
        columns = "_wstart, _wend, " + ("device, " if "PARTITION BY" in picture.stream else "")
        select = f"SELECT {columns}bit_or(bit) AS bits FROM readings {picture.stream}"
        run(
            address,
            "sql",
            f"CREATE STREAM windows EVENT_TIME at MAX_AHEAD 1d FILL_HISTORY 1 {picture.options} AS {select}",
        )
        number = 0
        for after, rows in picture.batches:
            wait(address, after)
            lines = []
            for row in rows:
                at = datetime.fromtimestamp(EPOCH + row.at, UTC).isoformat().replace("+00:00", "Z")
                lines.append(json.dumps({"at": at, "device": row.device, "value": row.value, "bit": 1 << number}))
                number += 1
            run(address, "load", "readings", "--time", "at", stdin="\n".join(lines))
        return wait(address, picture.results)


# -- the picture -----------------------------------------------------------------------------------------------------


def drawn(picture: Picture, results: list[Result]) -> str:
    """The picture as SVG."""
    rows = [row for _, batch in picture.batches for row in batch]
    devices = sorted({row.device for row in rows}) if "PARTITION BY" in picture.stream else [""]
    end = max([*(row.at for row in rows), *(result.end for result in results)])
    begin = min(0.0, *(result.start for result in results))
    scale = (WIDTH - LEFT - 20) / (end - begin)

    def x(at: float) -> float:
        return LEFT + (at - begin) * scale

    shapes: list[str] = []
    lane_height = LANE + (16 if any(row.value for row in rows) else 0)
    axis = 30 + lane_height * len(devices)
    in_windows = {number for result in results for number in result.rows}
    for lane, device in enumerate(devices):
        y = 40 + lane_height * lane
        if device:
            shapes.append(_text(8, y + 4, f"device {device}", COLOURS[device]))
        for number, row in enumerate(rows):
            if device in ("", row.device):
                colour = COLOURS[row.device]
                is_in = number in in_windows
                fill = colour if is_in else "none"
                shapes.append(f'<circle cx="{x(row.at):.1f}" cy="{y}" r="10" fill="{fill}" stroke="{colour}"/>')
                shapes.append(_text(x(row.at), y + 4, str(number + 1), "#fff" if is_in else colour, "middle"))
                shapes.append(_text(x(row.at), y + 24, row.value, "#444", "middle"))
    shapes.append(f'<line x1="{LEFT}" y1="{axis}" x2="{WIDTH - 10}" y2="{axis}" stroke="#888"/>')
    for second in range(int(begin), int(end) + 1, 5):
        shapes.append(
            f'<line x1="{x(second):.1f}" y1="{axis - 3}" x2="{x(second):.1f}" y2="{axis + 3}" stroke="#888"/>'
        )
        shapes.append(_text(x(second), axis + 17, f"{second} s", "#666", "middle"))
    for place, result in enumerate(results):
        y = axis + 30 + place * (BAR + 6)
        colour = COLOURS[result.device or "a"]
        left, width = x(result.start), max((result.end - result.start) * scale, 3)
        shapes.append(
            f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="4" stroke="{colour}" '
            f'fill="{colour}" fill-opacity="0.15"/>'
        )
        label = " ".join(str(number + 1) for number in result.rows)
        shapes.append(_text(left + 6, y + 15, label, colour))
    height = axis + 40 + len(results) * (BAR + 6)
    body = "\n".join([_text(8, 18, picture.title, "#222"), *shapes])
    style = "font-family:sans-serif;font-size:12px;background:#fff"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" style="{style}">\n{body}\n</svg>\n'


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'


def main() -> None:
    """Draw the pictures that are named, or all."""
    for name in sys.argv[1:] or PICTURES:
        (HERE / f"{name}.svg").write_text(drawn(PICTURES[name], played(PICTURES[name])))
        print(f"{name}.svg")


if __name__ == "__main__":
    main()
