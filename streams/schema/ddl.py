"""Spark's schema texts (`device STRING, pos STRUCT<x: DOUBLE>`) and Arrow's types, for all types that values can
have.
"""

from __future__ import annotations

import re

import pyarrow as pa

from barnabas.streams.wal import WalError

_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_ALIASES = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_TEXTS = frozenset({"VARCHAR", "CHAR", "TEXT", "NVARCHAR", "CHARACTER", "CLOB"})
_SUPPORTED = ", ".join((*_TYPES, "DECIMAL(p,s)", "ARRAY<...>", "STRUCT<name: ...>"))
_MAX_PRECISION = 38
_MAX_DEPTH = 100
_TOKEN = re.compile(r"\s*([A-Za-z0-9_]+|`(?:[^`]|``)+`|[^\s])")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_ddl(ddl: str) -> list[tuple[str, str]]:
    """The names and types (in one spelling) of the columns in a schema text. Raises WalError if it is invalid.

    Only types are allowed to which values can be parsed; Spark's other types are refused.
    """
    return [(field.name, type_text(field.type)) for field in parse_ddl(ddl)]


def parse_ddl(ddl: str) -> pa.Schema:
    """The Arrow schema that Spark gives a data source for the schema text. Raises WalError like `check_ddl`."""
    parser = _Parser(ddl)
    fields = parser.fields(end="", depth=0)
    return pa.schema(fields)


def ddl_text(schema: pa.Schema) -> str:
    """The text of a schema."""
    return ", ".join(f"{_quoted(field.name)} {type_text(field.type)}" for field in schema)


def type_text(kind: pa.DataType) -> str:
    """The text of a type from `parse_ddl`."""
    if pa.types.is_list(kind):
        return f"ARRAY<{type_text(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "STRUCT<" + ", ".join(f"{_quoted(field.name)}: {type_text(field.type)}" for field in kind) + ">"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _NAMES[kind]


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """Recursive descent: `fields` and `type` call each other. The tokens end with an empty one."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens: list[str] = [*_TOKEN.findall(ddl), ""]
        self._at = 0

    def fields(self, end: str, depth: int) -> list[pa.Field]:
        """`name [:] type, ...` up to and including the token `end`."""
        found: list[pa.Field] = []
        names = set[str]()
        while not found or self._peek() == ",":
            if found:
                self._take()
            elif end and self._peek() == end:
                break
            name = self._name()
            if name.lower() in names:
                raise self._wrong(f"there are two columns {name}; Spark does not tell upper from lower case")
            names.add(name.lower())
            if self._peek() == ":":
                self._take()
            found.append(pa.field(name, self.type(depth)))
        self._expect(end)
        return found

    def type(self, depth: int) -> pa.DataType:
        """One type."""
        written = self._take()
        name = _ALIASES.get(written.upper(), written.upper())
        if depth > _MAX_DEPTH:
            raise self._wrong(f"types nest deeper than {_MAX_DEPTH}")
        if name in _TYPES:
            return _TYPES[name]
        if name == "DECIMAL":
            return self._decimal()
        if name == "ARRAY":
            self._expect("<")
            element = self.type(depth + 1)
            self._expect(">")
            return pa.list_(pa.field("element", element))
        if name == "STRUCT":
            self._expect("<")
            return pa.struct(self.fields(">", depth + 1))
        if not written:
            raise self._wrong("a type is missing at its end")
        if name in _TEXTS:
            raise self._wrong(f"{written} is not a type for values: write STRING, which has any length")
        raise self._wrong(f"{written} is not a type for values: use one of {_SUPPORTED}")

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._take()
            precision = self._number()
            if self._peek() == ",":
                self._take()
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise self._wrong(
                f"DECIMAL({precision},{scale}): 1 to {_MAX_PRECISION} digits, of which the scale is a part"
            )
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not token.isdigit():
            raise self._wrong(f"expected a number, found {token or 'its end'}")
        return int(token)

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`") and len(token) > 1:
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"[A-Za-z0-9_]+", token):
            raise self._wrong(f"expected the name of a column, found {token or 'its end'}; put other names in `...`")
        return token

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._peek()
        self._at += token != ""
        return token

    def _expect(self, wanted: str) -> None:
        token = self._take()
        if token != wanted:
            raise self._wrong(f"expected {wanted or 'a comma or its end'}, found {token or 'its end'}")

    def _wrong(self, why: str) -> WalError:
        return WalError(f"the schema {self._ddl!r} is not understood: {why}")
