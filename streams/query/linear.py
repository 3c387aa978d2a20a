"""The regular expressions of a query run on an engine that does not backtrack.

Spark's RLIKE, LIKE, regexp_extract and regexp_replace use Java's regular expressions: `(a+)+b` over 40 letters takes
longer than anybody waits, and nothing interrupts it. RE2/J comes with Spark (Hadoop uses it) and takes time in
proportion to text times pattern, so each matching expression becomes a call of RE2/J's `Matcher`. Patterns must be
literals: each is checked here first and compiled once, so a pattern that RE2 cannot handle is refused when the query is
made.

A LIKE that only looks for a prefix, a suffix or a substring stays Spark's: it needs no regular expression.
"""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from barnabas.streams.query.catalyst import companion, jvm_of, kind_of, seq
from barnabas.streams.query.errors import QueryError
from barnabas.wire.patterns import PatternError, pattern

#: The most instructions in all patterns of a query: each is a pass over the record.
MAX_PROGRAMS = 1000
_RE2J = "org.apache.hadoop.shaded.com.google.re2j"
_PLAIN_LIKE = re.compile(r"%?[^%_\\]*%?|[^%_\\]+%[^%_\\]+")
#: The part of Java's syntax that cannot backtrack: characters and their classes, of which the last may be repeated.
_PLAIN_SPLIT = pattern(r"(?s)(?:[^\\.\[\]{}()*+?^$|&]|\\[^A-Za-z0-9]|\\[dswDSWtn]|\.|\[\^?[^\\\[\]^&]+\])*\+?")


