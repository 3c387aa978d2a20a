"""The parser for a stream's text; and what is refused, with its position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.streams.clauses import AT_ONCE, EXPIRED_MS, MAX_PART_ROWS, Clauses, parse_stream
from barnabas.wire.streams.durations import milliseconds, written
from barnabas.wire.streams.tokens import SyntaxProblem, joined, tokens
from barnabas.wire.streams.windows import (
    NULL,
    PREV,
    VALUE,
    CountWindow,
    EventWindow,
    Interval,
    Least,
    Session,
    StateWindow,
)

SENSORS = "SELECT _wstart, device, avg(temp) AS t FROM sensors"


def names(clauses: Clauses) -> list[str]:
    return [item.name for item in clauses.items]


def test_the_example_of_the_docs() -> None:
    found = parse_stream(
        "WATERMARK 5s AS SELECT _wstart, _wend, device, avg(temp) AS t FROM sensors "
        "PARTITION BY device INTERVAL(10s) SLIDING(5s)"
    )
    assert names(found) == ["_wstart", "_wend", "device", "t"]
    assert (found.source, found.window) == ("sensors", Interval(10_000, 5000))
    assert [item.text for item in found.partition] == ["device"]
    assert (found.watermark_ms, found.time, found.fill_history) == (5000, "_timestamp", False)


def test_every_option_and_clause() -> None:
    found = parse_stream(
        """-- a comment with a ' in it
        TRIGGER AT_ONCE WATERMARK(1m) IGNORE EXPIRED 1 IGNORE UPDATE MAX_DELAY 10s FILL_HISTORY 1 EVENT_TIME ts
        MAX_AHEAD 1h MAX_STATE_ROWS 500 PARALLELISM 4
        PRE_FILTER(temp > 0 AND note <> 'AS SELECT') SUBTABLE(concat('d-', device))
        AS SELECT upper(device) d, CASE WHEN max(n) > 1 THEN 'INTERVAL(1s)' END, `a b`
        FROM `my.sensors` WHERE note <> ') HAVING (' AND x IN (1, 2)
        PARTITION BY upper(device), n % 2 AS odd, `a b` INTERVAL(1h, 5m) SLIDING(30m) HAVING count(*) > 1"""
    )
    assert (found.trigger, found.max_state_rows, found.parallelism) == (AT_ONCE, 500, 4)
    assert (found.watermark_ms, found.max_delay_ms, found.max_ahead_ms) == (60_000, 10_000, 3_600_000)
    assert (found.fill_history, found.time, found.source) == (True, "ts", "my.sensors")
    assert found.window == Interval(3_600_000, 1_800_000, 300_000)
    assert names(found) == ["d", "CASE WHEN max(n) > 1 THEN 'INTERVAL(1s)' END", "a b"]
    assert [item.name for item in found.partition] == ["upper(device)", "odd", "a b"]
    assert joined(found.where) == "note <> ') HAVING (' AND x IN (1, 2)"
    assert joined(found.having) == "count(*) > 1"
    assert joined(found.pre_filter) == "temp > 0 AND note <> 'AS SELECT'"
    assert joined(found.key) == "concat('d-', device)"


def test_the_newer_form_of_options() -> None:
    found = parse_stream(
        "STREAM_OPTIONS(WATERMARK(5s) | MAX_DELAY(10s)|FILL_HISTORY|EVENT_TYPE(WINDOW_CLOSE)) "
        f"AS {SENSORS} INTERVAL(1s)"
    )
    assert (found.watermark_ms, found.max_delay_ms, found.fill_history) == (5000, 10_000, True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", 0),
        ("IGNORE EXPIRED 1", 0),
        ("IGNORE EXPIRED", 0),
        ("IGNORE EXPIRED 0", EXPIRED_MS),
        ("IGNORE EXPIRED 0 EXPIRED_TIME 1h", 3_600_000),
        ("EXPIRED_TIME(1h) IGNORE EXPIRED 0", 3_600_000),
        ("STREAM_OPTIONS(EXPIRED_TIME(1h) | IGNORE EXPIRED 0) IGNORE UPDATE 1", 3_600_000),
    ],
)
def test_how_long_windows_are_calculated_again(options: str, expected: int) -> None:
    assert parse_stream(f"{options} AS {SENSORS} INTERVAL(1s)").expired_ms == expected


def test_an_operator_may_have_from_in_it() -> None:
    found = parse_stream("SELECT max(a IS NOT DISTINCT FROM b) m, x IS DISTINCT FROM y AS z FROM s INTERVAL(1s)")
    assert (found.source, names(found)) == ("s", ["m", "z"])


def test_windows_that_records_open_and_close() -> None:
    found = parse_stream(f"{SENSORS} PARTITION BY device STATE_WINDOW(temp > 5) HAVING count(*) > 1")
    assert (found.window, [joined(mark) for mark in found.marks]) == (StateWindow(), ["temp > 5"])
    assert [item.name for item in found.partition] == ["device"]
    assert found.max_state_rows == MAX_PART_ROWS
    found = parse_stream(
        f"MAX_STATE_ROWS 7 AS {SENSORS} EVENT_WINDOW(START WITH CASE WHEN a THEN b END > 1 END WITH (c OR d) AND e)"
    )
    assert found.window == EventWindow()
    assert [joined(mark) for mark in found.marks] == ["CASE WHEN a THEN b END > 1", "(c OR d) AND e"]
    assert found.max_state_rows == 7
    assert parse_stream(f"MAX_DELAY 5s AS {SENSORS} COUNT_WINDOW(10)").max_delay_ms == 5000
    assert parse_stream(f"{SENSORS} COUNT_WINDOW(10)").window == CountWindow(10, 10)
    assert parse_stream(f"{SENSORS} COUNT_WINDOW(10, 2)").window == CountWindow(10, 2)


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("NULL", NULL, []),
        ("prev", PREV, []),
        ("VALUE, 0", VALUE, ["0"]),
        ("VALUE, -1.5, 'a', NULL, true", VALUE, ["-1.5", "'a'", "NULL", "true"]),
    ],
)
def test_what_windows_without_records_have(text: str, kind: str, values: list[str]) -> None:
    found = parse_stream(f"{SENSORS} WHERE fill > 3 INTERVAL(1s) FILL({text}) HAVING t > 1").fill
    assert found is not None
    assert (found.kind, [joined(value) for value in found.values]) == (kind, values)
    assert parse_stream(f"{SENSORS} INTERVAL(1s) FILL(NONE)").fill is None


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("3s", Least(3000)),
        ("'3s'", Least(3000)),
        ("COUNT 5", Least(0, 5)),
        ("3s AND COUNT 5", Least(3000, 5)),
        ("1m or count 5", Least(60_000, 5, both=False)),
    ],
)
def test_how_long_a_window_must_be(text: str, least: Least) -> None:
    assert parse_stream(f"{SENSORS} STATE_WINDOW(x) TRUE_FOR({text}) HAVING t > 1").window == StateWindow(least)
    window = f"EVENT_WINDOW(START WITH a END WITH b) TRUE_FOR({text})"
    assert parse_stream(f"{SENSORS} {window} PARTITION BY device").window == EventWindow(least)


def test_periods_go_by_the_clock() -> None:
    found = parse_stream(f"{SENSORS} WHERE period > 3 PARTITION BY device PERIOD(1h, 5m) FILL(PREV)")
    assert (found.window, found.by_clock) == (Interval(3_600_000, 3_600_000, 300_000), True)
    assert parse_stream(f"{SENSORS} PERIOD(1s)").window == Interval(1000, 1000)
    assert not parse_stream(f"{SENSORS} INTERVAL(1s)").by_clock


def test_a_session_may_name_the_time() -> None:
    assert parse_stream(f"{SENSORS} SESSION(ts, 30s)").time == "ts"
    assert parse_stream(f"{SENSORS} SESSION(30s)").window == Session(30_000)
    assert parse_stream(f"{SENSORS} SESSION(30s)").time == "_timestamp"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1, column 1, at the end: expected"),
        ("SELECT 1", "at the end: expected FROM"),
        (SENSORS, "expected a window"),
        (f"{SENSORS} INTERVAL(10x)", 'column 62, at "10x)": 10x: x is no unit'),
        (f"{SENSORS}\nINTERVAL(1n)", 'line 2, column 10, at "1n)": 1n: months and years'),
        (f"{SENSORS} INTERVAL(5u)", "units below them are not supported"),
        (f"{SENSORS} INTERVAL(10)", "10 is no duration"),
        (f"{SENSORS} INTERVAL(99999999999w)", "at most ten years"),
        (f"{SENSORS} INTERVAL()", "expected a duration"),
        (f"{SENSORS} INTERVAL(1s, 1s, 1s)", "INTERVAL takes 1 or 2 durations"),
        (f"{SENSORS} INTERVAL(1s", "the parenthesis is not closed"),
        (f"{SENSORS} INTERVAL 1s", "expected ("),
        (f"{SENSORS} INTERVAL(10s) INTERVAL(10s)", "INTERVAL is given twice"),
        (f"{SENSORS} INTERVAL(10s) SLIDING(20s)", "at most INTERVAL"),
        (f"{SENSORS} INTERVAL(10s) SLIDING(0s)", "longer than nothing"),
        (f"{SENSORS} INTERVAL(1d) SLIDING(1s)", "at most 100 windows"),
        (f"{SENSORS} INTERVAL(10s, 10s)", "shorter than a window's step"),
        (f"{SENSORS} SLIDING(10s)", "expected a window"),
        (f"{SENSORS} SESSION(1s) INTERVAL(10s)", "one kind of window"),
        (f"{SENSORS} SESSION(0s)", "longer than nothing"),
        (f"{SENSORS} SESSION(1s) SLIDING(1s)", "SLIDING goes with INTERVAL"),
        (f"EVENT_TIME a AS {SENSORS} SESSION(b, 1s)", "the time is a already"),
        (f"TRIGGER AT_ONCE AS {SENSORS} SESSION(1s)", "not supported with SESSION"),
        (f"TRIGGER FORCE_WINDOW_CLOSE AS {SENSORS} INTERVAL(1s)", "use MAX_DELAY"),
        (f"TRIGGER SOON AS {SENSORS} INTERVAL(1s)", "expected WINDOW_CLOSE, AT_ONCE or MAX_DELAY"),
        (f"MAX_DELAY 1s AS {SENSORS} INTERVAL(1s)", "MAX_DELAY is at least 3s"),
        (f"MAX_STATE_ROWS 0 AS {SENSORS} INTERVAL(1s)", "expected a number of rows"),
        (f"MAX_STATE_ROWS 5s AS {SENSORS} INTERVAL(1s)", "expected a number of rows"),
        (f"PARALLELISM 0 AS {SENSORS} INTERVAL(1s)", "expected a number of tasks, 1 to 16"),
        (f"PARALLELISM 17 AS {SENSORS} INTERVAL(1s)", "expected a number of tasks, 1 to 16"),
        (f"PARALLELISM {'9' * 5000} AS {SENSORS} INTERVAL(1s)", "expected a number of tasks, 1 to 16"),
        (f"PARALLELISM(a) AS {SENSORS} INTERVAL(1s)", "expected a number of tasks, 1 to 16"),
        (f"IGNORE UPDATE 0 AS {SENSORS} INTERVAL(1s)", "IGNORE UPDATE 0 is not supported"),
        (f"IGNORE EXPIRED 0 AS {SENSORS} SESSION(1s)", "IGNORE EXPIRED 0 goes with INTERVAL, without FILL and JOIN"),
        (f"IGNORE EXPIRED 0 AS {SENSORS} PERIOD(1s)", "IGNORE EXPIRED 0 goes with INTERVAL, without FILL and JOIN"),
        (f"IGNORE EXPIRED 0 AS {SENSORS} INTERVAL(1s) FILL(PREV)", "goes with INTERVAL, without FILL and JOIN"),
        ("IGNORE EXPIRED 0 AS SELECT count(*) FROM a JOIN b ON a.x = b._key INTERVAL(1s)", "without FILL and JOIN"),
        (f"EXPIRED_TIME 1h AS {SENSORS} INTERVAL(1s)", "EXPIRED_TIME goes with IGNORE EXPIRED 0"),
        (f"IGNORE EXPIRED 0 EXPIRED_TIME 0s AS {SENSORS} INTERVAL(1s)", "EXPIRED_TIME is longer than nothing"),
        (f"EXPIRED_TIME 1h IGNORE EXPIRED 0 AS {SENSORS} PERIOD(1s)", "EXPIRED_TIME is not supported with PERIOD"),
        (f"FILL_HISTORY('2026-01-01') AS {SENSORS} INTERVAL(1s)", "a time is not supported"),
        (f"EVENT_TYPE(WINDOW_OPEN) AS {SENSORS} INTERVAL(1s)", "results come when a window closes"),
        (f"WATERMARK 5s WATERMARK 6s AS {SENSORS} INTERVAL(1s)", "WATERMARK is given twice"),
        (f"SOMETHING 5s AS {SENSORS} INTERVAL(1s)", 'column 1, at "SOMETHING'),
        (f"TAGS(a + 1) AS {SENSORS} INTERVAL(1s)", "expected columns of PARTITION BY"),
        (f"TAGS() AS {SENSORS} INTERVAL(1s)", "expected columns of PARTITION BY"),
        (f"TAGS(a INT AS b) AS {SENSORS} INTERVAL(1s)", "expected columns of PARTITION BY"),
        (f"DELETE_MARK 5s AS {SENSORS} INTERVAL(1s)", "DELETE_MARK is not supported"),
        (f"STREAM_OPTIONS(WATERMARK(5s) MAX_DELAY(9s)) AS {SENSORS} INTERVAL(1s)", "expected |"),
        (f"{SENSORS} STATE_WINDOW()", "STATE_WINDOW takes one column or expression"),
        (f"{SENSORS} STATE_WINDOW(x, 1)", "STATE_WINDOW takes one column or expression"),
        (f"{SENSORS} EVENT_WINDOW(START WITH x > 1)", "expected START WITH condition END WITH condition"),
        (f"{SENSORS} EVENT_WINDOW(START WITH END WITH x)", "expected START WITH condition END WITH condition"),
        (f"{SENSORS} EVENT_WINDOW(START WITH x END WITH)", "expected START WITH condition END WITH condition"),
        (f"{SENSORS} EVENT_WINDOW()", "expected START WITH condition END WITH condition"),
        (f"{SENSORS} COUNT_WINDOW()", "COUNT_WINDOW takes the number of records"),
        (f"{SENSORS} COUNT_WINDOW(0)", "expected a number from 1 to 1,000,000"),
        (f"{SENSORS} COUNT_WINDOW(2147483648)", "expected a number from 1 to 1,000,000"),
        (f"{SENSORS} COUNT_WINDOW(x)", "expected a number from 1 to 1,000,000"),
        (f"{SENSORS} COUNT_WINDOW(5, 6)", "the step is at most the number of records"),
        (f"{SENSORS} COUNT_WINDOW(500, 4)", "a record may be in at most 100 windows"),
        (f"{SENSORS} COUNT_WINDOW(5) STATE_WINDOW(x)", "a stream has one kind of window"),
        (f"{SENSORS} COUNT_WINDOW(5) INTERVAL(5s)", "a stream has one kind of window"),
        (f"{SENSORS} WHERE a > 1 COUNT_WINDOW(10) SLIDING(5s)", "a stream has one kind of window"),
        (f"TRIGGER AT_ONCE AS {SENSORS} STATE_WINDOW(x)", "TRIGGER AT_ONCE is not supported with STATE_WINDOW"),
        (f"{SENSORS} STATE_WINDOW(x) TRUE_FOR()", "expected a duration"),
        (f"{SENSORS} STATE_WINDOW(x) TRUE_FOR(COUNT)", "expected a number from 1 to 1,000,000"),
        (f"{SENSORS} STATE_WINDOW(x) TRUE_FOR(COUNT 0)", "expected a number from 1 to 1,000,000"),
        (f"{SENSORS} STATE_WINDOW(x) TRUE_FOR(COUNT 5 AND 3s)", "both in this order"),
        (f"{SENSORS} STATE_WINDOW(x) TRUE_FOR(3s AND 4s)", "both in this order"),
        (f"{SENSORS} STATE_WINDOW(x) TRUE_FOR(3s, COUNT 4)", "expected a duration"),
        (f"{SENSORS} STATE_WINDOW(x) TRUE_FOR(3s) TRUE_FOR(3s)", "TRUE_FOR goes behind STATE_WINDOW"),
        (f"{SENSORS} COUNT_WINDOW(5) TRUE_FOR(3s)", "TRUE_FOR goes behind STATE_WINDOW or EVENT_WINDOW"),
        (f"{SENSORS} INTERVAL(5s) TRUE_FOR(3s)", "elsewhere write HAVING _wduration > n"),
        (f"{SENSORS} COUNT_WINDOW(5, 5, temp)", "expected a number"),
        (f"{SENSORS} PERIOD()", "expected a duration, such as 10s"),
        (f"{SENSORS} PERIOD(1h, 5m, 1s)", "PERIOD takes 1 or 2 durations"),
        (f"{SENSORS} PERIOD(999a)", "PERIOD is at least 1s"),
        (f"{SENSORS} PERIOD(5s, 5s)", "the offset is shorter than the period"),
        (f"{SENSORS} PERIOD(10s) SLIDING(5s)", "a stream has one kind of window"),
        (f"{SENSORS} PERIOD(10s) COUNT_WINDOW(5)", "a stream has one kind of window"),
        (f"WATERMARK 1s AS {SENSORS} PERIOD(10s)", "WATERMARK is not supported with PERIOD"),
        (f"EVENT_TIME ts AS {SENSORS} PERIOD(10s)", "EVENT_TIME is not supported with PERIOD"),
        (f"MAX_DELAY 5s AS {SENSORS} PERIOD(10s)", "MAX_DELAY is not supported with PERIOD"),
        (f"FILL_HISTORY 1 AS {SENSORS} PERIOD(10s)", "FILL_HISTORY is not supported with PERIOD"),
        (f"{SENSORS} INTERVAL(1s) FILL()", "expected NULL, VALUE, PREV, LINEAR, NEXT or NONE"),
        (f"{SENSORS} INTERVAL(1s) FILL(5)", "expected NULL, VALUE, PREV, LINEAR, NEXT or NONE"),
        (f"{SENSORS} INTERVAL(1s) FILL", "expected ("),
        (f"{SENSORS} INTERVAL(1s) FILL(VALUE)", "values stand behind VALUE"),
        (f"{SENSORS} INTERVAL(1s) FILL(PREV, 1)", "values stand behind VALUE"),
        (f"{SENSORS} INTERVAL(1s) FILL(VALUE, x)", "expected a number, a text, TRUE, FALSE or NULL"),
        (f"{SENSORS} INTERVAL(1s) FILL(VALUE, 1 + 1)", "expected a number"),
        (f"{SENSORS} INTERVAL(1s) FILL(VALUE, -'a')", "expected a number"),
        (f"{SENSORS} INTERVAL(1s) FILL(VALUE, )", "expected a number"),
        (f"{SENSORS} INTERVAL(1s) FILL(NEAR)", "FILL(NEAR) is not supported: use PREV, NEXT or LINEAR"),
        (f"{SENSORS} INTERVAL(1s) FILL(VALUE_F, 1)", "FILL(VALUE_F) is not supported"),
        (f"{SENSORS} INTERVAL(1s) FILL(PREV) FILL(NEXT)", "FILL is given twice"),
        (f"{SENSORS} SESSION(1s) FILL(PREV)", "FILL goes with INTERVAL"),
        (f"{SENSORS} COUNT_WINDOW(3) FILL(PREV)", "FILL goes with INTERVAL"),
        (f"TRIGGER AT_ONCE AS {SENSORS} INTERVAL(1s) FILL(PREV)", "and not with TRIGGER AT_ONCE"),
        (f"{SENSORS} GROUP BY device INTERVAL(1s)", "write PARTITION BY"),
        (f"{SENSORS} INTERVAL(1s) ORDER BY a", "ORDER is not supported"),
        (f"{SENSORS} INTERVAL(1s) LIMIT 1", "LIMIT is not supported"),
        (f"{SENSORS} a JOIN b INTERVAL(1s)", "expected WITHIN, or ON with the columns that are equal"),
        (f"{SENSORS} a JOIN b WITHIN 1s INTERVAL(1s)", "expected ON with"),
        (f"{SENSORS} a JOIN b WITHIN 0s ON a.x = b.x INTERVAL(1s)", "WITHIN is longer than nothing"),
        (f"{SENSORS} a JOIN b ON a.x = b.x INTERVAL(1s)", "a table has a row for each key: write ON ... = b._key"),
        (f"{SENSORS} a JOIN b ON a.x = b._key AND a.y = b._key INTERVAL(1s)", "a table has a row for each key"),
        (f"{SENSORS} a JOIN b WITHIN 1s ON x = b.x INTERVAL(1s)", "expected name.column"),
        (f"{SENSORS} a JOIN b WITHIN 1s ON a.x > b.x INTERVAL(1s)", "for anything else write WHERE"),
        (
            f"{SENSORS} a JOIN b WITHIN 1s ON a.x = a.y INTERVAL(1s)",
            "expected a column of each topic: a.column = b.column",
        ),
        (f"{SENSORS} a JOIN b WITHIN 1s ON c.x = b.y INTERVAL(1s)", "expected a column of each topic"),
        (f"{SENSORS} a JOIN sensors b WITHIN 1s ON a.x = b.x INTERVAL(1s)", "a topic is not joined with itself"),
        (f"{SENSORS} a JOIN b A WITHIN 1s ON a.x = b.x INTERVAL(1s)", "two topics have one name"),
        (f"{SENSORS} a JOIN `_b` WITHIN 1s ON a.x = _b.x INTERVAL(1s)", "names with _ are those of a record's parts"),
        (f"{SENSORS} a JOIN my.b WITHIN 1s ON a.x = b.x INTERVAL(1s)", "stands in backquotes"),
        (f"{SENSORS} a RIGHT JOIN b WITHIN 1s ON a.x = b.x INTERVAL(1s)", "RIGHT is not supported: name the topics"),
        (f"{SENSORS} a FULL OUTER JOIN b WITHIN 1s ON a.x = b.x INTERVAL(1s)", "FULL is not supported"),
        (f"{SENSORS} a LEFT SEMI JOIN b WITHIN 1s ON a.x = b.x INTERVAL(1s)", "SEMI is not supported"),
        (f"{SENSORS} a JOIN b WITHIN 1s ON a.x = b.x JOIN c ON a.x = c._key INTERVAL(1s)", "behind FROM topic, once"),
        (f"{SENSORS} a JOIN b WITHIN 1s ON a.x = b.x COUNT_WINDOW(2)", "COUNT_WINDOW is not supported with JOIN"),
        (f"{SENSORS} a JOIN b WITHIN 1s ON a.x = b.x PERIOD(2s)", "PERIOD is not supported with JOIN"),
        (f"{SENSORS} a JOIN b WITHIN 1s ON a.x = b.x INTERVAL(2s) FILL(PREV)", "FILL is not supported with JOIN"),
        (
            f"TRIGGER AT_ONCE {SENSORS} a JOIN b WITHIN 1s ON a.x = b.x INTERVAL(2s)",
            "AT_ONCE is not supported with JOIN",
        ),
        (f"{SENSORS} a JOIN b WITHIN 1s ON {' AND '.join(['a.x = b.x'] * 9)} INTERVAL(2s)", "at most 8 columns"),
        (f"{SENSORS}, b INTERVAL(1s)", "topics are joined by JOIN"),
        (f"{SENSORS} AS INTERVAL(1s)", "expected WHERE"),
        (f"{SENSORS} AS (a) INTERVAL(1s)", "expected a name behind AS"),
        (f"{SENSORS} WHERE x IN (SELECT 1 UNION SELECT 2) INTERVAL(1s)", "UNION is not supported"),
        ("SELECT a FROM my.sensors INTERVAL(1s)", "stands in backquotes"),
        ("SELECT a FROM INTERVAL(1s)", "expected the name of a topic"),
        ("SELECT * FROM sensors INTERVAL(1s)", "* has no meaning"),
        ("SELECT a, FROM sensors INTERVAL(1s)", "expected a column in SELECT"),
        ("SELECT DISTINCT a FROM sensors INTERVAL(1s)", "write PARTITION BY"),
        ("SELECT a) FROM sensors INTERVAL(1s)", "the parenthesis is not opened"),
        ("SELECT 'a FROM sensors INTERVAL(1s)", "the quote ' is not closed"),
        ("SELECT /* x */ a FROM sensors INTERVAL(1s)", "hints are not possible"),
        (f"{SENSORS} PARTITION BY a + b INTERVAL(1s)", "expression AS name"),
        (f"{SENSORS} WHERE INTERVAL(1s)", "expected a condition behind WHERE"),
        (f"{SENSORS} INTERVAL(1s) nonsense", "or the end"),
    ],
)
def test_what_is_refused_and_where(text: str, told: str) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse_stream(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="SELECT FROMINTERVAL()'`\",|.-/*10sas\n\\", max_size=60))
def test_any_text_is_a_stream_or_a_problem_in_one_line(text: str) -> None:
    try:
        parse_stream(text)
    except SyntaxProblem as error:
        assert "\n" not in str(error)  # noqa: PT017


@given(st.integers(1, 10 * 365 * 86_400_000))
def test_a_duration_is_written_as_it_is_read(ms: int) -> None:
    assert milliseconds(written(ms)) == ms


def test_tokens_know_quotes_numbers_and_comments() -> None:
    found = tokens("a.b <= 1.5e-3 -- no more\n 'it\\'s' `x``y` \"z\" 10s")
    assert [token.text for token in found] == [
        "a", ".", "b", "<=", "1.5e-3", "'it\\'s'", "`x``y`", '"z"', "10s"
    ]  # fmt: skip
    assert found[6].name == "x`y"


_WORDS = [
    "SELECT",
    "FROM",
    "s",
    "WHERE",
    "PARTITION",
    "BY",
    "INTERVAL",
    "SLIDING",
    "SESSION",
    "STATE_WINDOW",
    "EVENT_WINDOW",
    "COUNT_WINDOW",
    "PERIOD",
    "TRUE_FOR",
    "FILL",
    "HAVING",
    "START",
    "END",
    "WITH",
    "COUNT",
    "AND",
    "OR",
    "NULL",
    "VALUE",
    "PREV",
    "AS",
    "WATERMARK",
    "MAX_DELAY",
    "TRIGGER",
    "STREAM_OPTIONS",
    "FILL_HISTORY",
    "(",
    "(",
    "(",
    ")",
    ")",
    ")",
    ",",
    ",",
    "-",
    "5",
    "10s",
    "1a",
    "'x'",
    "x",
    "*",
    "|",
]


@given(
    st.lists(st.sampled_from(_WORDS), max_size=12),
    st.sampled_from(("", "SELECT a FROM s", "SELECT a FROM s INTERVAL(1s)", "SELECT a FROM s STATE_WINDOW(a)")),
)
def test_what_is_no_stream_is_told_and_nothing_else_goes_wrong(words: list[str], before: str) -> None:
    try:
        parse_stream(f"{before} {' '.join(words)}")
    except SyntaxProblem as error:
        assert str(error).startswith("line 1, column ")  # noqa: PT017
