"""From the text of a SELECT to what a query topic needs: source, condition, and the parts of the result records.

Spark's own parser and analyser do the work, so the SQL is Spark's and its errors are those that Spark users know. Only
SELECT ... FROM one topic WHERE ... is allowed: one source record gives at most one result, which keeps its offset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from barnabas.streams.doors import warn_shut
from barnabas.streams.encode.times import OBJECT
from barnabas.streams.query.catalyst import SHUT, column, companion, jvm_of, nodes, optimised_plan, seq, session_state
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.growth import Bound
from barnabas.streams.query.linear import Linear
from barnabas.streams.query.literals import Literals
from barnabas.streams.query.parse import REMEDIES, SHAPE, ParsedQuery, first_line, parse_query
from barnabas.streams.query.parts import END, PARTS, UNREADABLE, no_column, quoted
from barnabas.streams.query.pushdown import Least, least_of
from barnabas.streams.query.simple import Simple
from barnabas.streams.source.where import Condition
from barnabas.wire.streams.tokens import STRING, SyntaxProblem, string_value, tokens

#: The view that stands for all topics of a pattern.
ALL_TOPICS = "topics(...)"
#: The package of Spark's expressions, and those of them that no name may stand for.
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_NEVER = frozenset(
    """
    CallMethodViaReflection TryReflect AggregateExpression WindowExpression ScalarSubquery InSubquery ListQuery Exists
    CurrentUser CurrentDate CurrentTimestamp Now LocalTimestamp CurrentTime CurrentDatabase CurrentCatalog
    VariableReference
    """.split()  # noqa: SIM905
)
#: The end of the client's part of an analysed plan: `parse_query` allows one relation, which is our own view.
_SOURCE = ("SubqueryAlias", "View")


class Selected(NamedTuple):
    """A query over a frame: which rows it takes, and what it makes of each. Its columns are bound to the frame's."""

    condition: Column
    key: Column
    value: Column
    timestamp: Column
    names: frozenset[str]  # the frame's columns that the query needs
    value_format: str
    value_schema: str  # DDL, empty for raw values
    least: tuple[Condition, ...]  # necessary conditions for a row, as far as Spark can express them simply
    simple: Simple | None  # the whole query, if it consists only of columns and such conditions
    bound: Bound  # the limit of a result's size

    def facts(self, values: pa.Schema) -> Facts:
        """The facts about it, without Spark's columns; `values` are the typed columns of its source."""
        return Facts(self.names, self.value_format, self.value_schema, self.least, self.simple, self.bound, values)


def over_pattern(query: str) -> tuple[str, str | None]:
    """A query `FROM topics('PATTERN')` as one from a view of those topics, and the pattern; else the query and None."""
    try:
        found = tokens(query)
    except SyntaxProblem:  # the parser will say why
        return query, None
    for at in range(len(found) - 3):
        word, opening, text, closing = found[at : at + 4]
        if word.says("TOPICS") and opening.says("(") and text.kind == STRING and closing.says(")"):
            return f"{query[: word.start]}`{ALL_TOPICS}`{query[closing.end :]}", string_value(text)
    return query, None


def source_of(spark: SparkSession, query: str) -> str:
    """The topic that a query reads. Raises QueryError if it is not a question about one topic."""
    return parse_query(spark, query).source


class Resolved(NamedTuple):
    """A query over a frame, with resolved names and checked expressions: names, columns and expressions."""

    chosen: list[tuple[str, Column, Any]]
    condition: Column
    needed: set[str]
    bound: Bound
    of_condition: set[str]  # the columns that the condition needs


def select(spark: SparkSession, query: str, source: str, frame: DataFrame, values: StructType) -> Selected:
    """The query over `frame`, whose columns are those of `source_rows.row_schema`. Raises QueryError."""
    found = resolve(spark, query, source, frame, values)
    names = {name.lower(): name for name in frame.columns}
    results = frame.where(found.condition).select(*(chosen for _, chosen, _ in found.chosen))
    return selected(found, frame, values, _least(jvm_of(spark), results, names))