class Linear:
    """Makes the expressions of one query linear."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm_of(spark)
        self._left = MAX_PROGRAMS
        #: How many expressions with regular expressions were found.
        self.found = 0

    def of(self, expression: Any) -> Any:
        """The analysed expression, with its regular expressions replaced by linear ones. Raises QueryError."""
        kind = kind_of(expression)
        if kind in ("Literal", "AttributeReference"):
            return expression
        children = list(seq(expression.children()))
        fresh = [self.of(child) for child in children]
        if any(new is not old for new, old in zip(fresh, children, strict=True)):
            expression = expression.withNewChildren(self._seq(fresh))
        if kind in ("RLike", "Like", "ILike", "RegExpReplace", "RegExpExtract", "StringSplit"):
            self.found += 1
            return getattr(self, f"_{kind.lower()}")(expression, *fresh)
        return expression

    def _rlike(self, _: Any, subject: Any, wanted: Any) -> Any:
        return self._found(subject, self._compiled("rlike", _literal("rlike", wanted)))

    def _like(self, expression: Any, subject: Any, wanted: Any) -> Any:
        text = _literal("like", wanted)
        if _PLAIN_LIKE.fullmatch(text) and "__" not in text:
            return expression
        return self._found(subject, self._compiled("like", _like_pattern(text, str(expression.escapeChar()), "(?s)")))

    def _ilike(self, expression: Any, subject: Any, wanted: Any) -> Any:
        text = _literal("ilike", wanted)
        return self._found(subject, self._compiled("ilike", _like_pattern(text, str(expression.escapeChar()), "(?is)")))

    def _regexpreplace(self, _: Any, subject: Any, wanted: Any, by: Any, at: Any = None) -> Any:
        name = "regexp_replace"
        compiled, text = self._compiled(name, _literal(name, wanted)), _literal(name, by)
        if at is not None and _literal(name, at) != "1":
            raise QueryError(f"{name}: it begins at the first character")
        for found in re.finditer(r"\\.|\$(\d*)", text):
            if found[0][0] == "$" and (not found[1] or int(found[1]) > compiled.groupCount()):
                raise QueryError(f"{name}: {text!r} names a group that the pattern does not have")
        return self._text(
            self._call(self._matcher(subject, compiled), "replaceAll", self._string_type(), self._java(by))
        )

    def _regexpextract(self, _: Any, subject: Any, wanted: Any, group: Any = None) -> Any:
        name = "regexp_extract"
        text, number = _literal(name, wanted), "1" if group is None else _literal(name, group)
        compiled = self._compiled(name, text)
        if not number.isdigit() or int(number) > compiled.groupCount():
            raise QueryError(f"{name}: {text!r} has no group {number}")
        around = self._compiled(name, rf"\A[\s\S]*?({text})[\s\S]*\z")
        replacement = self._literal(f"${int(number) + 1}", self._string_type())
        part = self._text(self._call(self._matcher(subject, around), "replaceFirst", self._string_type(), replacement))
        empty = self._text(self._literal("", self._string_type()))
        return self._expressions.If(self._found(subject, compiled), part, empty)

    def _stringsplit(self, expression: Any, subject: Any, wanted: Any, *_: Any) -> Any:
        text = _literal("split", wanted)
        if not _PLAIN_SPLIT.matches(text):
            raise QueryError(f"split: {text!r} must be plain characters and classes, the last one perhaps with +")
        return expression

    # --- what Spark calls ---------------------------------------------------------------------------------------------

    @property
    def _expressions(self) -> Any:
        return self._jvm.org.apache.spark.sql.catalyst.expressions

    def _seq(self, parts: list[Any]) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(parts)

    def _type(self, value: Any) -> Any:
        return self._jvm.org.apache.spark.sql.types.ObjectType(value)

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(
            name, True, self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        )

    def _string_type(self) -> Any:
        return self._type(self._class("java.lang.String"))

    def _literal(self, value: Any, kind: Any) -> Any:
        return self._expressions.Literal(value, kind)

    def _compiled(self, name: str, text: str) -> Any:
        """A compiled RE2/J pattern. Raises QueryError."""
        try:
            found = pattern(text)
        except PatternError as error:
            raise QueryError(f"{name}: {error}") from None
        self._left -= found.size
        if self._left < 0:
            raise QueryError(
                f"the query's regular expressions are too large: at most {MAX_PROGRAMS} instructions are possible"
            )
        try:
            return _as_it_travels(self._jvm, self._jvm.org.apache.hadoop.shaded.com.google.re2j.Pattern.compile(text))
        except TypeError:  # Py4J takes a missing class for a package
            raise QueryError(f"{name}: this Spark comes without RE2/J: regular expressions are not possible") from None
        except Py4JJavaError as error:
            reason = str(error.java_exception.getMessage())
            raise QueryError(f"{name}: {text!r} is not a regular expression: {' '.join(reason.split())}") from None

    def _call(self, target: Any, name: str, kind: Any, *arguments: Any) -> Any:
        nothing = self._seq([])
        return self._expressions.objects.Invoke(
            target, name, kind, self._seq(list(arguments)), nothing, True, True, True
        )

    def _java(self, text: Any) -> Any:
        return self._call(text, "toString", self._string_type())

    def _text(self, java: Any) -> Any:
        kind = companion(self._jvm.org.apache.spark.sql.types, "StringType")
        none = companion(self._jvm.scala, "None")
        utf8 = self._class("org.apache.spark.unsafe.types.UTF8String")
        return self._expressions.objects.StaticInvoke(
            utf8, kind, "fromString", self._seq([java]), self._seq([]), True, True, True, none
        )

    def _matcher(self, subject: Any, compiled: Any) -> Any:
        """A `Matcher` over a text."""
        target = self._literal(compiled, self._type(compiled.getClass()))
        return self._call(target, "matcher", self._type(self._class(f"{_RE2J}.Matcher")), self._java(subject))

    def _found(self, subject: Any, compiled: Any) -> Any:
        """Whether the pattern is found in a text."""
        kind = companion(self._jvm.org.apache.spark.sql.types, "BooleanType")
        return self._call(self._matcher(subject, compiled), "find", kind)


def _as_it_travels(jvm: Any, compiled: Any) -> Any:
    """The pattern in a form that reaches the tasks unchanged.

    RE2/J 1.1 compiles it again there, without the flags of Perl's syntax. So they are set beforehand.
    """
    clone = jvm.org.apache.commons.lang3.SerializationUtils.clone
    try:
        clone(jvm.org.apache.hadoop.shaded.com.google.re2j.Pattern.compile(r"\d"))
    except Py4JJavaError:
        loader = compiled.getClass().getClassLoader()
        perl = jvm.java.lang.Class.forName(f"{_RE2J}.RE2", True, loader).getDeclaredField("PERL")
        perl.setAccessible(True)
        flags = compiled.getClass().getDeclaredField("flags")
        flags.setAccessible(True)
        flags.setInt(compiled, perl.getInt(None))
        clone(compiled)
    return compiled


def _literal(name: str, expression: Any) -> str:
    """The text of a literal. Raises QueryError."""
    if kind_of(expression) != "Literal" or expression.value() is None:
        raise QueryError(f"{name}: the pattern, and what goes with it, must be a text in quotes, not an expression")
    value = expression.value()
    return str(value) if isinstance(value, int) else str(value.toString())


def _like_pattern(text: str, escape: str, flags: str) -> str:
    """A LIKE pattern as a regular expression. Raises QueryError if its escapes are wrong."""
    parts, at = [], 0
    while at < len(text):
        char = text[at]
        if char == escape:
            at += 1
            if at == len(text) or text[at] not in ("%", "_", escape):
                raise QueryError(f"like: {escape} stands before %, _ or itself in {text!r}")
            parts.append(_quoted(text[at]))
        else:
            parts.append({"%": ".*", "_": "."}.get(char) or _quoted(char))
        at += 1
    return flags + r"\A" + "".join(parts) + r"\z"


def _quoted(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 or char == " " else f"\\x{{{ord(char):x}}}"
