"""Draw the pictures of the concepts: `python docs/concepts/draw.py`.

Each picture is worked out from a few records by the rule that it shows (a condition, a watermark, an fsync that all who
wait share), so what is drawn is what the rule gives. A test holds the committed files to this code. The colours follow
the reader's light or dark; the ground is the picture's own, so it is readable on any page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
WIDTH = 860
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2933 } .soft { fill: #5d6975 } .small { font-size: 11.5px }
.ground { fill: #ffffff } .line { stroke: #7d8894; fill: none } .dash { stroke-dasharray: 4 3 }
.blue { stroke: #0b6e99; fill: #0b6e99 } .orange { stroke: #b84d10; fill: #b84d10 }
.pale { fill-opacity: 0.14 } .hollow { fill: none } .bluetext { fill: #0b6e99 } .orangetext { fill: #b84d10 }
@media (prefers-color-scheme: dark) {
text { fill: #e4e9ee } .soft { fill: #a3adb8 } .ground { fill: #1a1f25 } .line { stroke: #8592a0 }
.blue { stroke: #6cc4e8; fill: #6cc4e8 } .orange { stroke: #f0a36b; fill: #f0a36b }
.pale { fill-opacity: 0.22 } .hollow { fill: none } .bluetext { fill: #6cc4e8 } .orangetext { fill: #f0a36b }
}
</style>"""


