"""The plan of a query: which part of a topic it reads and which columns result, known before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.parts import PART_FIELDS, no_column
from barnabas.streams.query.plain import typed_columns
from barnabas.streams.select import aggregates, syntax
from barnabas.streams.select.aggregates import Aggregate, aggregate
from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.names import name_of
from barnabas.streams.select.syntax import Call, Column, Expression, Literal, Order, Query, conjuncts
from barnabas.streams.select.typed import Typed, is_known, typed
from barnabas.streams.source.where import Condition, decidable
from barnabas.wire.queries.plan import Values

#: The most rows that are kept sorted in memory.
MOST_SORTED = 100_000
#: Words that are functions unless a column has their name.
_CONSTANTS = frozenset(
    """
    current_catalog current_database current_date current_path current_schema current_time current_timestamp
    current_user grouping__id localtime localtimestamp session_user user
    """.split()  # noqa: SIM905
)
_COMPARED = {
    "=": "EqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Output(NamedTuple):
    """A column of the result. `column` is set if it is one of the topic's columns, unchanged."""

    name: str
    of: Typed
    column: str = ""


class Sorted(NamedTuple):
    """A part of ORDER BY."""

    of: Typed
    descending: bool
    nulls_first: bool


class Grouped(NamedTuple):
    """What rows are grouped by, and the results for each group. The columns are g0, g1, ... and a0, a1, ..."""

    by: tuple[Typed, ...]
    aggregates: tuple[Aggregate, ...]
    having: Typed | None


@dataclass(frozen=True)
class Planned:
    """A query that is answered here. Tests of `_partition`, `_offset` and `_timestamp` are in `conditions`."""

    source: str
    names: frozenset[str]  # the columns to read
    conditions: tuple[Condition, ...]  # on columns as they are read
    since: int | None  # no row has an earlier time, in microseconds
    tests: tuple[Typed, ...]  # on the rows that are left
    grouped: Grouped | None
    outputs: tuple[Output, ...]
    order: tuple[Sorted, ...]
    limit: int | None
    offset: int
    is_tail: bool  # whether the newest offsets of each partition are enough

    @property
    def schema(self) -> pa.Schema:
        """The names and types of the results' columns."""
        return pa.schema([pa.field(each.name, each.of.kind) for each in self.outputs])


def columns_of(values: Values) -> pa.Schema:
    """A topic's columns as a SELECT sees them. Raises NeedsSpark for a schema that only Spark can parse."""
    found = typed_columns(values)
    if found is None:
        raise NeedsSpark("the schema of the topic has names or types that are Spark's")
    hidden = {"_value"} if found.names else set()
    return pa.schema([*found, *(field for field in PART_FIELDS if field.name not in hidden)])


def plan(query: Query, columns: pa.Schema) -> Planned:
    """The query over a topic with these columns. Raises NeedsSpark; QueryError for a missing column."""
    return _Planning(query, columns).planned()


