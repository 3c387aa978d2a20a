"""The SQL that a query may use: the docs' table of refused SQL is right, and no refused text runs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.streams.tests.support import Logs

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.analysis import over_pattern, source_of
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.functions import EXPRESSIONS, FUNCTIONS
from barnabas.streams.query.job import Job, begin
from barnabas.streams.query.room import with_room
from barnabas.streams.query.sink import ROW
from barnabas.streams.query.tick import Part, Tick
from barnabas.streams.tests.query_support import group_of, parts_of
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs" / "query-topics.md"
SCHEMA = "device STRING, temp DOUBLE, n INT, tags ARRAY<STRING>, at TIMESTAMP, b BINARY"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", "false")
    made.conf.set("spark.sql.runSQLOnFiles", "false")
    return made


def check(spark: SparkSession, query: str, schema: str = "") -> Any:
    kind = "json" if schema else "raw"
    return Job.check(spark, query, source_of(spark, query), Values(format=kind, schema=schema))


def refused(spark: SparkSession, query: str, schema: str = "") -> str:
    with pytest.raises(QueryError) as caught:
        check(spark, query, schema)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def table() -> list[tuple[str, str]]:
    """Statements and answers from the table in the docs."""
    rows = re.findall(r"^\| (`+)(.+?) ?\1 \| [^|]+ \| (.+) \|$", DOCS.read_text(), re.MULTILINE)
    found = [(statement.strip(), answer) for _, statement, answer in rows]
    begin_, end = (
        next(i for i, (s, _) in enumerate(found) if s.startswith(w)) for w in ("INSERT OV", "SELECT transform(")
    )
    return found[begin_ : end + 1]


@pytest.mark.parametrize(("statement", "answer"), table())
def test_the_docs_say_what_is_refused_and_how(session: SparkSession, statement: str, answer: str) -> None:
    assert answer in refused(session, statement)


@pytest.mark.parametrize("end", ["", " FROM s"])
def test_what_is_refused_has_not_run(session: SparkSession, tmp_path: Path, end: str) -> None:
    """Each of these would leave something behind."""
    out, name = tmp_path / "out", f"t{tmp_path.name.replace('-', '_')}"
    for text in (
        f"INSERT OVERWRITE LOCAL DIRECTORY '{out}' USING parquet SELECT 1 x",
        f"INSERT OVERWRITE LOCAL DIRECTORY '{out}' SELECT TRANSFORM(1) USING 'touch {out}'",
        f"CREATE TABLE {name} USING parquet LOCATION '{out}' AS SELECT 1 x",
        f"CREATE TEMPORARY VIEW {name} AS SELECT 1 x",
        f"SET barnabas.test={name}",
        f"SELECT reflect('java.lang.System', 'setProperty', '{name}', 'x')",
        f"SELECT java_method('java.lang.System', 'setProperty', '{name}', 'x')",
        f"SELECT try_reflect('java.lang.System', 'setProperty', '{name}', 'x')",
    ):
        refused(session, text + end)
    jvm: Any = session._jvm
    assert not out.exists()
    assert not session.catalog.tableExists(name)
    assert session.conf.get("barnabas.test", "no") == "no"
    assert jvm.java.lang.System.getProperty(name) is None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + "(1 + " * 60 + "1" + ")" * 60 + " x FROM s",
        "SELECT " + "CASE WHEN " * 60 + "true" + " THEN true END" * 60 + " x FROM s",
        "SELECT " + "- " * 5000 + "1 x FROM s",
        "SELECT _value FROM s WHERE " + "NOT " * 3000 + "true",
        "SELECT " + "1 + " * 4000 + "1 x FROM s",
        "SELECT " + "1 + " * 150 + "1 x FROM s",
        "SELECT CAST(NULL AS " + "ARRAY<" * 1500 + "INT" + ">" * 1500 + ") x FROM s",
        "SELECT _value FROM s WHERE _key IN (" + ", ".join(["'a'"] * 2000) + ")",
        "SELECT _value FROM s WHERE _key = '" + "x" * 20_000 + "'",
        "SELECT _value " + "/* " * 4000 + "FROM s",
        "SELECT " + "repeat(" * 30 + "'x'" + ", 10)" * 30 + " x FROM s",
    ],
    ids=lambda query: query[:20],
)
def test_a_text_that_is_too_much_is_refused(session: SparkSession, query: str) -> None:
    assert refused(session, query)
    assert check(session, "SELECT _value FROM s")


def test_a_pattern_in_a_text_is_no_pattern(session: SparkSession) -> None:
    query, pattern = over_pattern("SELECT \"topics('a')\" x FROM s")
    assert pattern is None
    assert check(session, query).value_schema == "x string"


CALLS = """
abs(temp) acos(temp) atan2(temp,1) bin(n) bround(temp,2) ceil(temp) ceiling(temp,1) conv(device,10,16) e()
factorial(n) floor(temp) greatest(n,1) hex(b) hypot(temp,1) log(2,temp) mod(n,2) pi() pmod(n,2) pow(temp,2)
round(temp,-2) sign(temp) try_add(n,1) try_divide(n,1) unhex(device) width_bucket(temp,0,1,2) bit_count(n)
bit_get(n,1) shiftleft(n,1) between(n,1,2) equal_null(n,1) isnan(temp) coalesce(n,1) if(n>1,1,2) ifnull(n,1)
nullif(n,1) nullifzero(n) nvl2(n,1,2) zeroifnull(n) bigint(temp) string(n) timestamp(device) date(device)
add_months(at,1) convert_timezone('UTC','CET',at) date_add(at,1) date_diff(at,at) date_format(at,'yyyy')
date_part('year',at) date_trunc('hour',at) day(at) dayname(at) extract(year_from_at) from_unixtime(n)
from_utc_timestamp(at,'CET') hour(at) last_day(at) make_date(n,1,1) make_timestamp(n,1,1,1,1,1) months_between(at,at)
next_day(at,'MON') to_date(device) to_timestamp(device,'yyyy') to_unix_timestamp(at) trunc(at,'MM')
try_to_timestamp(device) unix_millis(at) weekofyear(at) timestamp_millis(n) crc32(device) hash(n) md5(b)
sha2(device,256) xxhash64(device) get_json_object(device,'$.a') json_array_length(device) json_object_keys(device)
to_json(map(device,n)) map('a',1) map_contains_key(map(device,n),'a') map_entries(map(device,n))
map_keys(map(device,n)) map_values(map(device,n)) named_struct('a',n) struct(n,temp) array(1,n) array_append(tags,'x')
array_compact(tags) array_contains(tags,'a') array_join(tags,',') array_max(tags) array_position(tags,'a')
array_repeat(n,3) array_size(tags) cardinality(tags) concat(device,'a') element_at(map(device,n),'a')
flatten(array(tags,tags)) get(tags,0) reverse(device) size(tags) slice(tags,1,2) sort_array(tags)
try_element_at(tags,1) ascii(device) base64(b) bit_length(device) btrim(device) char(n) concat_ws(',',device,tags)
contains(device,'a') decode(b,'UTF-8') elt(1,device,'a') encode(device,'UTF-8') endswith(device,'a')
find_in_set('a',device) format_number(temp,2) initcap(device) instr(device,'a') is_valid_utf8(device) left(device,1)
length(device) locate('a',device) lower(device) lpad(device,5,'x') ltrim(device) luhn_check(device)
make_valid_utf8(device) mask(device) octet_length(device) overlay(device,'a',1) position('a',device) quote(device)
regexp_extract(device,'d(\\\\d+)',1) regexp_replace(device,'(d)','$1x') repeat(device,3) replace(device,'d','x')
right(device,1) rpad(device,5) rtrim(device) soundex(device) space(3) split(device,',') split_part(device,',',1)
startswith(device,'a') substr(device,1,2) substring_index(device,'.',1) to_binary(device) translate(device,'a','b')
trim(device) unbase64(device) upper(device) url_encode(device) transform(tags,x->upper(x)) filter(tags,x->x>'a')
exists(tags,x->x='a') forall(tags,x->x='a') cast(n_as_string) try_to_binary(device) try_url_decode(device)
rlike(device,'a+') regexp_like(device,'a') like(device,'a%b%c') ilike(device,'A') positive(n) negative(n)
"""


AT_ONCE = 10


def gives_each(session: SparkSession, texts: Sequence[str]) -> None:
    """A query may contain these; ten at a time, because most of a query's cost is independent of them."""
    for first in range(0, len(texts), AT_ONCE):
        some = texts[first : first + AT_ONCE]
        selected = ", ".join(f"{text} AS x{number}" for number, text in enumerate(some))
        found = check(session, f"SELECT {selected} FROM s", SCHEMA).value_schema
        assert re.findall(r"\bx\d+ ", found) == [f"x{number} " for number in range(len(some))], selected


