"""The aggregates that a stream may use: for each window and key their state is a few bytes, or the size of one record.

All of them are deterministic whatever the order of the rows, except for the last digits of sums of doubles.
"""

from __future__ import annotations

from typing import NamedTuple


class Aggregate(NamedTuple):
    """An aggregate: its number of arguments, and which of them must be literals."""

    arguments: int
    literals: tuple[int, ...] = ()


_ONE = Aggregate(1)
#: By the name with which it is called.
AGGREGATES: dict[str, Aggregate] = {
    **dict.fromkeys(
        """
        count sum avg mean min max first last spread stddev stddev_samp stddev_pop std variance var_samp var_pop
        skewness kurtosis bool_and every bool_or any some bit_and bit_or bit_xor count_if approx_count_distinct
        """.split(),  # noqa: SIM905
        _ONE,
    ),
    **dict.fromkeys(("min_by", "max_by", "corr", "covar_pop", "covar_samp"), Aggregate(2)),
    **dict.fromkeys(("approx_percentile", "percentile_approx"), Aggregate(2, (1,))),
}

#: Aggregates of Spark and TDengine that are not supported, and what to do instead.
INSTEAD = {
    **dict.fromkeys(
        ("collect_list", "collect_set", "array_agg", "listagg", "string_agg", "histogram", "sample", "unique", "tail"),
        "its state grows with the number of records",
    ),
    **dict.fromkeys(("percentile", "median", "percentile_cont", "percentile_disc", "apercentile"),
        "use approx_percentile, whose state is bounded"),
    **dict.fromkeys(("mode", "histogram_numeric", "leastsquares", "top", "bottom", "elapsed", "interp", "derivative",
        "irate", "twa", "diff", "statecount", "stateduration", "csum", "mavg", "hyperloglog"),
        "use avg, min, max, first, last, spread or approx_count_distinct"),
    **dict.fromkeys(("first_value", "any_value"), "use first, which takes the earliest record"),
    "last_value": "use last, which takes the latest record",
    "last_row": "use last, which takes the latest record",
}  # fmt: skip