class _Planning:
    """Plans one query. All methods raise NeedsSpark."""

    def __init__(self, query: Query, columns: pa.Schema) -> None:
        self._query, self._columns = query, columns
        self._own = {field.name.lower(): field for field in columns}
        self._items = list(self._expanded())
        self._groups: list[Expression] = []
        self._calls: dict[Call, Aggregate] = {}

    def planned(self) -> Planned:
        """The planned query. Also raises QueryError."""
        query = self._query
        if not query.source and any(_named([each]) or _has_aggregate(each) for _, each in self._items):
            raise NeedsSpark("it has no FROM")
        self._check_columns()
        named, since, tests = self._conditions()
        is_grouped = bool(query.groups or query.is_distinct or query.having) or any(
            _has_aggregate(expression) for _, expression in self._items
        )
        if not is_grouped:
            outputs = tuple(self._output(name, expression) for name, expression in self._items)
            order = self._order(self._of_row)
            return self._made(named, since, tests, None, outputs, order)
        if query.is_distinct and (query.groups or any(_has_aggregate(each) for _, each in self._items)):
            raise NeedsSpark("it has DISTINCT of groups")
        if query.having and not query.groups:
            raise NeedsSpark("it has HAVING without GROUP BY")
        groups = [each for _, each in self._items] if query.is_distinct else [self._group(g) for g in query.groups]
        self._groups = [self._canonical(each) for each in groups]
        by = tuple(typed(each, self._of_row) for each in groups)
        if any(not is_known(each.kind) for each in by):
            raise NeedsSpark("it groups by a type of Spark's")
        if any(each.constant is not None for each in by):
            raise NeedsSpark("it groups by a literal")
        outputs = tuple(Output(name, typed(each, self._of_group)) for name, each in self._items)
        having = None
        if query.having is not None:
            having = typed(self._with_outputs(query.having, is_order=False), self._of_group)
            if having.kind != pa.bool_():
                raise NeedsSpark("its HAVING is not a condition")
        order = self._order(self._of_group)
        grouped = Grouped(by, tuple(self._calls.values()), having)
        return self._made(named, since, tests, grouped, outputs, order)

    def _made(
        self,
        conditions: tuple[Condition, ...],
        since: int | None,
        tests: tuple[Typed, ...],
        grouped: Grouped | None,
        outputs: tuple[Output, ...],
        order: tuple[Sorted, ...],
    ) -> Planned:
        query = self._query
        if any(pa.types.is_decimal(each.of.kind) and each.of.constant is not None for each in outputs):
            raise NeedsSpark("a number with a fraction is a DECIMAL")
        if any(pa.types.is_null(each.of.kind) for each in outputs):
            raise NeedsSpark("a column has no type")
        needed = [*tests]
        if grouped is not None:
            needed += [*grouped.by, *(each.of for each in grouped.aggregates if each.of is not None)]
        else:
            needed += [*(each.of for each in outputs), *(each.of for each in order)]
        names = frozenset[str]().union(*(each.columns for each in needed), _columns_of(conditions))
        is_tail = (
            grouped is None
            and len(query.order) == 1
            and query.order[0].descending
            and order[0].of.columns == {"_offset"}
            and self._canonical(self._with_outputs(query.order[0].expression)) == Column("_offset")
        )
        return Planned(
            query.source,
            names,
            conditions,
            since,
            tests,
            grouped,
            outputs,
            order,
            query.limit,
            query.offset,
            is_tail,
        )

    # --- columns ------------------------------------------------------------------------------------------------------

    def _expanded(self) -> list[tuple[str, Expression]]:
        """The names and expressions of the result, with * expanded to its columns."""
        found: list[tuple[str, Expression]] = []
        for item in self._query.items:
            if item.expression is None:
                if not self._query.source:
                    raise NeedsSpark("it has no FROM")
                found += [(name, Column(name)) for name in self._columns.names]
            else:
                found.append((item.name or name_of(item.expression), item.expression))
        return found

    def _check_columns(self) -> None:
        """Raises QueryError for a name that is certainly not a column, like the statements of query topics do."""
        aliases = {name.lower() for name, _ in self._items}
        query = self._query
        own = [each.expression for each in query.items] + [query.condition]
        late = [*query.groups, query.having, *(each.expression for each in query.order)]
        for column in [*_named(own), *(c for c in _named(late) if c.name.lower() not in aliases)]:
            if not column.of and column.name.lower() not in self._own and column.name.lower() not in _CONSTANTS:
                raise QueryError(no_column(f"`{column.name}`", self._columns.names, parts=()))

    def _field(self, column: Column) -> pa.Field:
        if column.of and column.of.lower() != self._query.alias.lower():
            raise NeedsSpark(f"{column.of}.{column.name} is a column of something else, or a part of one")
        if column.name.lower() not in self._own:
            raise NeedsSpark(f"{column.name} is not a column that is known without Spark")
        return self._own[column.name.lower()]

    def _of_row(self, expression: Expression) -> Typed | None:
        if not isinstance(expression, Column):
            return None
        field = self._field(expression)
        name = field.name
        return Typed(field.type, lambda rows: rows.values(name), frozenset({name}))

    def _output(self, name: str, expression: Expression) -> Output:
        column = self._field(expression).name if isinstance(expression, Column) else ""
        return Output(name, typed(expression, self._of_row), column)

    def _canonical(self, expression: Expression) -> Expression:
        """The expression with columns by their own names, so that identical expressions are equal."""
        if isinstance(expression, Column):
            return Column(self._field(expression).name)
        if isinstance(expression, Call):
            name = "avg" if expression.name == "mean" else expression.name
            return Call(name, tuple(self._canonical(each) for each in expression.args), expression.is_distinct)
        return expression

    # --- WHERE --------------------------------------------------------------------------------------------------------

    def _conditions(self) -> tuple[tuple[Condition, ...], int | None, tuple[Typed, ...]]:
        """The conditions that can be checked as columns are read, the earliest time, and the rest."""
        simple: list[Condition] = []
        tests: list[Typed] = []
        since: int | None = None
        for part in conjuncts(self._query.condition):
            found = typed(part, self._of_row)  # in any case, this checks its types
            if found.kind != pa.bool_():
                raise NeedsSpark("its WHERE is not a condition")
            one = self._simple(part)
            if one is not None:
                simple.append(one)
            else:
                tests.append(found)
                begin = self._since(part)
                since = begin if since is None or begin is None else max(since, begin)
        return tuple(simple), since, tuple(tests)

    def _simple(self, part: Expression) -> Condition | None:
        """A comparison of a column with a literal of its own type."""
        if not isinstance(part, Call) or not part.args or not isinstance(part.args[0], Column | Literal):
            return None
        if part.name in ("is null", "is not null") and isinstance(part.args[0], Column):
            return Condition("IsNull" if part.name == "is null" else "IsNotNull", self._field(part.args[0]).name)
        sign, args = part.name, part.args
        if sign in _COMPARED and isinstance(args[0], Literal) and isinstance(args[1], Column):
            sign, args = _FLIPPED[sign], (args[1], args[0])
        if not isinstance(args[0], Column) or not all(isinstance(each, Literal) for each in args[1:]):
            return None
        field = self._field(args[0])
        values = tuple(_fitting(each, field.type) for each in args[1:] if isinstance(each, Literal))
        if None in values:
            return None
        if sign in _COMPARED:
            found = Condition(_COMPARED[sign], field.name, values[0])
        elif sign == "in":
            found = Condition("In", field.name, values)
        else:
            return None
        is_ordered_truth = pa.types.is_boolean(field.type) and sign not in ("=", "in")
        return found if decidable((found,), self._columns) and not is_ordered_truth else None

    def _since(self, part: Expression) -> int | None:
        """The earliest time that satisfies a condition on `_timestamp`."""
        if not isinstance(part, Call) or part.name not in (">", ">=", "=", "between"):
            return None
        column, *others = part.args
        if not isinstance(column, Column) or self._field(column).name != "_timestamp":
            return None
        moment = others[0]
        if isinstance(moment, Literal):
            moment = Call("timestamp literal", (moment,))
        found = typed(moment, self._of_row).constant
        return found if isinstance(found, int) else None

    # --- groups -------------------------------------------------------------------------------------------------------

    def _group(self, expression: Expression) -> Expression:
        """A part of GROUP BY: a column of the topic, the name or number of an item, or an expression."""
        if isinstance(expression, Literal):
            expression = self._numbered(expression)
        elif isinstance(expression, Column) and not expression.of and expression.name.lower() not in self._own:
            expression = self._by_name(expression.name) or expression
        if _has_aggregate(expression):
            raise NeedsSpark("it groups by an aggregate")
        return expression

    def _of_group(self, expression: Expression) -> Typed | None:
        if isinstance(expression, Literal):
            return None
        canonical = self._canonical(expression)
        assert not isinstance(canonical, Literal)
        if canonical in self._groups:
            place = self._groups.index(canonical)
            return _kept(f"g{place}", typed(canonical, self._of_row).kind)
        if isinstance(canonical, Column):
            raise NeedsSpark(f"{canonical.name} is neither grouped by nor in an aggregate")
        if canonical.name not in aggregates.NAMES:
            return None
        if any(_has_aggregate(each) for each in canonical.args) or len(canonical.args) > 1:
            raise NeedsSpark(f"{canonical.name} is not of one expression")
        if canonical not in self._calls:
            of = typed(canonical.args[0], self._of_row) if canonical.args else None
            self._calls[canonical] = aggregate(canonical, of)
        return _kept(f"a{list(self._calls).index(canonical)}", self._calls[canonical].kind)

    # --- ORDER BY -----------------------------------------------------------------------------------------------------

    def _order(self, resolve: Any) -> tuple[Sorted, ...]:
        return tuple(self._sorted(each, resolve) for each in self._query.order)

    def _sorted(self, order: Order, resolve: Any) -> Sorted:
        of = typed(self._with_outputs(order.expression), resolve)
        if not is_known(of.kind):
            raise NeedsSpark(f"it sorts by {of.kind}")
        return Sorted(of, order.descending, order.nulls_first)

    def _with_outputs(self, expression: Expression, *, is_order: bool = True) -> Expression:
        """Replace names of the result by their expressions; in ORDER BY, also a number that stands alone."""
        if is_order and isinstance(expression, Literal):
            return self._numbered(expression)
        return self._substituted(expression, is_order, inside=False)

    def _substituted(self, expression: Expression, is_order: bool, inside: bool) -> Expression:
        if isinstance(expression, Call):
            within = inside or expression.name in aggregates.NAMES
            args = tuple(self._substituted(each, is_order, within) for each in expression.args)
            return Call(expression.name, args, expression.is_distinct)
        if not isinstance(expression, Column) or expression.of:
            return expression
        found = self._by_name(expression.name)
        if found is None:
            return expression
        is_own = expression.name.lower() in self._own
        if is_own and self._canonical(found) != self._canonical(expression) and (inside or not is_order):
            raise NeedsSpark(f"{expression.name} is a column of the topic and of the result")
        return found if not inside or not is_own else expression

    def _by_name(self, name: str) -> Expression | None:
        """The item with that name. Raises NeedsSpark if there are several."""
        found = [expression for given, expression in self._items if given.lower() == name.lower()]
        if len(found) > 1:
            raise NeedsSpark(f"the result has several columns {name}")
        return found[0] if found else None

    def _numbered(self, literal: Literal) -> Expression:
        if literal.kind != syntax.INT or not 1 <= int(literal.value) <= len(self._items):
            raise NeedsSpark("it groups or sorts by a literal")
        return self._items[int(literal.value) - 1][1]


