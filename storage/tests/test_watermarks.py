"""How far readers may see, without a log."""

from __future__ import annotations

from barnabas.storage.segment import Segment
from barnabas.storage.watermarks import Watermarks


def test_the_last_stable_offset_follows_the_high_watermark_up_to_an_open_transaction() -> None:
    segment = Segment("", 0)
    marks = Watermarks(10, segment, 100)
    assert (marks.high_watermark, marks.last_stable_offset) == (10, 10)
    marks.hold_stable(12)
    seen = []
    for offset in (11, 12, 15):
        marks.advance(offset, segment, 10 * offset)
        seen.append((marks.high_watermark, marks.last_stable_offset, marks.position))
    assert seen == [(11, 11, 110), (12, 12, 120), (15, 12, 150)]
    marks.hold_stable(14)
    assert marks.last_stable_offset == 14
    marks.hold_stable(None)
    assert marks.last_stable_offset == 15
    marks.hold_stable(3)  # it was open before what is seen began
    assert (marks.high_watermark, marks.last_stable_offset) == (15, 3)