def test_what_is_allowed_works(session: SparkSession) -> None:
    gives_each(session, [call.replace("_from_", " FROM ").replace("n_as_", "n AS ") for call in CALLS.split()])


def test_operators_work(session: SparkSession) -> None:
    texts = [
        "-n + 1 - 2 * 3 / 4 % 5", "n div 2", "n & 1 | 2 ^ ~n", "device || 'x'", "tags[0]", "map('a', 1)['a']",
        "n IS NULL OR NOT n <=> 1",
        "CASE WHEN n > 1 THEN 'a' ELSE 'b' END", "CASE n WHEN 1 THEN 2 END", "n IN (1, 2)", "n NOT BETWEEN 1 AND 2",
        "CAST(n AS STRING)", "n::bigint", "try_cast(device AS INT)", "at + INTERVAL 1 DAY", "DATE '2020-01-01'",
        "trim(BOTH 'x' FROM device)", "substring(device FROM 1 FOR 2)", "position('a' IN device)",
        "device NOT LIKE 'a!%' ESCAPE '!'",
        "timestampdiff(HOUR, at, at)", "dateadd(DAY, 1, at)", "(n, temp)", "_headers[0].key",
        "device IS DISTINCT FROM 'a'",
    ]  # fmt: skip
    gives_each(session, texts)


