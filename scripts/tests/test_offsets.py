"""Files with offsets, plans and journals: pure logic."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.errors import ClientError
from barnabas.client.zookeeper.layout import MAX_OFFSET
from barnabas.scripts.offsets import journal as journals
from barnabas.scripts.offsets.files import FORMATS, Offsets, Reading, guess_format, render
from barnabas.scripts.offsets.journal import Journal, Undo
from barnabas.scripts.offsets.plan import Action, plan
from barnabas.scripts.offsets.store import Bounds, Change, Partition, Position

A, B = Partition("a", 0), Partition("a", 1)
NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp"), blacklist_characters="/"), min_size=1)


def read(text: str, form: str, **options: object) -> Reading:
    reading = Reading("file")
    reading.parse(text, form, **options)  # type: ignore[arg-type]
    return reading


@given(
    st.dictionaries(
        NAMES.filter(lambda name: name.strip() == name),
        st.dictionaries(
            st.builds(Partition, NAMES.filter(lambda name: name.strip() == name), st.integers(0, 2**31 - 1)),
            st.integers(0, MAX_OFFSET).map(Position),
            min_size=1,
            max_size=4,
        ),
        max_size=4,
    ),
    st.sampled_from(FORMATS),
)
def test_what_is_exported_comes_back(offsets: Offsets, form: str) -> None:
    text = render(offsets, form)
    reading = read(text, form)
    assert reading.problems == []
    assert reading.offsets == offsets
    if offsets:
        assert guess_format(text) == form or form == "csv"


def test_the_format_of_the_old_tool_byte_for_byte() -> None:
    offsets = {"g:1": {Partition("t", 10): Position(5), Partition("t", 2): Position(0)}, "f": {A: Position(7)}}
    assert render(offsets, "zk-tool") == (
        "/consumers/f/offsets/a/0:7\n/consumers/g:1/offsets/t/2:0\n/consumers/g:1/offsets/t/10:5\n"
    )


def test_lines_as_people_leave_them() -> None:
    text = "/consumers/g/offsets/a/0:1\r\n\r\n/consumers/g/offsets/a/0:1\n/consumers/g/offsets/a/0:2\nx\n"
    text += "/consumers/g/offsets/a/1-0:3\n/consumers/g/offsets/a/1:4"
    reading = read(text, "zk-tool")
    assert reading.offsets == {"g": {A: Position(1), B: Position(4)}}
    assert [str(problem) for problem in reading.problems] == [
        "file, line 2: the line is blank",
        "file, line 4: line 1 has another offset for a-0 of group g",
        "file, line 5: expected /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, not 'x'",
        "file, line 6: '1-0' is not a partition number: Kafka 0.7 named them BROKER-PARTITION",
    ]


def test_a_blank_line_ended_the_file_for_the_old_tool() -> None:
    text = "/consumers/g/offsets/a/0:1\n\n/consumers/g/offsets/a/1:2\n"
    reading = read(text, "zk-tool", compat=True)
    assert (reading.offsets, reading.problems) == ({"g": {A: Position(1)}}, [])


@pytest.mark.parametrize("offset", ["", "-1", "+1", " 1", "1_0", "1.0", "٣", str(MAX_OFFSET + 1), "1" * 40])
def test_what_is_no_offset(offset: str) -> None:
    for form, line in (("zk-tool", f"/consumers/g/offsets/a/0:{offset}\n"), ("csv", f"g,a,0,{offset}\n")):
        reading = read(line, form)
        assert not any(reading.offsets.values())
        assert len(reading.problems) == 1


def test_a_csv_of_one_group_needs_its_name() -> None:
    assert "give one with --group" in str(read("a,0,5\n", "csv").problems[0])
    assert read("a,0,5\n", "csv", group="g").offsets == {"g": {A: Position(5)}}


@pytest.mark.parametrize("text", ["{", "[]", '{"groups": 5}', '{"barnabas-offsets": 9, "groups": {}}'])
def test_what_is_no_export_in_json(text: str) -> None:
    with pytest.raises(ClientError):
        read(text, "json")


def steps(
    here: dict[Partition, Position], there: dict[Partition, Position], **options: bool
) -> dict[Partition, Action]:
    rules = {"exact": False, "any_range": False, **options}
    bounds = {A: Bounds(10, 100), B: Bounds(0, 0)}
    return {step.partition: step.action for step in plan(here, there, bounds, **rules)}


def test_a_plan_moves_forward_unless_it_is_exact() -> None:
    assert steps({A: Position(50)}, {}) == {A: Action.SET}
    assert steps({A: Position(50)}, {A: Position(50)}) == {A: Action.SAME}
    assert steps({A: Position(50)}, {A: Position(40)}) == {A: Action.SET}
    assert steps({A: Position(50)}, {A: Position(60)}) == {A: Action.AHEAD}
    assert steps({A: Position(50)}, {A: Position(60)}, exact=True) == {A: Action.SET}
    assert steps({}, {A: Position(60)}, exact=True) == {}, "what only they have stays"


def test_metadata_is_carried_and_never_taken_away() -> None:
    assert steps({A: Position(50, "note")}, {A: Position(50)}) == {A: Action.SET}
    assert steps({A: Position(50)}, {A: Position(50, "note")}) == {A: Action.SAME}


@pytest.mark.parametrize(("offset", "fits"), [(9, False), (10, True), (100, True), (101, False)])
def test_a_position_outside_the_log_is_refused(offset: int, fits: bool) -> None:
    assert steps({A: Position(offset)}, {}) == {A: Action.SET if fits else Action.REFUSED}
    assert steps({A: Position(offset)}, {}, any_range=True) == {A: Action.SET}


def test_a_partition_that_is_not_there_is_refused_in_any_range() -> None:
    gone = Partition("gone", 0)
    assert steps({gone: Position(0)}, {}, any_range=True) == {gone: Action.REFUSED}
    assert [step.action for step in plan({gone: Position(0)}, {}, None, exact=False, any_range=False)] == [Action.SET]


def test_a_journal_leads_back_to_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = Journal(path, "kafka://h")
    first.note("g", {A: Change(None, Position(5, "m")), B: Change(Position(1), Position(2))})
    first.close()
    with path.open("ab") as file:
        file.write(b'{"group": "g", "topic": "a", "par')  # a kill
    second = Journal(path, "kafka://h")
    second.note("g", {A: Change(Position(5, "m"), Position(9))})
    second.close()
    place, entries = journals.read(path)
    assert place == "kafka://h"
    assert journals.undoing(entries) == {
        "g": {A: Undo(None, [Position(5, "m"), Position(9)]), B: Undo(Position(1), [Position(2)])}
    }


def test_a_journal_is_of_one_place(tmp_path: Path) -> None:
    Journal(tmp_path / "journal", "kafka://h").close()
    with pytest.raises(ClientError, match="is the journal of kafka://h"):
        Journal(tmp_path / "journal", "zookeeper://z")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ClientError, match="is not a journal"):
        journals.read(tmp_path / "text")
