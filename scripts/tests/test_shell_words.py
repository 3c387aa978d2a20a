"""What may come next in a statement, and when a statement is complete."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.scripts.shell import COMMANDS, history_file, is_whole
from barnabas.scripts.shell_words import MOST_SHOWN, coloured, column_names, completions, written_name


class Names:
    def topics(self) -> list[str]:
        return ["my.topic", "sensors", "sessions", *(f"t{n}" for n in range(10_000))]

    def columns(self, topic: str) -> list[str]:
        return ["device", "temp", "my col"] if topic == "sensors" else []


def words(before: str, after: str = "") -> list[str]:
    return [each.text for each in completions(before, before + after, Names(), COMMANDS)]


def test_topics_stand_behind_from() -> None:
    assert words("SELECT * FROM se") == ["sensors", "sessions"]
    assert words("SELECT * FROM s JOIN my") == ["`my.topic`"]
    assert words("DESCRIBE `my") == ["`my.topic`"]
    assert words("\\d sens") == ["sensors"]
    assert len(words("SELECT * FROM ")) == MOST_SHOWN


def test_columns_of_the_topics_come_first() -> None:
    assert words("SELECT de", " FROM sensors")[0] == "device"
    assert words("SELECT * FROM sensors WHERE my")[0] == "`my col`"
    assert "_offset" in words("SELECT _o", " FROM sensors")
    assert "device" not in words("SELECT de", " FROM sessions")


def test_keywords_and_commands() -> None:
    assert "SELECT" in words("sel")
    assert "WHERE" in words("SELECT a FROM sensors wh")
    assert words("\\fo") == ["\\format"]
    assert words("SELECT 'se") == []
    assert words("SELECT a -- se") == []
    assert words("SELECT ") == []


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("device STRING, temp DOUBLE", ["device", "temp"]),
        ("a STRUCT<x: INT, y: ARRAY<INT>>, `b c` DECIMAL(10,2), d INT", ["a", "b c", "d"]),
        ("", []),
    ],
)
def test_columns_of_a_schema(schema: str, names: list[str]) -> None:
    assert column_names(schema) == names


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT ';';", True),
        ("SELECT 1 -- ;", False),
        ("SELECT 1; -- done", True),
        ("\\d", True),
        ("SELECT 1 \\g", True),
        ("SELECT 1\\G", True),
        ("quit", True),
        ("", True),
        ("-- only a comment", True),
    ],
)
def test_a_statement_is_whole_at_its_semicolon(text: str, whole: bool) -> None:
    assert is_whole(text) == whole


@given(st.text(st.sampled_from("SELECT 'a' `b` -- ( \"x\n;1.5e/*")))
def test_colours_change_no_character(text: str) -> None:
    assert "".join(part for _, part in coloured(text)) == text
    completions(text, text, Names(), COMMANDS)


def test_names_are_written_as_statements_have_them() -> None:
    assert [written_name(name) for name in ("a", "a b", "from", "x`y")] == ["a", "`a b`", "`from`", "`x``y`"]


def test_the_history_is_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = history_file()
    path.chmod(0o644)
    assert history_file() == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