def test_the_lists_name_what_spark_has(session: SparkSession) -> None:
    jvm: Any = session._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    catalog = session._jsparkSession.sessionState().catalog()
    missing = {name for name in FUNCTIONS if not catalog.functionExists(identifier(name))}
    assert not missing
    assert "ScalarSubquery" not in EXPRESSIONS


def rows_of(spark: SparkSession, logs: Logs, expressions: Sequence[str]) -> list[list[Any]]:
    """The results of queries with one of these each, in a single run."""
    parts = parts_of(logs, len(expressions))
    queries = [f"SELECT {expression} AS x FROM s" for expression in expressions]
    group, _ = group_of(spark, queries, "device STRING", len(parts))
    rows = group.rows()
    begin(spark, Tick(1, parts))
    found: list[list[Any]] = [[] for _ in expressions]
    for row in rows.collect():
        if row["kind"] == ROW:
            found[row["query"]].append(json.loads(row["value"])["x"])
    return found


TEXTS = ["", "plant-7-temp", "PLANT", "a\nb", "100%", "a_b", "axb", "äöü", "aaa", "x.y.z", "a\\b"]
PATTERNS = [
    "device RLIKE '^plant-[0-9]+-temp$'", "device RLIKE 'a'", "device LIKE 'a_b'", "device LIKE '%a%b%'",
    "device LIKE '100!%' ESCAPE '!'", "device LIKE '_'", "device LIKE ''", "device LIKE 'a%'",
    "device LIKE '%.%.%'",
    "device ILIKE 'plant%'", "device NOT LIKE '%a%m%'", r"device LIKE 'a\\\\b'",
    "regexp_replace(device, '[aeiou]+', '<$0>')", "regexp_replace(device, '(.)(.)', '$2$1')",
    "regexp_extract(device, '([a-z]+)-([0-9]+)', 2)", "regexp_extract(device, '([a-z]+)-([0-9]+)')",
    "regexp_extract(device, 'a+', 0)", "regexp_extract(device, '(?i)(p)lant|a', 1)", "split(device, '[.-]')",
]  # fmt: skip