def resolve(spark: SparkSession, query: str, source: str, frame: DataFrame, values: StructType) -> Resolved:
    """The query over `frame`, with columns bound to it. Raises QueryError for anything forbidden."""
    asked = parse_query(spark, query)
    if asked.source != source:
        raise QueryError(f"the query reads {asked.source}, not {source}")
    names = {name.lower(): name for name in frame.columns}  # a query may write them in another case
    for name in sorted(asked.columns):
        if name.lower() not in names:  # Spark would take names like current_user for functions
            raise QueryError(no_column(f"`{name}`", values.names))
    frame.createOrReplaceTempView(f"`{source}`")
    project, conditions = _shape(_analysed(spark, asked, values))
    literals = Literals(spark)
    for expression in (*seq(project.projectList()), *conditions):
        _check_expression(expression)
        literals.check_times(expression)
        literals.check(expression)
    linear = Linear(spark)
    expressions = [linear.of(expression) for expression in seq(project.projectList())]
    conditions = [linear.of(one) for one in conditions]
    if linear.found < asked.patterns:
        raise QueryError("this Spark has other names for regular expressions: they are not possible in a query topic")
    jvm = jvm_of(spark)
    chosen = [(str(e.name()), column(jvm, e), e) for e in _without_hidden(asked, expressions, frame, values)]
    condition = F.lit(True)
    for one in conditions:
        condition = condition & column(jvm, one)
    of_condition = {name for one in conditions for name in references(one, names)}
    needed = of_condition.union(*(references(e, names) for _, _, e in chosen))
    return Resolved(chosen, condition, needed, asked.bound, of_condition)


def _analysed(spark: SparkSession, asked: ParsedQuery, values: StructType) -> Any:
    """The plan with resolved names. Nothing runs. Raises QueryError."""
    skip = companion(jvm_of(spark).org.apache.spark.sql.execution, "CommandExecutionMode").SKIP()
    try:
        execution = session_state(spark).executePlan(asked.plan, skip)
        execution.assertAnalyzed()
        return execution.analyzed()
    except PySparkException as error:
        if str(error.getCondition()).startswith("UNRESOLVED_COLUMN."):
            name = (error.getMessageParameters() or {}).get("objectName", "")
            raise QueryError(no_column(name, values.names)) from None
        raise QueryError(first_line(error)) from None


def _least(jvm: Any, results: DataFrame, names: Mapping[str, str]) -> Least:
    """The rows' necessary conditions, if this Spark reports them. Otherwise all rows go to it, which is slower."""
    try:
        return least_of(jvm, optimised_plan(results), names)
    except Py4JJavaError:  # the query is wrong
        raise
    except SHUT as error:
        warn_shut("how Spark tells conditions to a source", "queries look at every row in the JVM", error)
        return Least((), False)


def selected(found: Resolved, frame: DataFrame, values: StructType, least: Least) -> Selected:
    """Keys, values and timestamps from the chosen columns; the rest comes from the frame. Raises QueryError."""
    outputs, needed = _outputs(found.chosen), set(found.needed)
    if hidden := needed & {END, UNREADABLE}:
        raise QueryError(no_column(f"`{min(hidden)}`", values.names))
    names = {name.lower(): name for name in frame.columns}
    plain = {name: each for name, each in outputs.items() if name not in PARTS or name in _NEVER_SET}
    for name in ("_key", "_value", "_timestamp"):
        if name in outputs:
            _check_type(name, outputs[name][1])
    key = outputs["_key"][0] if "_key" in outputs else frame["_key"]
    timestamp = outputs["_timestamp"][0] if "_timestamp" in outputs else frame["_timestamp"]
    if "_value" in outputs and plain:
        raise QueryError(f"_value is the whole value: select either it or columns ({', '.join(plain)}), not both")
    if "_value" in outputs:
        value, kind, schema = outputs["_value"][0], "raw", ""
    elif plain:
        fields = StructType([StructField(name, _spark_type(e)) for name, (_, e) in plain.items()])
        kind, schema = "json", ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in fields.fields)
        struct = F.struct(*(each.alias(name) for name, (each, _) in plain.items()))
        value = F.to_json(struct, OBJECT)
    else:
        raise QueryError("the query selects no value: name at least one column, or _value")
    needed |= {"_headers"} | ({"_key"} - outputs.keys()) | ({"_timestamp"} - outputs.keys())
    simple = _simple(outputs, tuple(plain), least, names)
    return Selected(
        found.condition,
        key.cast("binary"),
        value.cast("binary"),
        timestamp,
        frozenset(needed),
        kind,
        schema,
        least.conditions,
        simple,
        found.bound,
    )