class Picture:
    """Shapes, one behind the other."""

    def __init__(self, title: str, height: int) -> None:
        self.title, self.height = title, height
        self.shapes: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        self.shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        self.shapes.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4" class="{kind}"/>'
        )

    def dot(self, x: float, y: float, kind: str, radius: float = 5) -> None:
        self.shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{kind}"/>')

    def arrow(self, x1: float, y: float, x2: float, kind: str) -> None:
        """Along a row, to the right."""
        self.line(x1, y, x2, y, kind)
        head = f"{x2:.1f},{y:.1f} {x2 - 8:.1f},{y - 4:.1f} {x2 - 8:.1f},{y + 4:.1f}"
        self.shapes.append(f'<polygon points="{head}" class="{kind.replace("dash", "").strip()}"/>')

    def svg(self) -> str:
        """The file."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img">'
        ground = f'<rect width="{WIDTH}" height="{self.height}" rx="8" class="ground"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", STYLE, ground, *self.shapes, "</svg>", ""])


# -- a vnode ---------------------------------------------------------------------------------------------------------

CELL = 52.0


def vnodes() -> Picture:
    """One log: its segments, and the places in it that somebody knows."""
    segments, end = (3, 7, 11), 14  # the first offset of each segment: what was before has been deleted
    marks = [
        (6, "committed", "group billing goes on"),
        (3, "log start", "retention has deleted what was before"),
        (10, "last stable", "a transaction begins here that is still open"),
        (12, "high watermark", "on disk up to here: consumers see no more"),
        (14, "log end", "producers append here"),
    ]
    picture = Picture("One vnode: the log of partition 0 of the topic orders", 318)
    picture.text(20, 30, "topic orders, partition 0  =  the folder orders-0  =  one vnode", "bluetext")
    left = 120.0

    def x(offset: float) -> float:
        return left + (offset - segments[0]) * (CELL + 6)

    for number, first in enumerate(segments):
        last = (segments[number + 1] if number + 1 < len(segments) else end) - 1
        picture.box(x(first) - 4, 52, (last - first + 1) * (CELL + 6) + 2, 84, "line")
        picture.text(x(first), 70, f"{first:020}.log", "soft small")
        for offset in range(first, last + 1):
            kind = "blue pale" if offset < 12 else "orange pale"
            picture.box(x(offset), 84, CELL, 38, kind)
            picture.text(x(offset) + CELL / 2, 108, str(offset), "", "middle")
    picture.text(20, 108, "records", "soft")
    for row, (offset, name, meaning) in enumerate(marks):
        y = 166 + row * 30
        at = x(offset) - 3
        picture.line(at, 126, at, y - 4, "line dash")
        is_right = offset > 8
        picture.text(at - 8 if is_right else at + 8, y, f"{name}: {meaning}", "", "end" if is_right else "start")
    return picture


# -- durability ------------------------------------------------------------------------------------------------------

FSYNC_MS = 1.0


class Append(NamedTuple):
    """A record, when it is appended, and when its answer leaves."""

    producer: str
    at: float
    answer: float


def shared_fsyncs(appends: Sequence[tuple[str, float]]) -> tuple[list[Append], list[float]]:
    """An fsync begins as soon as somebody waits and none runs, and serves all who were there at its beginning."""
    waiting, answered, begins = sorted(appends, key=lambda each: each[1]), [], []
    free = 0.0
    while waiting:
        begin = max(free, waiting[0][1])
        begins.append(begin)
        free = begin + FSYNC_MS
        answered += [Append(name, at, free) for name, at in waiting if at <= begin]
        waiting = [each for each in waiting if each[1] > begin]
    return answered, begins


def durability() -> Picture:
    """Producers that wait for their answers, and the fsyncs that they share."""
    answered, begins = shared_fsyncs([("A", 0.1), ("B", 0.3), ("C", 0.6), ("D", 0.9), ("E", 1.5)])
    picture = Picture("Five producers share three fsyncs", 330)
    left, scale, lane = 150.0, 185.0, 34.0

    def x(at: float) -> float:
        return left + at * scale

    picture.text(20, 28, "Each producer sends a record and waits for its answer (acks=all)", "bluetext")
    for number, each in enumerate(answered):
        y = 60 + number * lane
        picture.text(20, y + 4, f"producer {each.producer}", "soft")
        picture.dot(x(each.at), y, "blue")
        picture.arrow(x(each.at), y, x(each.answer), "blue dash")
        picture.text(x(each.answer) + 8, y + 4, "answer", "small")
    y = 60 + len(answered) * lane
    picture.text(20, y + 16, "fsync of the log", "soft")
    for begin in begins:
        names = [each.producer for each in answered if each.answer == begin + FSYNC_MS]
        picture.box(x(begin) + 1, y, FSYNC_MS * scale - 2, 24, "orange pale")
        picture.text(x(begin + FSYNC_MS / 2), y + 16, "serves " + ", ".join(names), "orangetext", "middle")
    lost = 1.7
    picture.line(x(lost), 44, x(lost), y + 34, "line dash")
    kept = [each.producer for each in answered if each.answer <= lost]
    open_ = [each.producer for each in answered if each.at <= lost < each.answer]
    picture.text(x(lost), y + 50, "power is lost here", "", "middle")
    told = f"{', '.join(kept)} was told that its record is kept, and it is."
    picture.text(
        20,
        y + 72,
        f"{told} {', '.join(open_)} were told nothing yet: they send again. No consumer has seen their records.",
        "small",
    )
    return picture


# -- query topics ----------------------------------------------------------------------------------------------------


def query_topics() -> Picture:
    """A source, and the topic of a query over it."""
    temps = (95, 20, 88, 41, 77, 91, 64, 99, 30, 12)
    picture = Picture("A query topic has its source's offsets", 280)
    left, step = 150.0, 66.0
    picture.text(20, 28, "CREATE TOPIC hot AS SELECT device, temp FROM sensors WHERE temp > 80", "bluetext")
    for y, name in ((60, "sensors-0"), (160, "hot-0")):
        picture.text(20, y + 26, name)
        picture.text(20, y + 58, "offset", "soft small")
    for offset, temp in enumerate(temps):
        x = left + offset * step
        is_hot = temp > 80
        picture.box(x, 60, step - 10, 40, "blue pale" if is_hot else "line")
        picture.text(x + (step - 10) / 2, 85, f"{temp}°", "", "middle")
        picture.box(x, 160, step - 10, 40, "orange pale" if is_hot else "line dash")
        if is_hot:
            picture.text(x + (step - 10) / 2, 185, f"{temp}°", "", "middle")
            picture.line(x + (step - 10) / 2, 120, x + (step - 10) / 2, 158, "orange")
        for y in (117, 217):
            picture.text(x + (step - 10) / 2, y, str(offset), "soft small", "middle")
    committed = left + 6 * step - 5
    picture.line(committed, 48, committed, 228, "line dash")
    picture.text(committed, 244, "committed 6: the same place in both", "small", "middle")
    end = left + len(temps) * step - 5
    picture.line(end, 48, end, 228, "line dash")
    picture.text(end, 262, f"end offset {len(temps)} in both: all of the source is processed", "small", "end")
    return picture


# -- streams ---------------------------------------------------------------------------------------------------------

LENGTH, WATERMARK = 10.0, 5.0


class Seen(NamedTuple):
    """A record, the watermark behind it, and whether it was late for its window."""

    at: float
    watermark: float
    is_late: bool


def watermarks(times: Sequence[float]) -> list[Seen]:
    """Records in the order in which they come: the watermark is the newest time less `WATERMARK`."""
    seen: list[Seen] = []
    newest = float("-inf")
    for at in times:
        end = at // LENGTH * LENGTH + LENGTH
        is_late = bool(seen) and seen[-1].watermark >= end
        newest = max(newest, at)
        seen.append(Seen(at, newest - WATERMARK, is_late))
    return seen


def streams() -> Picture:
    """Event time to the right, the order in which records come downwards."""
    seen = watermarks((1, 8, 4, 12, 9, 16, 6, 21, 18, 27))
    picture = Picture("INTERVAL(10s) with WATERMARK 5s", 436)
    left, scale, row, top = 120.0, 23.0, 30.0, 76.0
    windows = range(0, 30, int(LENGTH))
    bottom = top + len(seen) * row - 8

    def x(at: float) -> float:
        return left + at * scale

    picture.text(20, 28, "SELECT _wstart, count(*) FROM sensors INTERVAL(10s), with WATERMARK 5s", "bluetext")
    picture.text(20, 56, "as they come", "soft small")
    for first in windows:
        closing = next((n for n, each in enumerate(seen) if each.watermark >= first + LENGTH), None)
        until = bottom if closing is None else top + closing * row
        picture.box(x(first) + 1, top - 14, LENGTH * scale - 2, until - top + 14, "blue pale")
        picture.text(x(first) + 6, 56, f"window {first} s to {first + LENGTH:g} s", "small")
        count = sum(first <= each.at < first + LENGTH and not each.is_late for each in seen)
        if closing is None:
            picture.text(x(first + LENGTH) - 8, bottom - 6, "still open", "bluetext small", "end")
        else:
            picture.text(x(first) + 8, until + 15, f"closes: result, count {count}", "bluetext small")
    before = None
    for number, each in enumerate(seen):
        y = top + number * row
        picture.text(20, y + 4, f"{number + 1}.", "soft")
        picture.dot(x(each.at), y, "blue hollow" if each.is_late else "blue", 9)
        told = f"{each.at:g} s, late: counted, not used" if each.is_late else f"{each.at:g} s"
        picture.text(x(each.at) + 13, y + 4, told, "small")
        mark = x(max(each.watermark, 0))
        if before is not None:
            picture.line(before, y, mark, y, "orange")
        picture.line(mark, y, mark, min(y + row, bottom), "orange")
        before = mark
    assert before is not None
    picture.text(before + 6, bottom - 2, "watermark", "orangetext small")
    for second in range(0, 31, 5):
        picture.line(x(second), bottom + 6, x(second), bottom + 12, "line")
        picture.text(x(second), bottom + 28, f"{second} s", "soft small", "middle")
    picture.line(x(0), bottom + 9, x(30), bottom + 9, "line")
    picture.text(20, bottom + 28, "event time", "soft small")
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "vnodes": vnodes,
    "durability": durability,
    "query-topics": query_topics,
    "streams": streams,
}


def main() -> None:
    """Draw all pictures."""
    for name, drawn in PICTURES.items():
        (HERE / f"{name}.svg").write_text(drawn().svg())


if __name__ == "__main__":
    main()
