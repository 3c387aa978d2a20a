"""SELECTs without Spark: all answers that are given without Spark are those of Spark."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.storage.config import LogConfig
from barnabas.storage.tests.support import flush_alone
from barnabas.streams.query.definitions import Source
from barnabas.streams.query.errors import QueryError
from barnabas.streams.select import aggregates, run, syntax
from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.plain_values import plain_rows
from barnabas.streams.select.plan import Planned, columns_of, plan
from barnabas.streams.select.run import Result
from barnabas.streams.tests.support import Logs
from barnabas.wire.batch import Record, build_batch
from compat_tests.tools import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "device STRING, seq BIGINT, temp DOUBLE, small TINYINT, n INT, flag BOOLEAN, `my-col` STRING, day DATE, "
    "at TIMESTAMP, f FLOAT, dec DECIMAL(10,2), tags ARRAY<STRING>, pos STRUCT<x: DOUBLE, y: STRING>"
)
JSON = Source("s", "", 2, format="json", schema=SCHEMA)
RAW = Source("r", "", 1)


def planned(text: str, source: Source = JSON) -> Planned:
    return plan(syntax.parse(text), columns_of(source.values))


def answered(logs: Logs, text: str, source: Source = JSON, limit: int = 1000) -> tuple[Result, pa.Table]:
    found = run.run(logs.log_dir(), source, planned(text, source), limit)
    return found, pa.Table.from_batches(list(found.batches), schema=found.schema)


def rows(logs: Logs, text: str, source: Source = JSON, limit: int = 1000) -> list[list[Any]]:
    return plain_rows(answered(logs, text, source, limit)[1])


# --- data -------------------------------------------------------------------------------------------------------------

VALUES: dict[str, list[Any]] = {
    "device": [None, "", "a", "ab", "b", "A", "it's", " 7 ", "12", "-3.5", "\u00e9\U0001f600", "\x01\n", "%", "a_b"],
    "seq": [None, 0, 1, -1, 7, 2**31, -(2**63), 2**63 - 1, 2**53 + 1, 2**53 + 3],
    "temp": [None, 0.0, -0.0, 1.5, -1.5, 20.5, 1e-4, 1e7, 1e300, 1e308, -1e308, 0.1 + 0.2, 80],
    "small": [None, 0, 1, -2, 127, -128],
    "n": [None, 0, 5, -(2**31), 2**31 - 1],
    "flag": [None, True, False],
    "my-col": [None, "x", ""],
    "day": [None, "2024-02-29"],
    "at": [None, "2024-01-05T10:00:00.050001Z", "2023-11-14T22:13:20Z"],
    "f": [None, 0.5],
    "dec": [None, "12.50"],
    "tags": [None, [], ["a", None]],
    "pos": [None, {"x": 1.5, "y": "b"}, {"x": None}],
}


def filled(path: Path) -> Logs:
    logs = Logs(path, LogConfig(segment_bytes=4000, index_interval_bytes=500))
    pick = random.Random(5)
    for partition in (0, 1):
        values: list[bytes | None] = [None, b"no json", b'{"seq": "text"}']
        for _ in range(120):
            found = {name: pick.choice(options) for name, options in VALUES.items() if pick.random() < 0.9}
            values.append(json.dumps(found).encode())
        pick.shuffle(values)
        logs.write(values, "s", partition)
    vnode = logs.vnode("r")
    keys = [None, b"k1", b"k2", b"\xff\xfe"]
    values = [b"a", b"\xff", None, "\u00e9".encode(), b"12", b"\x1b[31mred"]
    for at in range(40):
        record = Record(
            keys[at % 4], values[at % 6], 1_700_000_000_000 + at * 1000, (("h", b"\x00"),) if at % 2 else ()
        )
        vnode.append(bytearray(build_batch([record])), now_ms=1_700_000_000_000)
    return logs


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    made = filled(tmp_path_factory.mktemp("select") / "data")
    for vnode in made.vnodes.values():
        flush_alone(vnode)
    return made


# --- with Spark -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session(spark: SparkSession, logs: Logs) -> SparkSession:
    """With both topics as one task each, which gives sums of DOUBLE the same order as here."""
    from barnabas.streams.adhoc import frame_of

    made = spark.newSession()
    for source in (JSON, RAW):
        frame_of(made, logs.log_dir(), source).coalesce(1).createOrReplaceTempView(source.name)
    return made


def comparable(value: Any, adds: bool) -> Any:
    """A value that equals itself: the bits of a double, because NaNs and zeros differ only in them.

    The last digits of sums are left open.
    """
    if isinstance(value, float) and adds and math.isfinite(value):
        return f"{value:.7e}"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value.hex()
    return json.dumps(value) if isinstance(value, list | dict) else value


def said(table: pa.Table, adds: bool) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """Names and types, and rows."""
    kinds = [(field.name, str(field.type).replace("<item:", "<element:")) for field in table.schema]
    return kinds, [tuple(comparable(each, adds) for each in row) for row in plain_rows(table)]


def by_both(session: SparkSession, logs: Logs, text: str, source: Source) -> bool:
    """Compare the answers; False if it is left to Spark."""
    try:
        _, mine = answered(logs, text, source, limit=100_000)
    except (NeedsSpark, run.TooLateError):
        return False
    theirs = session.sql(text).toArrow()
    adds = any(name in text.lower() for name in ("sum(", "avg(", "mean("))
    (kinds, found), (their_kinds, expected) = said(mine, adds), said(theirs, adds)
    assert [name for name, _ in kinds] == [name for name, _ in their_kinds], text
    assert kinds == their_kinds, text
    if "LIMIT" in text and "ORDER BY" not in text:
        assert len(found) == len(expected), text
    elif "ORDER BY" in text and "LIMIT" not in text:
        asked = planned(text, source)
        assert Counter(found) == Counter(expected), text
        if all(each.of.columns for each in asked.order):
            assert _order(asked, kinds, found) == _order(asked, kinds, expected), text
    elif "LIMIT" not in text:
        assert Counter(found) == Counter(expected), text
    else:
        assert found == expected, text
    return True


def _order(asked: Planned, kinds: list[tuple[str, str]], found: list[tuple[Any, ...]]) -> list[Any]:
    """What the rows are ordered by, if the result contains it."""
    names = [name for name, _ in kinds]
    places = [names.index(next(iter(each.of.columns))) for each in asked.order if each.of.columns <= set(names)]
    return (
        [tuple("0x0.0p+0" if row[at] == "-0x0.0p+0" else row[at] for at in places) for row in found]
        if len(places) == len(asked.order)
        else []
    )


NAMED = [
    "SELECT * FROM s",
    "SELECT * FROM r",
    "SELECT device, temp FROM s WHERE temp > 20",
    "SELECT s.device, S.SEQ q FROM s",
    "SELECT t.device FROM s t WHERE t._offset >= 30 AND _partition = 1",
    "SELECT count(*) FROM s",
    "SELECT COUNT(*) FROM r",
    "SELECT count(1), count(device), Count(DISTINCT device) FROM s",
    "SELECT device, count(*) AS n FROM s GROUP BY device",
    "SELECT min(temp), max(temp), sum(temp), avg(temp) FROM s WHERE temp < 1e200 AND temp > -1e200",
    "SELECT sum(seq), avg(seq), min(seq), max(seq), sum(small), avg(small) FROM s",
    "SELECT mean(n) FROM s",
    "SELECT flag, small, sum(n) x, avg(n), min(device), max(at) FROM s GROUP BY flag, small ORDER BY flag, small",
    "SELECT DISTINCT device FROM s",
    "SELECT DISTINCT flag, small FROM s ORDER BY small DESC, flag",
    "SELECT device, count(*) FROM s GROUP BY 1 HAVING count(*) > 12 ORDER BY 2 DESC, 1",
    "SELECT * FROM s LIMIT 7",
    "SELECT upper(device) u, count(*) FROM s WHERE device IN ('a', 'A', 'b') GROUP BY upper(device)",
    "SELECT upper(device) u FROM s WHERE device < 'c' GROUP BY u HAVING u <> 'B' ORDER BY u",
    "SELECT _offset, _partition FROM s ORDER BY _offset DESC, _partition LIMIT 9",
    "SELECT temp * 2 FROM s",
    "SELECT _offset FROM s WHERE _partition = 0 ORDER BY _offset DESC LIMIT 5",
    "SELECT temp FROM s ORDER BY temp DESC",
    "SELECT _offset o FROM s WHERE _partition = 0 AND temp > 0 ORDER BY o DESC LIMIT 5 OFFSET 3",
    "SELECT seq + 1, seq - n, n * n, small + small, -small, -n, seq / 2, n % 3, seq % -7, temp % 1.5 FROM s",
    "SELECT n / 0, temp / 0, n % 0, 1 + 1, 'x', true, temp + 1.5, temp - n, seq * temp, -temp, abs(temp) FROM s",
    "SELECT temp > 1, NOT flag, flag AND temp > 0, flag OR n = 5, seq IS NULL, device IS NOT NULL FROM s",
    "SELECT device || '-' || `my-col`, concat(device, 'x'), length(device), coalesce(device, `my-col`, 'z') FROM s",
    "SELECT trim(device) t, substring(device, 2, 1) a, substr(device, -2, 2) b, substring(device, 0, 2) c FROM s",
    "SELECT substr(device, 1, 1), substring(device, -5, 4), substring(device, 2, -1) FROM s",
    "SELECT small, n IN (0, 5) FROM s",
    "SELECT CAST(n AS STRING), CAST(seq AS INT), cast(n as tinyint), CAST(flag AS STRING) FROM s",
    "SELECT CAST(device AS INT) i, CAST(device AS DOUBLE) d FROM s WHERE device IN ('12', '-3')",
    "SELECT device FROM s WHERE device LIKE 'a%' OR device LIKE '%b' OR device LIKE '%t''%' OR device LIKE '12'",
    "SELECT seq FROM s WHERE seq > temp",
    "SELECT seq FROM s WHERE seq = temp OR temp = 1e308",
    "SELECT temp FROM s WHERE temp = -0.0",
    "SELECT temp FROM s WHERE temp IN (0, 1.5, 80)",
    "SELECT n FROM s WHERE n BETWEEN -1 AND 5.0e0 OR seq BETWEEN n AND seq",
    "SELECT at FROM s WHERE at > '2024-01-01'",
    "SELECT at FROM s WHERE at = TIMESTAMP '2024-01-05 10:00:00.050001'",
    "SELECT _offset FROM r WHERE _timestamp >= '2023-11-14 22:13:30' AND _timestamp < '2023-11-14T22:13:40Z'",
    "SELECT _key, count(*), min(_offset) FROM r WHERE _key <> 'zz' AND _key < 'l' GROUP BY _key ORDER BY _key",
    "SELECT _value, _headers, _timestamp FROM r WHERE _key = 'k1'",
    "SELECT tags, pos, dec, f, day FROM s WHERE pos IS NOT NULL",
    "SELECT count(tags), count(dec), count(pos), max(_timestamp), min(flag), max(flag) FROM s",
    "SELECT _offset FROM s WHERE true",
    "SELECT temp, temp FROM s",
    "SELECT sum(n) / count(*), sum(n) + 1 AS more FROM s",
    "SELECT flag fl, max(n) FROM s GROUP BY fl",
    "SELECT n FROM s ORDER BY n NULLS LAST",
    "SELECT n FROM s ORDER BY n DESC NULLS FIRST",
    "SELECT small s FROM s ORDER BY -s",
    "SELECT device d, count(*) n FROM s GROUP BY device ORDER BY n DESC, d LIMIT 3",
    "SELECT n FROM s WHERE n <> 5 and NOT flag",
    "SELECT temp t, count(*) FROM s WHERE temp < 0.5 GROUP BY temp",
    "SELECT min(temp), max(temp) FROM s WHERE temp < 2 AND temp > -1",
    "SELECT count(DISTINCT temp), count(DISTINCT flag) FROM s",
    "SELECT sum(temp) FROM s WHERE temp > 0 AND temp < 1e100",
    "SELECT avg(temp), flag FROM s WHERE temp BETWEEN 0.1 AND 90 GROUP BY flag",
    "SELECT max(n) FROM s WHERE n > 2147483646 AND n < 0",
    "SELECT flag FROM s WHERE false GROUP BY flag",
    "SELECT count(*) FROM s LIMIT 0",
]


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT 1 + 1 AS a, 'x', true, -2147483648", "SELECT upper('a') || 'b'"])
def test_a_query_without_a_topic_is_sparks(session: SparkSession, text: str) -> None:
    result = run.run_once(plan(syntax.parse(text), pa.schema([])), 10)
    mine = pa.Table.from_batches(list(result.batches), schema=result.schema)
    assert said(mine, False) == said(session.sql(text).toArrow(), False)


@pytest.mark.parametrize("text", NAMED)
def test_an_answer_is_sparks(session: SparkSession, logs: Logs, text: str) -> None:
    assert by_both(session, logs, text, RAW if "FROM r" in text else JSON)


class Texts:
    """Random queries, most of which are understood."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self) -> str:
        pick = self._random
        where = f" WHERE {self._truth(2)}" if pick.random() < 0.6 else ""
        if pick.random() < 0.4:
            groups = pick.sample(
                ["device", "flag", "small", "n", "temp", "at", "`my-col`", "length(device)"], pick.randint(0, 2)
            )
            named = [f"{each} AS g{at}" if pick.random() < 0.5 else each for at, each in enumerate(groups)]
            items = [*named, *(self._aggregate() for _ in range(pick.randint(1, 3)))]
            pick.shuffle(items)
            by = f" GROUP BY {', '.join(groups)}" if groups else ""
            having = f" HAVING {self._aggregate()} > 1" if groups and pick.random() < 0.3 else ""
            order = (
                f" ORDER BY {pick.randint(1, len(items))}{pick.choice(['', ' DESC'])}"
                if groups and pick.random() < 0.4
                else ""
            )
            return f"SELECT {', '.join(items)} FROM s{where}{by}{having}{order}"
        items = [pick.choice([self._number(2), self._text(2), self._truth(1)]) for _ in range(pick.randint(1, 3))]
        items = [f"{each} AS c{at}" if pick.random() < 0.3 else each for at, each in enumerate(items)]
        order = (
            f" ORDER BY {pick.choice([self._number(1), self._text(1)])}{pick.choice(['', ' DESC'])}"
            if pick.random() < 0.3
            else ""
        )
        return f"SELECT {pick.choice(['', '', '', 'DISTINCT '])}{', '.join(items)} FROM s{where}{order}"

    def _aggregate(self) -> str:
        pick = self._random
        of = pick.choice([self._number(1), "temp", "seq", "n", "small"])
        return pick.choice(
            [f"{pick.choice(['sum', 'avg', 'min', 'max', 'count'])}({of})", "count(*)", f"count(DISTINCT {of})",
             f"{pick.choice(['min', 'max', 'count'])}({pick.choice(['device', 'flag', 'at', self._text(1)])})"]
        )  # fmt: skip

    def _number(self, depth: int) -> str:
        pick = self._random
        if depth == 0 or pick.random() < 0.3:
            return pick.choice(
                [
                    "seq",
                    "temp",
                    "small",
                    "n",
                    "_offset",
                    "_partition",
                    "0",
                    "1",
                    "-7",
                    "2147483648",
                    "1.5",
                    "1e3",
                    "9007199254740993",
                ]
            )
        one, other = self._number(depth - 1), self._number(depth - 1)
        return pick.choice(
            [f"({one} {pick.choice('+-*/%')} {other})", f"{one} {pick.choice('+-*/%')} {other}", f"abs({one})",
             f"-{one}" if one[0] != "-" else one, f"length({self._text(depth - 1)})", f"coalesce({one}, {other})",
             f"CAST({one} AS {pick.choice(['TINYINT', 'SMALLINT', 'INT', 'BIGINT', 'DOUBLE'])})",
             f"cast({self._text(depth - 1)} as int)"]
        )  # fmt: skip

    def _text(self, depth: int) -> str:
        pick = self._random
        if depth == 0 or pick.random() < 0.4:
            return pick.choice(["device", "`my-col`", "_key", "_topic", "'a'", "''", "'it''s'", "'\u00e9'"])
        one, other = self._text(depth - 1), self._text(depth - 1)
        return pick.choice(
            [f"{one} || {other}", f"concat({one}, {other})", f"upper({one})", f"lower({one})", f"trim({one})",
             f"substring({one}, {pick.randint(-4, 4)}, {pick.randint(-1, 4)})", f"coalesce({one}, {other})",
             f"CAST({pick.choice(['n', 'seq', 'flag', 'small'])} AS STRING)"]
        )  # fmt: skip

    def _truth(self, depth: int) -> str:
        pick = self._random
        if depth == 0 or pick.random() < 0.5:
            sign = pick.choice(["=", "<", "<=", ">", ">=", "<>", "!="])
            return pick.choice(
                ["flag", f"{self._number(1)} {sign} {self._number(1)}", f"{self._text(1)} {sign} {self._text(0)}",
                 f"{self._number(1)} BETWEEN {self._number(0)} AND {self._number(0)}", f"flag {sign} true",
                 f"{self._text(1)} IN ('a', 'b', '12')", f"{self._number(0)} NOT IN (1, 5, 1.5)",
                 f"{self._text(0)} LIKE '{pick.choice(['a%', '%b', '%', '%a%b%', 'x', ''])}'",
                 f"{self._number(1)} IS NULL", f"at {sign} '2024-01-05 10:00:00'",
                 f"_timestamp {sign} '2023-11-14 22:13:21'"]
            )  # fmt: skip
        one, other = self._truth(depth - 1), self._truth(depth - 1)
        return pick.choice([f"{one} AND {other}", f"({one} OR {other})", f"NOT ({one})", f"({one}) = ({other})"])


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 8))])
def test_answers_to_queries_at_random_are_sparks(session: SparkSession, logs: Logs, seed: int) -> None:
    texts = Texts(seed)
    counted = Counter(by_both(session, logs, texts.query(), JSON) for _ in range(60))
    assert counted[True] > 20


