"""A Kafka-protocol-compatible broker whose partitions Spark reads as they are.

What is installed is this one package. In a checkout its rooms (`wire`, `storage`, `groupcoord`, `broker`, `client`,
`connect`, `streams`, `scripts`) are folders at the top, and stand here as links to them. docs/architecture.md shows
each of them.
"""

import sys

if sys.implementation.name == "pypy":  # for which msgspec cannot be built (docs/decisions/0074-on-pypy.md)
    from barnabas.wire import msgspec_for_pypy

    sys.modules.setdefault("msgspec", msgspec_for_pypy)