def _kept(name: str, kind: pa.DataType) -> Typed:
    return Typed(kind, lambda rows: rows.values(name), frozenset({name}))


def _has_aggregate(expression: Expression) -> bool:
    return isinstance(expression, Call) and (
        expression.name in aggregates.NAMES or any(_has_aggregate(each) for each in expression.args)
    )


def _named(expressions: Sequence[Expression | None]) -> list[Column]:
    """All columns that are mentioned, in order."""
    found: list[Column] = []
    for each in expressions:
        if isinstance(each, Column):
            found.append(each)
        elif isinstance(each, Call):
            found += _named(each.args)
    return found


def _columns_of(conditions: Sequence[Condition]) -> frozenset[str]:
    return frozenset(each.column for each in conditions)


def _fitting(literal: Literal, kind: pa.DataType) -> bool | int | float | str | None:
    """A literal as a value of its column's type, if Spark's cast does not change it; otherwise None."""
    value = literal.value
    if isinstance(value, bool):
        return value if pa.types.is_boolean(kind) else None
    if isinstance(value, str):
        return value if pa.types.is_string(kind) else None
    if kind == pa.float64():
        return float(value)
    bits = kind.bit_width if pa.types.is_integer(kind) else 0
    fits = bits and isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1
    return value if fits else None
