"""Makes sure that a query only reads its source: its text is parsed and checked before Spark acts on it.

`spark.sql` runs commands as soon as it is called, so a client's text never reaches it. Spark's parser makes a tree of
the text and runs nothing; every node of that tree must be in `streams.query.functions`. Input that would overload the
parser itself (deep nesting, comments in comments) is counted in the text beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.streams.query.catalyst import is_collated, jvm_of, kind_of, parsed, seq, session_state
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.functions import EXPRESSIONS, FUNCTIONS, INSTEAD, PLANS, REGULAR, WITH_LAMBDA, no_function
from barnabas.streams.query.growth import MAX_ADDS, MAX_GROWS, Bound, Node, bound_of, together
from barnabas.streams.query.literals import changes, is_now
from barnabas.wire.streams.tokens import BRACKETED, COMMENT, STRING, SyntaxProblem, Token, lexed, string_value

#: Limits for a query's text (characters, nested brackets, nested types) and for its tree (levels, nodes).
MAX_CHARS, MAX_NESTING, MAX_TYPES = 16 << 10, 40, 100
MAX_DEPTH, MAX_NODES = 100, 1000
_LEAVES = ("Literal", "UnresolvedAttribute", "UnresolvedNamedLambdaVariable")
SHAPE = "a query topic is SELECT columns FROM topic [WHERE condition]"
SUBQUERIES = f"subqueries are not possible here: {SHAPE}"
COLLATIONS = "collations are not possible here: compare lower(column), or what else you want to be equal"
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")
_STREAM = "need a stream, which keeps state: each record of a query topic comes from one record"
#: Plans and expressions that are often asked for, and what to do instead.
REMEDIES = {
    "Aggregate": f"aggregates {_STREAM}",
    "AggregateExpression": f"aggregates {_STREAM}",
    "UnresolvedHaving": f"aggregates {_STREAM}",
    "Distinct": f"DISTINCT {_STREAM}",
    "Window": f"window functions {_STREAM}",
    "WindowExpression": f"window functions {_STREAM}",
    "WithWindowDefinition": f"window functions {_STREAM}",
    "Join": "a query topic reads one topic; join in a stream",
    "Sort": "a query topic keeps its source's order: leave ORDER BY out",
    "GlobalLimit": "a query topic has no end: leave LIMIT out",
    "LocalLimit": "a query topic has no end: leave LIMIT out",
    "Union": "a query topic reads one topic: make one for each source",
    "Generate": INSTEAD["explode"],
    "UnresolvedWith": f"WITH is not possible here: {SHAPE}",
    "UnresolvedSubqueryColumnAliases": SUBQUERIES,
    **dict.fromkeys(("ScalarSubquery", "InSubquery", "ListQuery", "Exists"), SUBQUERIES),
    "OneRowRelation": f"the query reads no topic: {SHAPE}",
    "UnresolvedInlineTable": f"the query reads no topic: {SHAPE}",
    "Collate": COLLATIONS,
    **dict.fromkeys(("NamedParameter", "PosParameter"), "there are no parameters here: write the value"),
    **dict.fromkeys(
        ("PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier"),
        "IDENTIFIER is not possible here: write the name, in backquotes if need be",
    ),
    "SubqueryProject": f"write it as one SELECT, without subqueries and columns made of others' aliases: {SHAPE}",
}


class ParsedQuery(NamedTuple):
    """A text that is one SELECT over one relation."""

    plan: Any
    source: str
    columns: frozenset[str]  # unqualified names
    select: list[Any]  # the select list as written
    bound: Bound  # of all that results from a record
    patterns: int  # expressions that match regular expressions


def parse_query(spark: SparkSession, text: str) -> ParsedQuery:
    """Parse a query. Raises QueryError if it is not a question about one relation, or may be too large."""
    check_text(text)
    plan = _parsed(spark, text)
    node, lists, conditions, relation = plan, None, [], None
    while relation is None:
        kind = kind_of(node)
        if kind not in PLANS or (lists is None and kind != "Project"):
            raise QueryError(REMEDIES.get(kind, f"{kind} is not possible here: {SHAPE}"))
        if kind == "Project":
            if lists is not None:
                raise QueryError(REMEDIES["SubqueryProject"])
            lists = list(seq(node.projectList()))
        elif kind == "Filter":
            conditions.append(node.condition())
        elif kind == "UnresolvedRelation":
            relation = node
            break
        node = node.child()
    if lists is None:
        raise QueryError(SHAPE)
    reader = _Reader(spark)
    results = [bound_of(reader.node(one)) for one in lists]
    for condition in conditions:
        bound_of(reader.node(condition))
    bound = together(results)
    if bound.grows > 4 * MAX_GROWS or bound.adds > 4 * MAX_ADDS:
        raise QueryError(
            f"the results of a record may have {bound.adds:,.0f} bytes and {bound.grows:,.0f} times its own: at most "
            f"{4 * MAX_ADDS:,} bytes and {4 * MAX_GROWS} times the record are possible"
        )
    return ParsedQuery(plan, _source(relation), frozenset(reader.columns), lists, bound, reader.patterns)


def check_text(text: str) -> None:
    """Raises QueryError for a text that Spark's parser must not see."""
    if len(text) > MAX_CHARS:
        raise QueryError(f"the query has {len(text)} characters: at most {MAX_CHARS} are possible")
    depth, before = 0, ""
    for token in _lexed(text):
        if token.kind == BRACKETED:
            raise QueryError("comments like /* this */ and hints are not possible here")
        if token.kind == STRING and before in _TIMES and is_now(string_value(token)):
            raise QueryError(changes(string_value(token)))
        depth += token.says("(", "[", "CASE") - token.says(")", "]", "END")
        if depth > MAX_NESTING:
            raise QueryError(f"the query is nested too deeply: at most {MAX_NESTING} brackets may stand in each other")
        before = token.text.upper()
    words = text.upper()
    if sum(words.count(kind) for kind in ("ARRAY<", "MAP<", "STRUCT<", "ARRAY <", "MAP <", "STRUCT <")) > MAX_TYPES:
        raise QueryError(f"the query names too many types: at most {MAX_TYPES} are possible")