# --- without Spark ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1.5 FROM s",
        "SELECT f + 1 FROM s",
        "SELECT dec + 1 FROM s",
        "SELECT n + 1.5 FROM s",
        "SELECT tags[0] FROM s",
        "SELECT pos.x FROM s",
        "SELECT CAST(temp AS STRING) FROM s",
        "SELECT device + 1 FROM s",
        "SELECT device = 1 FROM s",
        "SELECT rank() OVER (ORDER BY n) FROM s",
        "SELECT hash(n) FROM s",
        "SELECT n FROM s JOIN r ON true",
        "SELECT n FROM (SELECT * FROM s)",
        "SELECT n FROM s WHERE n IN (1, NULL)",
        "SELECT n FROM s WHERE device LIKE 'a_'",
        "SELECT n FROM s GROUP BY flag",
        "SELECT n, count(*) FROM s GROUP BY ALL",
        "SELECT count(*) FROM s HAVING count(*) > 1",
        "SELECT count(DISTINCT n, flag) FROM s",
        "SELECT current_date FROM s",
        "SELECT 1e3 FROM s",
        "SELECT n AS temp, count(*) FROM s GROUP BY n ORDER BY max(temp)",
        "SELECT sum(tags) FROM s",
        "SELECT at FROM s WHERE at > 'yesterday'",
        "SELECT * FROM s; SELECT 1",
        "SELECT " + "(" * 100 + "n" + ")" * 100 + " FROM s",
        "SELECT " + "n + " * 1200 + "n FROM s",
    ],
)
def test_what_is_not_certain_is_sparks(text: str) -> None:
    with pytest.raises(NeedsSpark):
        planned(text)


