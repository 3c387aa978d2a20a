"""The allow-list for queries: Spark's plans, expressions and functions, by name. Everything else is refused.

Every entry is deterministic, touches nothing except its arguments, and takes time and memory in proportion to them.
`streams.query.growth` bounds functions whose results may be larger than their arguments, `streams.query.linear` bounds
regular expressions. See decision 12.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

#: Nodes of a plan as parsed by Spark.
PLANS = frozenset({"Project", "Filter", "SubqueryAlias", "UnresolvedRelation"})

#: Expressions that the parser makes from operators and special syntax.
EXPRESSIONS = frozenset(
    """
    UnresolvedAttribute UnresolvedStar UnresolvedFunction UnresolvedAlias UnresolvedExtractValue Alias Literal
    And Or Not EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual In Like ILike RLike
    IsNull IsNotNull Add Subtract Multiply Divide IntegralDivide Remainder UnaryMinus UnaryPositive
    BitwiseAnd BitwiseOr BitwiseXor BitwiseNot ShiftLeft ShiftRight ShiftRightUnsigned Cast CaseWhen Concat
    Substring Overlay StringTrim StringTrimLeft StringTrimRight StringLocate CreateNamedStruct TimestampAdd
    TimestampDiff LambdaFunction UnresolvedNamedLambdaVariable
    """.split()  # noqa: SIM905
)

#: Those of them whose results have only a few bytes.
FIXED_EXPRESSIONS = EXPRESSIONS - frozenset(
    """
    UnresolvedAttribute UnresolvedStar UnresolvedFunction UnresolvedAlias UnresolvedExtractValue Alias Literal Cast
    CaseWhen Concat Substring Overlay StringTrim StringTrimLeft StringTrimRight CreateNamedStruct LambdaFunction
    UnresolvedNamedLambdaVariable
    """.split()  # noqa: SIM905
)

#: Functions that take a lambda, whose body sees only its own variables.
WITH_LAMBDA = frozenset({"transform", "filter", "exists", "forall"})

#: Functions whose results have only a few bytes: numbers, times, booleans.
FIXED = frozenset(
    """
    abs acos acosh asin asinh atan atan2 atanh bround cbrt ceil ceiling cos cosh cot csc degrees div e exp expm1
    factorial floor hypot ln log log10 log1p log2 mod negative pi pmod positive pow power radians rint round sec
    sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract width_bucket % << >> >>>
    bit_count bit_get getbit shiftleft shiftright shiftrightunsigned ! < <= <=> = == > >= and or not between
    equal_null in isnan isnotnull isnull like ilike rlike regexp regexp_like bigint boolean date decimal double
    float int smallint timestamp tinyint add_months convert_timezone date_add date_diff date_from_unix_date
    date_part date_sub date_trunc dateadd datediff datepart day dayofmonth dayofweek dayofyear extract
    from_utc_timestamp hour last_day make_date make_timestamp minute month months_between next_day quarter second
    timestamp_micros timestamp_millis timestamp_seconds to_date to_timestamp to_unix_timestamp to_utc_timestamp
    trunc try_to_date try_to_timestamp unix_date unix_micros unix_millis unix_seconds weekday weekofyear year crc32
    hash xxhash64 char_length character_length length len bit_length octet_length ascii contains endswith startswith
    find_in_set instr locate position is_valid_utf8 luhn_check json_array_length map_contains_key array_contains
    array_position array_size cardinality size
    """.split()  # noqa: SIM905
)

#: The names of functions.
FUNCTIONS = (
    FIXED
    | WITH_LAMBDA
    | frozenset(
        """
    bin conv greatest hex least unhex * + - / & ^ | ~ coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when
    zeroifnull binary cast string date_format dayname from_unixtime monthname md5 sha sha1 sha2 get_json_object
    json_object_keys to_json map map_entries map_keys map_values named_struct struct array array_append
    array_compact array_join array_max array_min array_prepend array_repeat concat element_at flatten get reverse
    slice sort_array try_element_at base64 btrim char chr concat_ws decode elt encode format_number initcap lcase
    left lower lpad ltrim make_valid_utf8 mask overlay quote regexp_extract regexp_replace repeat replace right rpad
    rtrim soundex space split split_part substr substring substring_index to_binary translate trim try_to_binary
    ucase unbase64 upper url_encode try_url_decode
    """.split()  # noqa: SIM905
    )
)

#: Functions and operators that match regular expressions.
REGULAR = frozenset({"like", "ilike", "rlike", "regexp", "regexp_like", "regexp_extract", "regexp_replace", "split"})

#: What is deliberately left out but often asked for, and what to do instead.
INSTEAD = {
    **dict.fromkeys(
        ("current_timestamp", "now", "current_date", "curdate", "current_time", "localtime", "localtimestamp",
         "unix_timestamp"),
        "a result must not depend on when it is made: use _timestamp, the record's time",
    ),
    **dict.fromkeys(
        ("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "monotonically_increasing_id"),
        "a result must be the same each time it is made",
    ),
    **dict.fromkeys(
        ("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
         "sequence"),
        "functions like explode make several records of one: a query topic gives at most one",
    ),
    "from_json": "give the source a schema (barnabas.value.schema), or use get_json_object",
    **dict.fromkeys(
        ("regexp_count", "regexp_extract_all", "regexp_instr", "regexp_substr", "str_to_map"),
        "of regular expressions there are rlike, regexp_extract and regexp_replace",
    ),
}  # fmt: skip


def no_function(name: str, known: Collection[str] = FUNCTIONS) -> str:
    """The message about an unknown function; `known` are those that may be meant."""
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return f"there is no function {name}" + (f"; did you mean {near[0]}?" if near else "")