def _lexed(text: str) -> Iterator[Token]:
    """The tokens of a text, and comments that may hold hints. Raises QueryError."""
    try:
        yield from (token for token in lexed(text) if token.kind != COMMENT)
    except SyntaxProblem as error:
        raise QueryError(str(error)) from None


def _parsed(spark: SparkSession, text: str) -> Any:
    try:
        return parsed(spark, text)
    except PySparkException as error:
        raise QueryError(first_line(error)) from None
    except Exception as error:  # the JVM's stack has overflowed
        if "StackOverflowError" not in str(error):
            raise
        raise QueryError("the query is nested too deeply") from None


def _source(relation: Any) -> str:
    options = relation.options()
    if options is not None and not options.isEmpty():  # Spark takes what follows a table for options of its reader
        raise QueryError("settings of a query topic stand before its query: CREATE TOPIC name WITH (...) AS SELECT ...")
    if relation.isStreaming():
        raise QueryError(f"STREAM is not possible here: {SHAPE}")
    parts = [str(part) for part in seq(relation.multipartIdentifier())]
    if len(parts) > 1:
        raise QueryError(f"write the topic's name in backquotes: `{'.'.join(parts)}`")
    return parts[0]


class _Reader:
    """Turns expressions of Spark's parser into nodes, as far as they are allowed."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm_of(spark)
        self._catalog = session_state(spark).catalog()
        self._identifier = self._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
        self._left = MAX_NODES
        self.columns: set[str] = set()
        self.patterns = 0

    def node(self, expression: Any, depth: int = 0, variables: frozenset[str] | None = None) -> Node:
        """The expression as a node, with all below it; in a lambda, `variables` are its own. Raises QueryError."""
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise QueryError(f"the query is too large: at most {MAX_DEPTH} levels and {MAX_NODES} parts are possible")
        kind = kind_of(expression)
        if kind not in EXPRESSIONS:
            raise QueryError(REMEDIES.get(kind, f"{kind} is not possible in a query topic"))
        found = Node(kind)
        if kind == "Literal":
            value = expression.value()
            found.value = value if value is None or isinstance(value, int | float) else value.toString()
        elif kind in ("UnresolvedAttribute", "UnresolvedNamedLambdaVariable"):  # in a lambda, all names are the latter
            parts = [str(part) for part in seq(expression.nameParts())]
            found.name = ".".join(parts)
            if variables is not None and parts[0] not in variables:
                raise QueryError(f"a lambda can use its own variables only, not the column {found.name}")
            if variables is None and len(parts) == 1:
                self.columns.add(found.name)
        elif kind == "UnresolvedFunction":
            found.name = self._function(expression)
            self.patterns += found.name.lower() in REGULAR
        elif kind.lower() in REGULAR:
            self.patterns += 1
        elif kind == "Cast" and is_collated(self._jvm, expression.dataType()):
            raise QueryError(COLLATIONS)
        elif kind == "LambdaFunction":
            if variables is not None:
                raise QueryError("a lambda in a lambda is not possible here")
            variables = frozenset(str(next(seq(argument.nameParts()))) for argument in seq(expression.arguments()))
        if kind not in _LEAVES:  # each call to the JVM takes time
            found.children = [self.node(child, depth + 1, variables) for child in seq(expression.children())]
        return found

    def _function(self, expression: Any) -> str:
        """The name of a function that may be called. The operator's own are those that Spark does not have."""
        parts = [str(part) for part in seq(expression.nameParts())]
        name = ".".join(parts)
        if len(parts) > 1:
            raise QueryError(f"the function {name} is not possible in a query topic: name functions without a catalog")
        plain = (
            not expression.isDistinct() and expression.filter().isEmpty() and not expression.ignoreNulls().isDefined()
        )
        if name.lower() in FUNCTIONS or self._catalog.isTemporaryFunction(self._identifier(name)):
            if not plain or not expression.orderingWithinGroup().isEmpty():
                raise QueryError(f"{name}: DISTINCT, FILTER, IGNORE NULLS and WITHIN GROUP are for aggregates")
            if name.lower() not in WITH_LAMBDA and any(
                kind_of(argument) == "LambdaFunction" for argument in seq(expression.arguments())
            ):
                raise QueryError(f"{name} takes no lambda here")
            return name
        if not self._catalog.functionExists(self._identifier(name)):
            raise QueryError(no_function(name))
        if str(self._catalog.lookupFunctionInfo(self._identifier(name)).getGroup()) == "agg_funcs":
            raise QueryError(REMEDIES["Aggregate"])
        why = INSTEAD.get(name.lower(), "only functions that touch nothing but their arguments are")
        raise QueryError(f"the function {name} is not possible in a query topic: {why}")


def first_line(error: PySparkException) -> str:
    """Spark's message, without the picture of the position that follows it."""
    text = (error.getMessage() or str(error)).strip()
    lines = [line.strip() for line in text.split("\n== SQL")[0].splitlines() if line.strip()]
    return " ".join(lines).split(" SQLSTATE:")[0]
