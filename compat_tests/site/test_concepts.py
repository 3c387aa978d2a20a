"""The pictures of the concepts are the output of their code, and show what their rules say."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from compat_tests.site.pages import DOCS, module

DRAW = module("concepts/draw.py")


@pytest.mark.parametrize("name", DRAW.PICTURES)
def test_a_picture_is_what_its_code_draws(name: str) -> None:
    made = DRAW.PICTURES[name]().svg()
    assert (DOCS / "concepts" / f"{name}.svg").read_text() == made, "run: python docs/concepts/draw.py"
    picture = ET.fromstring(made)
    assert picture[0].text, "it has no title"
    assert "prefers-color-scheme: dark" in made
    assert f"({name}.svg)" in (DOCS / "concepts" / f"{name}.md").read_text()


def test_an_fsync_serves_all_who_were_there_when_it_began() -> None:
    answered, begins = DRAW.shared_fsyncs([("a", 0.0), ("b", 0.5), ("c", 1.0), ("d", 5.0)])
    assert begins == [0.0, 1.0, 5.0]
    assert {each.producer: each.answer for each in answered} == {"a": 1.0, "b": 2.0, "c": 2.0, "d": 6.0}


def test_a_record_is_late_when_the_watermark_has_passed_its_window() -> None:
    seen = DRAW.watermarks((1, 14, 9, 15, 9))
    assert [each.is_late for each in seen] == [False, False, False, False, True]
    assert seen[-1].watermark == 10