def test_regular_expressions_give_what_spark_gives(session: SparkSession, tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.write([json.dumps({"device": text}).encode() for text in TEXTS], "s", 0)
    frame = session.createDataFrame([(text,) for text in TEXTS], "device STRING").coalesce(1)
    expected = zip(*frame.selectExpr(*PATTERNS).collect(), strict=True)
    for pattern, mine, theirs in zip(PATTERNS, rows_of(session, logs, PATTERNS), expected, strict=True):
        assert mine == list(theirs), pattern


def test_a_catastrophic_pattern_takes_no_time(session: SparkSession, tmp_path: Path) -> None:
    """Java would need forever: in the rows, and in constants that are evaluated while Spark plans."""
    logs = Logs(tmp_path / "data")
    logs.write([json.dumps({"device": "a" * 500}).encode()], "s", 0)
    given = {
        "device RLIKE '(a+)+b'": False,
        "device LIKE '%a%a%a%a%a%a%b'": False,
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' RLIKE '(a+)+b'": False,
        "regexp_replace(device, '(a+)+b', '') = device": True,
        "regexp_extract(device, '(a+)+b', 0)": "",
    }
    assert rows_of(session, logs, list(given)) == [[each] for each in given.values()]


@pytest.mark.parametrize(
    "schema", ["a " + "ARRAY<" * 3000 + "INT" + ">" * 3000, ", ".join(f"column{n} STRING" for n in range(5000))]
)
def test_a_schema_that_is_too_much_is_refused(session: SparkSession, schema: str) -> None:
    assert "the schema is too large" in refused(session, "SELECT _key AS k FROM s", schema)


@pytest.mark.parametrize(
    "ddl", ["a INT DEFAULT reflect('java.lang.System', 'exit', 1)", "a INT GENERATED ALWAYS AS (1)", "a INT) x"]
)
def test_a_schema_is_types_and_nothing_else(session: SparkSession, ddl: str) -> None:
    assert "does not parse" in refused(session, "SELECT _key AS k FROM s", ddl)


def test_what_a_query_may_give_decides_how_many_rows_make_a_batch(session: SparkSession) -> None:
    large = check(session, "SELECT repeat(_value, 16) x FROM s").bound
    small = check(session, "SELECT upper(_value) x, _key AS k FROM s").bound
    assert (large.grows, small.grows) == (16, 1)
    tick = Tick(1, [Part("s", 0, 0, 100, [("", 0, 100 << 20, 0, 100, "", "", ())], [0])])
    rows = {}
    for name, bounds in {"small": [small], "large": [large], "two": [large, large]}.items():
        rows[name] = with_room(tick, bounds, 1 << 30, 4096).rows
    assert rows == {"small": 16, "large": 2, "two": 1}


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"device = 'd{n}'" for n in range(100)),
        " + ".join(["length(device)"] * 50),
        "CASE " + " ".join(f"WHEN device = 'd{n}' THEN upper(device)" for n in range(50)) + " ELSE device END",
        "concat_ws(',', " + ", ".join(["device", "CAST(temp AS STRING)"] * 8) + ")",
        "transform(tags, x -> length(x))",
        "coalesce(" + ", ".join(["device"] * 40) + ")",
    ],
    ids=lambda text: text[:20],
)
def test_a_long_query_that_makes_little_is_none_that_makes_much(session: SparkSession, text: str) -> None:
    assert check(session, f"SELECT {text} AS x FROM s", SCHEMA).bound.grows <= 16