def test_a_column_that_is_not_there_is_told_with_one_that_is() -> None:
    with pytest.raises(QueryError, match=r"there is no column `tmp`.*did you mean temp"):
        planned("SELECT tmp FROM s")
    with pytest.raises(QueryError, match="there is no column `x`"):
        planned("SELECT n FROM s ORDER BY x")


def many(path: Path, count: int) -> Logs:
    logs = Logs(path, LogConfig(segment_bytes=1 << 24))
    logs.write([b'{"n": %d, "device": "d%d"}' % (n, n) for n in range(count)], "s", each=1000)
    flush_alone(logs.vnode("s"))
    return logs


def test_a_limit_reads_little_of_a_large_topic(tmp_path: Path) -> None:
    logs = many(tmp_path / "data", 200_000)
    for text in ("SELECT n FROM s LIMIT 3", "SELECT n FROM s WHERE n >= 5 LIMIT 3 OFFSET 2"):
        found, table = answered(logs, text)
        assert table.num_rows == 3
        assert found.read() <= 50_000
    found, table = answered(logs, "SELECT n FROM s ORDER BY _offset DESC LIMIT 3")
    assert table["n"].to_pylist() == [199_999, 199_998, 199_997]
    assert found.read() <= 2000
    found, table = answered(logs, "SELECT n FROM s WHERE _offset = 150000")
    assert (table["n"].to_pylist(), found.read()) == ([150_000], 1)
    found, table = answered(logs, "SELECT n FROM s WHERE n > 1000", limit=10)
    assert (table.num_rows, found.read() <= 50_000) == (10, True)
    found, table = answered(logs, "SELECT count(*) FROM s WHERE _timestamp >= '2023-11-14 22:16:00'")
    assert found.read() < 200_000
    assert table["count(1)"].to_pylist() == [found.read()]


