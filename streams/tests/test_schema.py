"""Schema texts, and schemas inferred from a topic's JSON, without a JVM."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.config import LogConfig
from barnabas.streams.schema import check_ddl, infer_json, parse_ddl
from barnabas.streams.schema.ddl import _TYPES, ddl_text
from barnabas.streams.source.json_values import parse_json
from barnabas.streams.tests.support import Logs
from barnabas.streams.wal import WalError


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "data")


names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=6)
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda scale: pa.decimal128(p, scale)))


def structs(kinds: st.SearchStrategy, min_size: int = 0) -> st.SearchStrategy:
    fields = st.lists(st.tuples(names, kinds), min_size=min_size, max_size=4, unique_by=lambda one: one[0].lower())
    return fields.map(pa.struct)


def nested(leaves: st.SearchStrategy, min_size: int = 0) -> st.SearchStrategy:
    return st.recursive(
        leaves,
        lambda kinds: kinds.map(lambda kind: pa.list_(pa.field("element", kind))) | structs(kinds, min_size),
        max_leaves=6,
    )


@given(structs(nested(st.sampled_from(list(_TYPES.values())) | decimals), min_size=1))
@settings(max_examples=100, deadline=None)
def test_a_schema_written_as_text_is_read_as_itself(struct: pa.StructType) -> None:
    schema = pa.schema(list(struct))
    assert parse_ddl(ddl_text(schema)) == schema


@given(st.text(alphabet="aA1_ ,:<>()`array struct int", max_size=30))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    try:
        columns = check_ddl(text)
    except WalError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most texts are refused
        return
    assert check_ddl(", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns)) == columns


@pytest.mark.parametrize(
    ("ddl", "columns"),
    [
        ("device string, temp double", [("device", "STRING"), ("temp", "DOUBLE")]),
        ("a LONG,b\nShort", [("a", "BIGINT"), ("b", "SMALLINT")]),
        ("`a``b c` decimal, d numeric(5,2)", [("a`b c", "DECIMAL(10,0)"), ("d", "DECIMAL(5,2)")]),
        ("s: struct<x: real, `y z` array<date>>", [("s", "STRUCT<x: FLOAT, `y z`: ARRAY<DATE>>")]),
        ("array array<array<binary>>, 1st timestamp", [("array", "ARRAY<ARRAY<BINARY>>"), ("1st", "TIMESTAMP")]),
    ],
)
def test_schema_texts(ddl: str, columns: list[tuple[str, str]]) -> None:
    assert check_ddl(ddl) == columns


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("", "expected the name of a column, found its end"),
        ("a", "a type is missing at its end"),
        ("a int,", "expected the name of a column, found its end"),
        ("a int b int", "expected a comma or its end, found b"),
        ("a int NOT NULL", "expected a comma or its end, found NOT"),
        ("a map<string, int>", "map is not a type for values: use one of BOOLEAN"),
        ("a varchar(3)", "varchar is not a type for values"),
        ("a array", "expected <, found its end"),
        ("a struct<x int", "expected >, found its end"),
        ("a decimal(39)", r"DECIMAL\(39,0\): 1 to 38 digits"),
        ("a decimal(x)", "expected a number, found x"),
        ("a int, A string", "two columns A"),
        ("a-b int", "- is not a type for values"),
        ("a " + "array<" * 200, "nest deeper than 100"),
    ],
)
def test_texts_that_are_no_schema_are_refused(ddl: str, why: str) -> None:
    with pytest.raises(WalError, match=why):
        check_ddl(ddl)


def inferred(logs: Logs, *values: Any) -> str:
    logs.write([json.dumps(value).encode() for value in values])
    return infer_json(logs.log_dir(), "t")


@pytest.mark.parametrize(
    ("values", "ddl"),
    [
        (
            [{"device": "a", "temp": 1, "tags": ["x"], "pos": {"x": 1.5}}, {"device": None, "temp": 2.5}],
            "device STRING, temp DOUBLE, tags ARRAY<STRING>, pos STRUCT<x: DOUBLE>",
        ),
        ([{"n": 2**62}, {"n": -1}], "n BIGINT"),
        ([{"n": 2**63}], "n DOUBLE"),
        ([{"b": True}, {"b": None}], "b BOOLEAN"),
        ([{"a": None, "b": []}], "a STRING, b ARRAY<STRING>"),
        ([{"a": 1, "b": [1]}, {"a": "x", "b": {"c": 1}}, {"a": True}], "a STRING, b STRING"),
        ([{"a": [1, None, 2.5, [3]]}], "a ARRAY<STRING>"),
        ([{"p": {"x": 1}}, {"p": {"y": [{"z": "s"}]}}], "p STRUCT<x: BIGINT, y: ARRAY<STRUCT<z: STRING>>>"),
        ([{"at": "2024-02-29T12:00:00Z"}], "at STRING"),
        ([{"a b": 1, "c`d": 2, "1": 3, "é": 4}], "`a b` BIGINT, `c``d` BIGINT, `1` BIGINT, `é` BIGINT"),
        ([{"a": 1, "_offset": 5, "_KEY": 1, "_corrupt_record": "x", "": 1, "e": {}, "f": [{}]}], "a BIGINT"),
        ([{"Id": 1, "id": "x"}], "Id BIGINT"),
    ],
)
def test_inferred_schemas(logs: Logs, values: list[Any], ddl: str) -> None:
    assert inferred(logs, *values) == ddl


def test_what_is_no_object_is_passed_over(tmp_path: Path) -> None:
    logs = Logs(tmp_path, LogConfig())
    deep = b'{"a":' + b"[" * 60 + b"]" * 60 + b"}"
    logs.write([b"", b"[1]", None, b"\xff{", b"[" * 100_000, deep, b'{"\\ud800":1}', b'{"a":1}', b"3"])
    assert infer_json(logs.log_dir(), "t") == "a BIGINT"


def test_the_sample_is_of_the_oldest_and_the_newest_of_every_partition(logs: Logs) -> None:
    for partition in range(3):
        values = [b'{"p%d_%d":1}' % (partition, n) for n in range(20)]
        logs.write(values, partition=partition)
    logs.vnode(partition=3)
    expected = [f"p{partition}_{n}" for partition in range(3) for n in (0, 1, 18, 19)]
    assert [name for name, _ in check_ddl(infer_json(logs.log_dir(), "t", sample=12))] == expected


def test_a_topic_without_objects_is_refused_with_the_remedy(logs: Logs) -> None:
    logs.vnode()
    with pytest.raises(WalError, match="the topic t has no values to infer a schema from: write some first"):
        infer_json(logs.log_dir(), "t")
    logs.write([b"{}"])
    with pytest.raises(WalError, match="has values without fields: read its column value"):
        infer_json(logs.log_dir(), "t")
    logs.write([b"plain"], "plain")
    with pytest.raises(WalError, match="has values that are no JSON objects: read its column value"):
        infer_json(logs.log_dir(), "plain")
    with pytest.raises(WalError, match="there is no topic other"):
        infer_json(logs.log_dir(), "other")


def calls_to_parse(columns: int) -> int:
    """The number of calls to C functions, where the work is."""
    count = 0

    def counted(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "c_call"

    ddl = ", ".join(f"c{number} INT" for number in range(columns))
    sys.setprofile(counted)
    try:
        parse_ddl(ddl)
    finally:
        sys.setprofile(None)
    return count


def test_twice_as_many_columns_are_twice_the_work() -> None:
    """A schema comes from a client: searching all columns for each one took seconds for some thousand columns."""
    assert calls_to_parse(400) < 3 * calls_to_parse(200)


scalars = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    pa.bool_(): st.booleans(),
}


def values_of(kind: pa.DataType) -> st.SearchStrategy:
    """JSON values of a type, with nulls anywhere and missing fields."""
    if pa.types.is_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({}, optional={field.name: values_of(field.type) for field in kind})
    return st.none() | scalars[kind]


@given(structs(nested(st.sampled_from(list(scalars)), min_size=1), min_size=1), st.data())
@settings(max_examples=60, deadline=None)
def test_what_a_schema_is_inferred_from_fits_it(
    tmp_path_factory: pytest.TempPathFactory, struct: pa.StructType, data: st.DataObject
) -> None:
    first = data.draw(st.fixed_dictionaries({field.name: values_of(field.type) for field in struct}))
    others = data.draw(st.lists(values_of(struct), max_size=5))
    values = [json.dumps(value).encode() for value in (first, *others)]
    logs = Logs(tmp_path_factory.mktemp("infer"), LogConfig())  # its segments hold values of any size
    logs.write(values)
    try:
        schema = parse_ddl(infer_json(logs.log_dir(), "t"))
    except WalError as error:
        assert "without fields" in str(error)  # noqa: PT017 - all fields may be empty objects
        return
    _, bad = parse_json(pa.array(values, pa.binary()), schema)
    assert [values[number] for number in bad if values[number] != b"null"] == []