def _simple(
    outputs: dict[str, tuple[Column, Any]], plain: tuple[str, ...], least: Least, names: Mapping[str, str]
) -> Simple | None:
    """The query as one that computes nothing, if it is one."""
    if not least.all:
        return None
    columns = {}
    for name, (_, expression) in outputs.items():
        column = plain_column(expression, names)
        if column is None:
            return None
        columns[name] = column
    key, timestamp, value = (columns.get(part, part) for part in ("_key", "_timestamp", "_value"))
    return Simple(least.conditions, key, timestamp, "" if plain else value, tuple((n, columns[n]) for n in plain))


def plain_column(expression: Any, names: Mapping[str, str]) -> str | None:
    """The column that an expression is, under whatever name; None if it computes something."""
    if expression.getClass().getSimpleName() == "Alias":
        expression = expression.child()
    if expression.getClass().getSimpleName() != "AttributeReference":
        return None
    return _own(str(expression.name()), names)


def references(expression: Any, names: Mapping[str, str]) -> set[str]:
    """The columns that an expression needs; `names` are the frame's, by their lower-case names."""
    return {_own(str(attribute.name()), names) for attribute in seq(expression.references().toSeq())}


def _own(name: str, names: Mapping[str, str]) -> str:
    """The column's name in the frame."""
    return names.get(name.lower(), name)


_NEVER_SET = ("_topic", "_partition", "_offset")


def _outputs(chosen: list[tuple[str, Column, Any]]) -> dict[str, tuple[Column, Any]]:
    outputs: dict[str, tuple[Column, Any]] = {}
    for name, found, expression in chosen:
        if name in outputs:
            raise QueryError(f"two columns are named {name}: give one another name with AS")
        if name in (UNREADABLE, END):
            raise QueryError(f"{name} is reserved for the driver: it cannot be selected")
        outputs[name] = (found, expression)
    return outputs


def _check_type(name: str, expression: Any) -> None:
    kind = _spark_type(expression)
    fits = isinstance(kind, TimestampType) if name == "_timestamp" else isinstance(kind, BinaryType | StringType)
    if not fits:
        wanted = "a timestamp" if name == "_timestamp" else "a string or binary"
        raise QueryError(f"{name} must be {wanted}, not {kind.simpleString()}: cast it")


def _spark_type(expression: Any) -> Any:
    field = {"name": "", "type": json.loads(expression.dataType().json()), "nullable": True, "metadata": {}}
    return StructType.fromJson({"fields": [field]})[0].dataType


def _without_hidden(asked: ParsedQuery, expressions: list[Any], frame: DataFrame, values: StructType) -> list[Any]:
    """The select list with the users' meaning of `*`: the typed columns, or a topic's whole value if it has none."""
    shown = set(values.names) or {"_value"}
    found: list[Any] = []
    rest = iter(expressions)
    for item in asked.select:
        if item.getClass().getSimpleName() == "UnresolvedStar":
            found += [e for e in (next(rest) for _ in frame.columns) if str(e.name()) in shown]
        else:
            found.append(next(rest))
    return found


def _shape(analysed: Any) -> tuple[Any, list[Any]]:
    """The only projection of a plan, and its conditions. Raises QueryError for plans of another shape."""
    project: Any = None
    conditions: list[Any] = []
    node = analysed
    while True:
        name = str(node.nodeName())
        if name == "Project" and project is None and not conditions:
            project = node
        elif name == "Filter" and project is not None:
            conditions.append(node.condition())
        elif name in _SOURCE:
            break
        else:
            raise QueryError(
                REMEDIES.get("SubqueryProject" if name == "Project" else name, f"{name} is not possible: {SHAPE}")
            )
        (node,) = seq(node.children()) if node.children().length() == 1 else (None,)
        if node is None:
            raise QueryError(REMEDIES.get(name, SHAPE))
    if project is None:
        raise QueryError(SHAPE)
    return project, conditions


def _check_expression(expression: Any) -> None:
    """Raises QueryError for anything forbidden in an analysed expression, whatever name it was called by."""
    if not expression.deterministic():
        raise QueryError("a result must be the same each time it is made: random and changing values are not possible")
    for one in nodes(expression):
        package, _, kind = str(one.getClass().getName()).rpartition(".")
        if not package.startswith(_EXPRESSIONS) or kind in _NEVER:
            raise QueryError(REMEDIES.get(kind, f"{kind} is not possible in a query topic"))