def test_what_is_kept_is_bounded(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MOST_GROUPS", 3)
    with pytest.raises(NeedsSpark, match="groups"):
        rows(logs, "SELECT device, count(*) FROM s GROUP BY device")
    monkeypatch.setattr(run, "MOST_SORTED_BYTES", 10)
    with pytest.raises(NeedsSpark, match="large"):
        rows(logs, "SELECT * FROM s ORDER BY n LIMIT 100")
    monkeypatch.setattr(aggregates, "MOST_BYTES", 100)
    monkeypatch.setattr(aggregates.Room.__init__, "__defaults__", (100,))
    with pytest.raises(NeedsSpark, match="different values"):
        rows(logs, "SELECT count(DISTINCT n) FROM s")
    with pytest.raises(NeedsSpark, match="sorts more"):
        rows(logs, "SELECT n FROM s ORDER BY n", limit=1_000_000)


def test_texts_that_are_no_text_are_shown_with_their_bytes(logs: Logs) -> None:
    found = rows(logs, "SELECT _key, _value, _headers FROM r WHERE _offset IN (1, 3) ORDER BY _offset", RAW)
    assert found == [
        ["k1", "\\xff", [{"key": "h", "value": "\x00"}]],
        ["\\xff\\xfe", "\u00e9", [{"key": "h", "value": "\x00"}]],
    ]
    with pytest.raises(NeedsSpark, match="UTF-8"):
        rows(logs, "SELECT length(_value) FROM r", RAW)


def test_a_row_that_needs_spark_after_others_were_given(tmp_path: Path) -> None:
    logs = many(tmp_path / "data", 100_000)
    logs.write(['{"device": "\u00e9"}'.encode()], "s")
    found = run.run(logs.log_dir(), JSON, planned("SELECT upper(device) AS u FROM s"), 1_000_000)
    assert next(found.batches).num_rows
    with pytest.raises(run.TooLateError, match="ASCII"):
        list(found.batches)


def test_sums_whose_order_decides_are_sparks() -> None:
    state = aggregates._Sum()
    state.add([1e16, 1.0, -1e16, 0.3])
    with pytest.raises(NeedsSpark, match="order"):
        state.result()
    whole = aggregates._Average()
    whole.add([2**31, -(2**31), 3, None])
    assert whole.result() == 1.0


def test_the_words_of_spark_are_all_known(spark: SparkSession) -> None:
    from barnabas.streams.query.spark_words import KEYWORDS, SPARK_FUNCTIONS

    functions = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert {name for name in functions if name.replace("_", "").isalnum()} <= SPARK_FUNCTIONS
    assert {row[0] for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()} == KEYWORDS


@pytest.mark.door
def test_arrow_does_without_numpy_and_pandas() -> None:
    """An internal detail that is relied on: how Arrow looks for them."""
    code = (
        "import sys; from barnabas.streams.quick_arrow import import_arrow; import_arrow(); "
        "import pyarrow as pa; pa.scalar(1.5); pa.array([1, None]); import barnabas.streams.select.door; "
        "assert not {'numpy', 'pandas'} & sys.modules.keys(); import numpy, pandas"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
